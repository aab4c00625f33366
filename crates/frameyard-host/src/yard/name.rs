//! The name of a shared yard: a file that exists while a process uses the yard.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};

use crate::memory::{MemoryError, check_space};
use crate::shared::{SharedFileError, SharedMemoryFile};

/// Where names without a leading slash lie: the host's file system in memory.
const DIRECTORY: &str = "/dev/shm";
/// How often a new yard removes a leftover file before it gives up.
const ATTEMPTS: u32 = 8;

/// The name of a shared yard: an open file with a shared lock on it. The last process that drops it removes the name. A
/// yard drops it last: without it, another process may take the file for a leftover and remove it.
#[derive(Debug)]
pub(super) struct YardName {
    path: PathBuf,
    file: File,
    /// The process that has the lock. A forked child shares the open file, and changing the lock there would change it
    /// for its parent.
    process: u32,
}

/// The path that a name stands for.
pub(crate) fn path_of(name: &Path) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

impl YardName {
    /// Gives a file without a name its name.
    pub(super) fn link(path: PathBuf, file: File) -> Result<Self, SharedFileError> {
        let failed = |source: io::Error| SharedFileError::Name { path: path.clone(), source };
        // Taken before the name appears: no process finds the file unlocked.
        file.try_lock_shared().map_err(|error| failed(error.into()))?;
        let anonymous = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        for _ in 0..ATTEMPTS {
            match linkat(CWD, &anonymous, CWD, &path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from) {
                Ok(()) => return Ok(Self { path, file, process: std::process::id() }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let found = match open_file(&path) {
                        Err(SharedFileError::NoSuchName(_)) => continue,
                        found => found?,
                    };
                    if !remove_leftover(&path, &found)? {
                        break;
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(SharedFileError::NameInUse(path))
    }

    /// Opens the file of a name that a running process uses.
    pub(super) fn open(path: PathBuf) -> Result<Self, SharedFileError> {
        let file = open_file(&path)?;
        if remove_leftover(&path, &file)? {
            return Err(SharedFileError::NoSuchName(path));
        }
        match file.try_lock_shared() {
            Ok(()) if is_at(&path, &file) => Ok(Self { path, file, process: std::process::id() }),
            // The last process has removed the name, or is about to.
            Ok(()) | Err(TryLockError::WouldBlock) => Err(SharedFileError::NoSuchName(path)),
            Err(TryLockError::Error(source)) => Err(SharedFileError::Name { path, source }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A second handle of the file.
    pub(super) fn file(&self) -> Result<File, MemoryError> {
        self.file.try_clone().map_err(|source| unusable(&self.path, source))
    }
}

impl Drop for YardName {
    fn drop(&mut self) {
        // Succeeds in the last process only. A process that opens the file meanwhile finds the lock taken, or the name
        // gone.
        let is_own = self.process == std::process::id();
        if is_own && self.file.try_lock().is_ok() && is_at(&self.path, &self.file) {
            // If this fails, the next yard with that name removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file of that length without a name, on the file system of `path`.
pub(super) fn unnamed_file(path: &Path, length: u64) -> Result<File, MemoryError> {
    let unusable = |source| unusable(path, source);
    let directory = path.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::TMPFILE.bits() as i32;
    let file = File::options().read(true).write(true).mode(0o600).custom_flags(flags).open(directory);
    let file = file.map_err(unusable)?;
    check_space(&file, path, length)?;
    file.set_len(length).map_err(unusable)?;
    Ok(file)
}

fn open_file(path: &Path) -> Result<File, SharedFileError> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    File::options().read(true).write(true).custom_flags(nonblocking).open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => SharedFileError::NoSuchName(path.to_owned()),
        _ => SharedFileError::Name { path: path.to_owned(), source },
    })
}

/// Removes the name of a memory file that no running process uses. `false` if one does.
fn remove_leftover(path: &Path, file: &File) -> Result<bool, SharedFileError> {
    let failed = |source| SharedFileError::Name { path: path.to_owned(), source };
    // A file of another kind is left alone.
    SharedMemoryFile::check_header(file).map_err(failed)??;
    match file.try_lock() {
        Ok(()) => {
            if is_at(path, file) {
                fs::remove_file(path).map_err(failed)?;
            }
            Ok(true)
        }
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Whether a path names an open file.
fn is_at(path: &Path, file: &File) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (found, open) = (fs::metadata(path).map(identity), file.metadata().map(identity));
    found.is_ok_and(|found| open.is_ok_and(|open| found == open))
}

fn unusable(path: &Path, source: io::Error) -> MemoryError {
    MemoryError::FileOpen { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
