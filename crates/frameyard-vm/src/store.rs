//! Backing stores of files: [`BackingStore`], and [`PatternStore`], whose contents can be computed.

use core::fmt;

use frameyard::ByteSize;

/// Error of a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The store is read-only.
    ReadOnly {
        /// The file's key.
        key: u64,
    },
    /// The store failed for this page.
    Failed {
        /// The file's key.
        key: u64,
        /// The page's number in the file.
        page: u64,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadOnly { key } => write!(f, "the store of file {key:#x} is read-only"),
            Self::Failed { key, page } => write!(f, "the store failed with page {page} of file {key:#x}"),
        }
    }
}

impl core::error::Error for StoreError {}

/// Where file pages are filled from and written back to. A view has one store for all files, which are told apart by
/// their keys.
///
/// A store has contents for each page of each key, also for pages that were never written (usually zeroes). It is
/// called with no lock held except that of the page. It may be slow, but others wait for the same page only for a
/// bounded time.
pub trait BackingStore: Sync {
    /// Fills `bytes` with the contents of page `page` of the file `key`, from byte `offset` of the page on. The
    /// previous contents of `bytes` are undefined.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. The contents of `bytes` are undefined then.
    fn fill(&self, key: u64, page: u64, offset: usize, bytes: &mut [u8]) -> Result<(), StoreError>;

    /// Stores the bytes of a page of the file `key`: the whole page, or the part that lies in the file.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. The page stays dirty.
    fn write_back(&self, key: u64, page: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// Truncates the file `key` to `size` bytes. If the file grows again, later calls of [`fill`](Self::fill) define
    /// what is beyond.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    fn truncate(&self, key: u64, size: ByteSize) -> Result<(), StoreError> {
        let _ = (key, size);
        Ok(())
    }
}

impl fmt::Debug for dyn BackingStore + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackingStore")
    }
}

/// A read-only store whose contents follow from key and page number, so that any process can verify them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PatternStore;

impl PatternStore {
    /// The word with index `word` of a page.
    #[must_use]
    #[inline]
    pub const fn expected_word(key: u64, page: u64, word: u64) -> u64 {
        // The words of a page form an arithmetic progression: they differ, and filling costs no more than writing.
        Self::first_word(key, page).wrapping_add(word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The byte at `offset` of a page.
    #[must_use]
    #[inline]
    pub const fn expected(key: u64, page: u64, offset: u64) -> u8 {
        Self::expected_word(key, page, offset / 8).to_le_bytes()[(offset % 8) as usize]
    }

    const fn first_word(key: u64, page: u64) -> u64 {
        // The finaliser of splitmix64, over both numbers.
        let mut word = key.rotate_left(32) ^ page.wrapping_add(0x632b_e59b_d9b4_e019);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

impl BackingStore for PatternStore {
    fn fill(&self, key: u64, page: u64, offset: usize, bytes: &mut [u8]) -> Result<(), StoreError> {
        let (mut at, mut rest) = (offset as u64, bytes);
        while !at.is_multiple_of(8) && !rest.is_empty() {
            rest[0] = Self::expected(key, page, at);
            (at, rest) = (at + 1, &mut rest[1..]);
        }
        let (words, tail) = rest.as_chunks_mut::<8>();
        let first = at / 8;
        for (word, number) in words.iter_mut().zip(first..) {
            *word = Self::expected_word(key, page, number).to_le_bytes();
        }
        let done = at + words.len() as u64 * 8;
        for (byte, at) in tail.iter_mut().zip(done..) {
            *byte = Self::expected(key, page, at);
        }
        Ok(())
    }

    fn write_back(&self, key: u64, _page: u64, _bytes: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly { key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_equal_for_any_part() {
        let mut whole = [0; 4096];
        PatternStore.fill(7, 3, 0, &mut whole).unwrap();
        for (from, to) in [(0, 4096), (1, 4096), (5, 6), (8, 16), (3, 29), (4090, 4096), (16, 16)] {
            let mut part = vec![0; to - from];
            PatternStore.fill(7, 3, from, &mut part).unwrap();
            assert_eq!(part, whole[from..to]);
        }
        assert_eq!(whole[100], PatternStore::expected(7, 3, 100));
    }

    #[test]
    fn pages_differ_by_key_and_number() {
        let word = |key, page| PatternStore::expected_word(key, page, 0);
        assert_ne!(word(1, 2), word(2, 1));
        assert_ne!(word(1, 2), word(1, 3));
    }

    #[test]
    fn pattern_store_is_read_only() {
        assert_eq!(PatternStore.write_back(9, 0, &[0; 8]), Err(StoreError::ReadOnly { key: 9 }));
    }
}
