//! Files that contain frames.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use frameyard::ByteSize;

use super::{FileGrowth, MemoryError};
use crate::sys::descriptor;

/// A memory file of that length. Its size is sealed.
pub(crate) fn in_memory(length: u64) -> Result<File, MemoryError> {
    let make = || -> io::Result<File> {
        let file = descriptor::memory_file(c"frameyard")?;
        file.set_len(length)?;
        descriptor::seal_size(&file)?;
        Ok(file)
    };
    make().map_err(|source| MemoryError::System { action: "make a memory file", size: ByteSize(length), source })
}

/// The lock that is taken on a file while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileLock {
    /// Exclusive.
    Alone,
    /// Shared with processes that take the same lock.
    Shared,
    /// No lock.
    None,
}

impl FileLock {
    /// Locks a file (`flock`) until it is closed.
    pub(crate) fn take(self, file: &File, path: &Path) -> Result<(), MemoryError> {
        let locked = match self {
            Self::Alone => file.try_lock(),
            Self::Shared => file.try_lock_shared(),
            Self::None => Ok(()),
        };
        locked.map_err(|error| match error {
            TryLockError::WouldBlock => MemoryError::FileInUse(path.to_owned()),
            TryLockError::Error(source) => MemoryError::FileOpen { path: path.to_owned(), source },
        })
    }
}

/// Opens a file that is at least `length` long.
///
/// Checks that its file system has room, but allocates none: a frame takes a block when it is first written.
pub(crate) fn with_path(path: &Path, growth: FileGrowth, length: u64, lock: FileLock) -> Result<File, MemoryError> {
    let open_error = |source| MemoryError::FileOpen { path: path.to_owned(), source };
    let mut options = File::options();
    options.read(true).write(true).create(growth == FileGrowth::Grow);
    let file = options.open(path).map_err(open_error)?;
    let metadata = file.metadata().map_err(open_error)?;
    if !metadata.is_file() {
        return Err(MemoryError::NotRegularFile(path.to_owned()));
    }
    // Two yards on one file would allocate the same bytes twice.
    lock.take(&file, path)?;
    let short = metadata.len() < length;
    if short && growth == FileGrowth::Refuse {
        let (needed, size) = (ByteSize(length), ByteSize(metadata.len()));
        return Err(MemoryError::FileTooSmall { path: path.to_owned(), needed, size });
    }
    check_space(&file, path, length)?;
    if short {
        let action = "make the file for frames longer";
        file.set_len(length).map_err(|source| MemoryError::System { action, size: ByteSize(length), source })?;
    }
    Ok(file)
}

/// Checks that the file system has room for a file of that length.
pub(crate) fn check_space(file: &File, path: &Path, length: u64) -> Result<(), MemoryError> {
    let unusable = |source| MemoryError::FileOpen { path: path.to_owned(), source };
    // `blocks` counts units of 512 bytes on every file system.
    let needed = length.saturating_sub(file.metadata().map_err(unusable)?.blocks().saturating_mul(512));
    match descriptor::space_left(file).map_err(unusable)? {
        Some(available) if needed > available => {
            let (needed, available) = (ByteSize(needed), ByteSize(available));
            Err(MemoryError::FileSystemFull { path: path.to_owned(), needed, available })
        }
        _ => Ok(()),
    }
}
