//! Memory files and their seals, descriptors for other processes, holes in files.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{FallocateFlags, MemfdFlags, OFlags, SealFlags, SeekFrom};
use rustix::io::{Errno, FdFlags};

/// A new empty memory file. It is closed when the process executes another program.
pub(crate) fn memory_file(name: &CStr) -> io::Result<File> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    Ok(File::from(fd))
}

/// The seals that fix the size of a file.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Fixes the size of a memory file for good. A process that maps it cannot lose pages.
pub(crate) fn seal_size(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(file, SIZE_SEALS | SealFlags::SEAL)?)
}

/// Whether [`seal_size`] has fixed the size of a file. Only memory files have seals.
pub(crate) fn is_size_sealed(file: &File) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SIZE_SEALS))
}

/// A second descriptor of a file, which stays open when the process executes another program.
pub(crate) fn inheritable(file: &File) -> io::Result<OwnedFd> {
    const FIRST_AFTER_STANDARD_STREAMS: i32 = 3;
    let copy = rustix::io::fcntl_dupfd_cloexec(file, FIRST_AFTER_STANDARD_STREAMS)?;
    rustix::io::fcntl_setfd(&copy, FdFlags::empty())?;
    Ok(copy)
}

/// Opens the file behind a descriptor of this process anew, for reading and writing.
///
/// The result shares no position and no lock with the descriptor. Needs no assumption about what kind of file it is.
pub(crate) fn reopen(fd: RawFd) -> io::Result<File> {
    // Without it, opening a pipe could block.
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let mut options = File::options();
    options.read(true).write(true).custom_flags(nonblocking).open(format!("/proc/self/fd/{fd}"))
}

/// Frees the blocks of a part of a file, which then reads as zero. The file keeps its length.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, mode, offset, len)?)
}

/// The first byte at or after `offset` that was written, or read through a mapping; `None` if there is none.
///
/// In memory files a block that was only allocated counts as a hole. Moves the file's position.
pub(crate) fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Err(Errno::NXIO) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// The first byte at or after `offset` that lies in a hole. The end of the file counts as one.
///
/// Moves the file's position.
pub(crate) fn next_hole(file: &File, offset: u64) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, SeekFrom::Hole(offset))?)
}

/// Bytes that an unprivileged user may still write to the file system of a file; `None` if it states no size.
pub(crate) fn space_left(file: &File) -> io::Result<Option<u64>> {
    let stat = rustix::fs::fstatvfs(file)?;
    Ok((stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_memory_file_keeps_its_size() {
        let file = memory_file(c"sealed").unwrap();
        assert!(!is_size_sealed(&file));
        file.set_len(8192).unwrap();
        seal_size(&file).unwrap();
        assert!(is_size_sealed(&file));
        assert!(file.set_len(4096).is_err());
        assert!(file.set_len(16384).is_err());
        assert_eq!(file.metadata().unwrap().len(), 8192);
    }

    #[test]
    fn only_an_inheritable_descriptor_survives_exec() {
        let file = memory_file(c"copied").unwrap();
        file.set_len(4096).unwrap();
        let copy = inheritable(&file).unwrap();
        assert_eq!(rustix::io::fcntl_getfd(&copy).unwrap(), FdFlags::empty());
        assert_eq!(rustix::io::fcntl_getfd(&file).unwrap(), FdFlags::CLOEXEC);
        drop(file);
        assert_eq!(File::from(copy).metadata().unwrap().len(), 4096);
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
}
