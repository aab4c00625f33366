//! Pages written by plain stores and by `memset`.

use core::hint::black_box;
use core::ptr::NonNull;

use super::{PAGE_BYTES, WORDS};
use crate::page::Page;

/// Zeroes a run of pages in one pass.
///
/// # Safety
///
/// `first` points to `count` writable pages that no other thread accesses during the call.
pub(super) unsafe fn zero(first: NonNull<Page>, count: usize) {
    // SAFETY: the caller's contract; an all-zero page is valid.
    unsafe { first.write_bytes(0, count) }
}

/// Stores the words of each page that `MASK` has a bit for: one store of 8 bytes each.
///
/// The stores are volatile, so that the compiler neither combines them into vector stores or a `memset` nor drops redundant
/// ones.
///
/// # Safety
///
/// As for [`zero`].
#[inline]
pub(super) unsafe fn set<const MASK: u8>(first: NonNull<Page>, count: usize, words: &[u64; WORDS]) {
    for at in 0..count {
        // SAFETY: the page is one of the caller's.
        unsafe { set_one::<MASK>(first.add(at), words) }
    }
}

/// Calls the general `memset` for the 64 bytes of each page, then stores the words that `MASK` has a bit for.
///
/// The length is hidden from the compiler, which would otherwise turn the call into a few vector stores.
///
/// # Safety
///
/// As for [`zero`].
#[inline]
pub(super) unsafe fn zero_each_and_set<const MASK: u8>(first: NonNull<Page>, count: usize, words: &[u64; WORDS]) {
    let bytes = black_box(PAGE_BYTES);
    for at in 0..count {
        // SAFETY: the page is one of the caller's, and `bytes` is its length.
        unsafe {
            let page = first.add(at);
            page.cast::<u8>().write_bytes(0, bytes);
            set_one::<MASK>(page, words);
        }
    }
}

/// # Safety
///
/// As for [`zero`], of one page.
#[inline(always)]
unsafe fn set_one<const MASK: u8>(page: NonNull<Page>, words: &[u64; WORDS]) {
    let page = page.cast::<u64>();
    for (at, word) in words.iter().enumerate() {
        if MASK & 1 << at != 0 {
            // SAFETY: a page is eight aligned words of 8 bytes, and it is the caller's alone.
            unsafe { page.add(at).write_volatile(*word) }
        }
    }
}
