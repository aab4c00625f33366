//! Files that hold frames.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use frameyard::ByteSize;

use super::{FileGrowth, MemoryError};
use crate::sys::descriptor;

/// A file in memory of that length, which it keeps for ever.
pub(crate) fn in_memory(length: u64) -> Result<File, MemoryError> {
    let make = || -> io::Result<File> {
        let file = descriptor::memory_file(c"frameyard")?;
        file.set_len(length)?;
        descriptor::seal_size(&file)?;
        Ok(file)
    };
    make().map_err(|source| MemoryError::System { action: "make a memory file", size: ByteSize(length), source })
}

/// Who else may have a file locked while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileLock {
    /// Nobody.
    Alone,
    /// Others that lock it so too.
    Shared,
    /// Anybody: it is not locked.
    None,
}

impl FileLock {
    /// Locks a file (`flock`), as long as it is open.
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

/// The file with that name, at least `length` long.
///
/// The room on its file system is looked at but not taken, as frames are not touched before they are used. The file
/// is locked against other yards.
pub(crate) fn with_path(path: &Path, growth: FileGrowth, length: u64, lock: FileLock) -> Result<File, MemoryError> {
    let open_error = |source| MemoryError::FileOpen { path: path.to_owned(), source };
    let mut options = File::options();
    options.read(true).write(true).create(growth == FileGrowth::Grow);
    let file = options.open(path).map_err(open_error)?;
    let metadata = file.metadata().map_err(open_error)?;
    if !metadata.is_file() {
        return Err(MemoryError::NotRegularFile(path.to_owned()));
    }
    // Two yards on one file would give the same bytes to two owners.
    lock.take(&file, path)?;
    let short = metadata.len() < length;
    if short && growth == FileGrowth::Refuse {
        let (needed, size) = (ByteSize(length), ByteSize(metadata.len()));
        return Err(MemoryError::FileTooSmall { path: path.to_owned(), needed, size });
    }
    // `blocks` counts 512 bytes each, whatever the file system's own blocks are.
    let needed = length.saturating_sub(metadata.blocks().saturating_mul(512));
    if let Some(available) = descriptor::space_left(&file).map_err(open_error)?
        && needed > available
    {
        let (needed, available) = (ByteSize(needed), ByteSize(available));
        return Err(MemoryError::FileSystemFull { path: path.to_owned(), needed, available });
    }
    if short {
        let action = "make the file for frames longer";
        file.set_len(length).map_err(|source| MemoryError::System { action, size: ByteSize(length), source })?;
    }
    Ok(file)
}
