//! Files without a name, their seals, and handing them to other processes.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::check;

/// A new empty file in memory, closed when another program is executed.
pub(crate) fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: the name is a C string, and the call touches no other memory of ours.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    check(fd)?;
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Holds the size of a memory file for ever, so that nobody who maps it can lose pages under his feet.
pub(crate) fn seal_size(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open as long as `file` lives, and the call touches no memory.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })
}

/// Whether the size of a file is held as by [`seal_size`]; only files in memory have seals.
pub(crate) fn is_size_sealed(file: &File) -> bool {
    let wanted = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: the descriptor is open as long as `file` lives, and the call touches no memory.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & wanted == wanted
}

/// Whether a descriptor stays open when another program is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnExec {
    Close,
    Keep,
}

/// A second descriptor for what `fd` names.
///
/// It does not take over `fd`: an unknown number is an error, and one that names something else is found out
/// by who reads from the copy.
pub(crate) fn duplicate(fd: RawFd, on_exec: OnExec) -> io::Result<OwnedFd> {
    let command = match on_exec {
        OnExec::Close => libc::F_DUPFD_CLOEXEC,
        OnExec::Keep => libc::F_DUPFD,
    };
    // SAFETY: duplicating changes nothing about `fd`; a number that is not open is an error.
    let copy = unsafe { libc::fcntl(fd, command, 3) };
    check(copy)?;
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Gives back the blocks of a part of a file, which reads as zero from then on. The file keeps its length.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let signed = |bytes| libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW));
    let (offset, len) = (signed(offset)?, signed(len)?);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open as long as `file` lives, and the call touches no memory.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) })
}

/// The first byte at or behind `offset` that was written or read through a mapping; `None` where there is none. What was only
/// allocated counts as a hole in memory files.
pub(crate) fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    match seek(file, offset, libc::SEEK_DATA) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        found => found.map(Some),
    }
}

/// The first byte at or behind `offset`, which lies in the file, that it has nothing for; its end counts as such.
pub(crate) fn next_hole(file: &File, offset: u64) -> io::Result<u64> {
    seek(file, offset, libc::SEEK_HOLE)
}

/// Nobody else reads or writes at the file's position.
fn seek(file: &File, offset: u64, whence: libc::c_int) -> io::Result<u64> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: the descriptor is open as long as `file` lives, and the call touches no memory.
    let found = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    check(found)?;
    Ok(found.unsigned_abs())
}

/// How many bytes a user may still write to the file system of a file; `None` where it states no size.
pub(crate) fn space_left(file: &File) -> io::Result<Option<u64>> {
    let mut stat = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the descriptor is open as long as `file` lives, and fstatvfs writes at most one `statvfs`.
    check(unsafe { libc::fstatvfs(file.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: fstatvfs filled it in, as it returned without an error.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_memory_file_keeps_its_size() {
        let file = memory_file(c"sealed").unwrap();
        file.set_len(8192).unwrap();
        seal_size(&file).unwrap();
        assert!(file.set_len(4096).is_err());
        assert!(file.set_len(16384).is_err());
        assert_eq!(file.metadata().unwrap().len(), 8192);
    }

    #[test]
    fn a_duplicate_outlives_its_original_and_stays_open_on_exec_only_when_asked() {
        let file = memory_file(c"copied").unwrap();
        file.set_len(4096).unwrap();
        let kept = duplicate(file.as_raw_fd(), OnExec::Keep).unwrap();
        let closed = duplicate(file.as_raw_fd(), OnExec::Close).unwrap();
        drop(file);
        // SAFETY: both descriptors are open, and reading their flags touches no memory.
        let flags = |fd: &OwnedFd| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags(&kept) & libc::FD_CLOEXEC, 0);
        assert_eq!(flags(&closed) & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        assert_eq!(File::from(kept).metadata().unwrap().len(), 4096);
    }

    #[test]
    fn holes_are_found_and_punched() {
        let (file, page) = (memory_file(c"holes").unwrap(), crate::sys::host_page_size() as u64);
        file.set_len(8 * page).unwrap();
        assert_eq!(next_data(&file, 0).unwrap(), None);
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; 3 * page as usize], 2 * page).unwrap();
        assert_eq!((next_data(&file, 0).unwrap(), next_hole(&file, 2 * page).unwrap()), (Some(2 * page), 5 * page));
        punch_hole(&file, 3 * page, page).unwrap();
        assert_eq!(
            (next_hole(&file, 2 * page).unwrap(), next_data(&file, 3 * page).unwrap()),
            (3 * page, Some(4 * page))
        );
        assert_eq!(file.metadata().unwrap().len(), 8 * page);
        assert_eq!(next_hole(&file, 7 * page).unwrap(), 7 * page);
        assert!(punch_hole(&file, u64::MAX, page).is_err());
    }

    #[test]
    fn an_unknown_descriptor_cannot_be_duplicated() {
        let error = duplicate(1 << 20, OnExec::Close).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
