//! What stands behind files: [`BackingStore`], and [`PatternStore`], whose contents anybody can work out.

use core::fmt;

use frameyard::ByteSize;

/// Why a store did not give or take the bytes of a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The store takes nothing back.
    ReadOnly {
        /// The file's key.
        key: u64,
    },
    /// Something failed with this page.
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
            Self::ReadOnly { key } => write!(f, "the store of file {key:#x} takes nothing back: only read from it"),
            Self::Failed { key, page } => write!(f, "the store failed with page {page} of file {key:#x}"),
        }
    }
}

impl core::error::Error for StoreError {}

/// What pages of files are filled from and written back to. One for all files of a view; they differ by their key.
///
/// A store has contents for every page of every key, whatever was never written included (ordinary ones have zeros
/// there). Called without any lock but that of the page itself, so a store may take its time, but whoever wants the same
/// page waits only so long.
pub trait BackingStore: Sync {
    /// Gives the bytes of a page of the file `key` from byte `offset` of the page on, all of `bytes`. They hold anything
    /// before.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; `bytes` may hold anything then.
    fn fill(&self, key: u64, page: u64, offset: usize, bytes: &mut [u8]) -> Result<(), StoreError>;

    /// Takes the bytes of a page of the file `key`: the whole page, or as much of it as the file has.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the page stays dirty.
    fn write_back(&self, key: u64, page: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// Is told that the file `key` was cut: what stood behind its first `size` bytes is gone. What [`fill`](Self::fill)
    /// gives for that part from now on is what a file that grows again shows there.
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

/// A store whose every page follows from its key and number, so that any process can tell whether it has the right one.
/// Takes nothing back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PatternStore;

impl PatternStore {
    /// A word of a page of a file, by its number in the page.
    #[must_use]
    #[inline]
    pub const fn expected_word(key: u64, page: u64, word: u64) -> u64 {
        // The words of a page are in arithmetic progression: they differ, and filling costs what writing costs.
        Self::first_word(key, page).wrapping_add(word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A byte of a page of a file, by its offset in the page.
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
    fn a_part_of_a_pattern_is_the_same_however_it_is_asked_for() {
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
    fn a_pattern_takes_nothing_back() {
        assert_eq!(PatternStore.write_back(9, 0, &[0; 8]), Err(StoreError::ReadOnly { key: 9 }));
    }
}
