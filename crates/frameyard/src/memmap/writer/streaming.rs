//! Whole pages written by the machine's fastest instructions: streaming stores, and ways to zero.
//!
//! A streaming store writes a whole line without reading it first. Each writer detects the CPU's instructions at run time, once.

use core::ptr::NonNull;

use crate::memmap::writer::{ALL, Vectors, WORDS, Zeroes, fence, stores};
use crate::page::Page;

/// How whole pages are written. Instructions beside plain stores are used only if detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Streaming {
    /// Streaming stores from vector registers; if none, plain stores of 8 bytes.
    vectors: Option<Vectors>,
    /// Instructions that zero pages; if none, the same stores as any other content.
    zeroes: Option<Zeroes>,
}

impl Streaming {
    /// The way that works on every CPU.
    pub(super) const PORTABLE: Self = Self { vectors: None, zeroes: None };

    /// The fastest way of this CPU.
    pub(super) fn detected() -> Self {
        let vectors = Vectors::available().last();
        let zeroes = if vectors.is_some_and(Vectors::is_wide) { None } else { Zeroes::available().last() };
        Self { vectors, zeroes }
    }

    /// All ways of this CPU, for tests.
    #[cfg(all(test, not(loom)))]
    pub(super) fn available() -> impl Iterator<Item = Self> {
        let zeroes = || core::iter::once(None).chain(Zeroes::available().map(Some));
        let each = move |vectors| zeroes().map(move |zeroes| Self { vectors, zeroes });
        core::iter::once(None).chain(Vectors::available().map(Some)).flat_map(each)
    }

    /// Writes the same words to every page.
    ///
    /// # Safety
    ///
    /// `first` points to `count` writable pages that no other thread accesses during the call.
    pub(super) unsafe fn write(self, first: NonNull<Page>, count: usize, words: &[u64; WORDS]) {
        // SAFETY: the caller's contract; the CPU has these registers, because only detected ones are chosen.
        unsafe {
            match self.vectors {
                None => stores::set::<false, ALL>(first, count, words),
                Some(vectors) => vectors.write(first, count, words),
            }
        }
    }

    /// Zeroes every page.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    pub(super) unsafe fn zero(self, first: NonNull<Page>, count: usize) {
        // SAFETY: the caller's contract; the CPU has the instructions, because only detected ones are chosen.
        unsafe {
            match self.zeroes.filter(|zeroes| count >= zeroes.fewest_pages()) {
                Some(zeroes) => zeroes.zero(first, count),
                None if self.vectors.is_none() => stores::zero(first, count),
                None => self.write(first, count, &[0; WORDS]),
            }
        }
    }

    /// Orders streaming stores and `clzero` before what the caller publishes next.
    #[expect(clippy::unused_self, reason = "only a writer that streams has something to order")]
    pub(super) fn fence(self) {
        fence();
    }
}

#[cfg(all(test, target_arch = "x86_64", not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn detection_agrees_with_the_standard_library() {
        let has = |vectors| Vectors::available().any(|found| found == vectors);
        assert_eq!(has(Vectors::Avx2), std::arch::is_x86_feature_detected!("avx2"));
        assert_eq!(has(Vectors::Avx512), std::arch::is_x86_feature_detected!("avx512f"));
        let rep_store = Zeroes::available().any(|found| found == Zeroes::RepStore);
        assert_eq!(rep_store, std::arch::is_x86_feature_detected!("ermsb"));
    }

    #[test]
    fn the_widest_detected_stores_are_chosen() {
        assert_eq!(Streaming::detected().vectors, Vectors::available().max_by_key(|vectors| *vectors as u8));
    }
}
