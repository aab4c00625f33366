//! Words that several processes use at once, independent of any yard: atomics in a memory file of their own.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use frameyard::ByteSize;

use crate::memory::{HugePages, MemoryError, in_memory};
use crate::region::Region;
use crate::shared::{HeaderError, SharedFileError};
use crate::sys::descriptor;
use crate::sys::host_page_size;

/// Zeroed words in memory that any process can map, if it can open their [`path`](Self::path).
///
/// They take no memory from the host until they are touched.
#[derive(Debug)]
pub struct SharedWords {
    file: File,
    region: Region,
}

impl SharedWords {
    /// Creates at least `count` zeroed words, rounded up to whole host pages.
    ///
    /// # Errors
    ///
    /// [`SharedFileError::Memory`] if the host cannot provide them.
    pub fn create(count: usize) -> Result<Self, SharedFileError> {
        let bytes = count.max(1).checked_mul(size_of::<AtomicU64>());
        let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(host_page_size()));
        let bytes = bytes.ok_or(MemoryError::AddressSpace { span: ByteSize(u64::MAX) })?;
        Self::map(in_memory(bytes as u64)?, ByteSize(bytes as u64))
    }

    /// Opens the words that another process has created, by the [`path`](Self::path) that they have there.
    ///
    /// # Errors
    ///
    /// [`SharedFileError::Memory`] if the file cannot be opened or mapped, [`SharedFileError::Header`] if the file is
    /// not sealed against changes of its size.
    pub fn open(path: &Path) -> Result<Self, SharedFileError> {
        let unusable = |source| MemoryError::FileOpen { path: path.to_owned(), source };
        let file = File::options().read(true).write(true).open(path).map_err(unusable)?;
        if !descriptor::is_size_sealed(&file) {
            return Err(HeaderError::NotSealed.into());
        }
        let bytes = file.metadata().map_err(unusable)?.len();
        Self::map(file, ByteSize(bytes))
    }

    fn map(file: File, size: ByteSize) -> Result<Self, SharedFileError> {
        let region = Region::in_file(&file, 0, size, HugePages::Default)?;
        Ok(Self { file, region })
    }

    /// The path by which other processes of the same user find the words while this value lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// The words.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.region.atomics()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_write_through_one_view_shows_in_the_other() {
        let words = SharedWords::create(700).unwrap();
        let other = SharedWords::open(&words.path()).unwrap();
        assert!(words.words().len() >= 700 && words.words().len() == other.words().len());
        assert_ne!(words.words().as_ptr(), other.words().as_ptr());
        words.words()[699].store(7, Ordering::Relaxed);
        assert_eq!((other.words()[698].load(Ordering::Relaxed), other.words()[699].load(Ordering::Relaxed)), (0, 7));
    }

    #[test]
    fn a_file_without_a_sealed_size_is_refused() {
        let error = SharedWords::open(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(error, SharedFileError::Header(HeaderError::NotSealed)), "{error}");
        let error = SharedWords::open(Path::new("/nowhere")).unwrap_err();
        assert!(matches!(error, SharedFileError::Memory(MemoryError::FileOpen { .. })), "{error}");
    }
}
