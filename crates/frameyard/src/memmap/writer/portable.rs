//! Whole pages where no streaming stores are known: plain stores of 8 bytes, and `memset` for zeroes.

use core::ptr::NonNull;

use super::{ALL, WORDS, stores};
use crate::page::Page;

/// How whole pages are written. There is one way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streaming;

impl Streaming {
    /// The way that works on every CPU.
    pub(super) const PORTABLE: Self = Self;

    /// The best that this machine has.
    pub(super) fn detected() -> Self {
        Self
    }

    /// Everything that this machine has, for tests.
    #[cfg(all(test, not(loom)))]
    pub(super) fn available() -> impl Iterator<Item = Self> {
        [Self].into_iter()
    }

    /// Writes the same words to every page.
    ///
    /// # Safety
    ///
    /// `first` points to `count` writable pages that no other thread accesses during the call.
    pub(super) unsafe fn write(self, first: NonNull<Page>, count: usize, words: &[u64; WORDS]) {
        // SAFETY: the caller's contract.
        unsafe { stores::set::<ALL>(first, count, words) }
    }

    /// Zeroes every page.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    pub(super) unsafe fn zero(self, first: NonNull<Page>, count: usize) {
        // SAFETY: the caller's contract.
        unsafe { stores::zero(first, count) }
    }

    /// Nothing: publication orders plain stores.
    #[expect(clippy::unused_self, reason = "the same interface as where there is something to order")]
    pub(super) fn fence(self) {}
}
