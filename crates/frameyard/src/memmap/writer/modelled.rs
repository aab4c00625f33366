//! Pages written in models: loom's atomics are no plain memory, so every way of writing goes through them.

use core::ptr::NonNull;

use crate::memmap::writer::{ALL, PageTemplate, WORDS};
use crate::page::Page;

/// # Safety
///
/// As for [`set`].
pub(super) unsafe fn zero(first: NonNull<Page>, count: usize) {
    // SAFETY: the caller's contract.
    unsafe { set::<false, ALL>(first, count, &PageTemplate::ZERO.0) }
}

/// Writes all words, whatever the mask.
///
/// # Safety
///
/// `first` points to `count` pages that stay where they are meanwhile.
pub(super) unsafe fn set<const CLEAR: bool, const MASK: u8>(first: NonNull<Page>, count: usize, words: &[u64; WORDS]) {
    for at in 0..count {
        // SAFETY: the page is one of the caller's; all of it is atomics, so a shared reference is fine.
        unsafe { first.add(at).as_ref() }.reset(words);
    }
}
