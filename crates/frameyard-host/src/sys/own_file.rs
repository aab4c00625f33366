//! Open files that forked children do not keep, and locks on their bytes.
//!
//! An open-file-description lock belongs to an open file, and a forked child shares the open files of its parent. So
//! [`fork`] handlers close these files in the child: the locks end with the process that took them. A child of a bare
//! `clone` system call runs no handlers and keeps them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};
use std::sync::Mutex;

use super::fork::{self, Hook, OtherThreads};
use super::{check, descriptor};
use crate::sys::lock::lock;

/// All files of this kind. No thread holds the lock during a fork, so the child finds each of them whole or not at all.
static FILES: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

static HOOK: Hook = fork::in_child(close_in_child);

fn close_in_child(others: OtherThreads) {
    if others == OtherThreads::GoOn {
        return;
    }
    for fd in std::mem::take(&mut *lock(&FILES)) {
        // SAFETY: the descriptor belongs to an `OwnFile`, which does not use it in a process other than its own.
        unsafe { libc::close(fd) };
    }
}

/// An open file that belongs to this process alone. In a forked child it is closed.
#[derive(Debug)]
pub(crate) struct OwnFile {
    fd: RawFd,
    process: u32,
}

impl OwnFile {
    /// Opens a file anew.
    pub(crate) fn open(file: impl AsFd) -> io::Result<Self> {
        fork::add(&HOOK)?;
        let mut files = lock(&FILES);
        let fd = descriptor::reopen(file.as_fd().as_raw_fd())?.into_raw_fd();
        files.push(fd);
        Ok(Self { fd, process: std::process::id() })
    }

    /// Whether the caller runs in the process that opened the file, not in a forked child.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Locks a byte, which need not exist. `false` if another open file has the lock.
    pub(crate) fn lock_byte(&self, byte: i64) -> io::Result<bool> {
        match self.control(libc::F_OFD_SETLK, libc::F_WRLCK, byte) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            result => result.map(|_| true),
        }
    }

    pub(crate) fn unlock_byte(&self, byte: i64) -> io::Result<()> {
        self.control(libc::F_OFD_SETLK, libc::F_UNLCK, byte).map(drop)
    }

    /// Whether another open file, of this or another process, has the lock of a byte.
    pub(crate) fn is_byte_locked(&self, byte: i64) -> io::Result<bool> {
        Ok(self.control(libc::F_OFD_GETLK, libc::F_WRLCK, byte)? != libc::F_UNLCK)
    }

    /// One `fcntl` call on a lock. Returns the kind of lock that the kernel reports.
    fn control(&self, command: i32, kind: i32, byte: i64) -> io::Result<i32> {
        if !self.is_own() {
            return Err(io::ErrorKind::NotFound.into());
        }
        control(self.fd, command, kind, byte)
    }
}

/// Whether an open file other than `file` has the lock of a byte. Needs no right to write, and takes no lock.
pub(crate) fn is_byte_locked(file: impl AsFd, byte: i64) -> io::Result<bool> {
    Ok(control(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, libc::F_WRLCK, byte)? != libc::F_UNLCK)
}

/// One `fcntl` call on a lock of an open descriptor. Returns the kind of lock that the kernel reports.
fn control(fd: RawFd, command: i32, kind: i32, byte: i64) -> io::Result<i32> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (byte, 1);
    // SAFETY: the descriptor is open in this process, and the call reads and writes `lock` alone.
    check(unsafe { libc::fcntl(fd, command, &raw mut lock) })?;
    Ok(i32::from(lock.l_type))
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if !self.is_own() {
            return;
        }
        let mut files = lock(&FILES);
        files.retain(|fd| *fd != self.fd);
        // SAFETY: `open` has opened the descriptor, and nothing else closes it in this process.
        unsafe { libc::close(self.fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_lasts_as_long_as_the_open_file() {
        let memory = descriptor::memory_file(c"locks").unwrap();
        let [one, other] = [&memory; 2].map(|file| OwnFile::open(file).unwrap());
        assert!(one.lock_byte(1 << 62).unwrap() && one.lock_byte(1 << 62).unwrap());
        assert!(!other.lock_byte(1 << 62).unwrap() && other.is_byte_locked(1 << 62).unwrap());
        assert!(!other.is_byte_locked((1 << 62) + 1).unwrap());
        assert!(!one.is_byte_locked(1 << 62).unwrap(), "a file does not see its own locks");
        drop(one);
        assert!(!other.is_byte_locked(1 << 62).unwrap());
        assert!(other.lock_byte(7).unwrap());
        other.unlock_byte(7).unwrap();
        assert!(!OwnFile::open(&memory).unwrap().is_byte_locked(7).unwrap());
    }

    #[test]
    fn an_impossible_byte_is_an_error() {
        let file = OwnFile::open(descriptor::memory_file(c"locks").unwrap()).unwrap();
        assert!(file.is_byte_locked(-1).is_err() && file.lock_byte(-1).is_err());
    }
}
