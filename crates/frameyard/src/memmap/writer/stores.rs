//! Pages written by plain stores and by `memset`.

use core::hint::black_box;
use core::ptr::NonNull;

use crate::memmap::writer::{PAGE_BYTES, WORDS};
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

/// Stores the words of each page that `MASK` has a bit for: one store of 8 bytes each. If `CLEAR`, first calls the general
/// `memset` for the 64 bytes of the page.
///
/// The stores are volatile, so that the compiler neither combines them into vector stores or a `memset` nor drops redundant
/// ones. The length of the `memset` is hidden from the compiler, which would otherwise turn the call into a few vector stores.
///
/// # Safety
///
/// As for [`zero`].
#[inline]
pub(super) unsafe fn set<const CLEAR: bool, const MASK: u8>(first: NonNull<Page>, count: usize, words: &[u64; WORDS]) {
    let bytes = if CLEAR { black_box(PAGE_BYTES) } else { 0 };
    for at in 0..count {
        // SAFETY: the page is one of the caller's: eight aligned words of 8 bytes, and `bytes` is its length.
        unsafe {
            let page = first.add(at).cast::<u64>();
            if CLEAR {
                page.cast::<u8>().write_bytes(0, bytes);
            }
            for (at, word) in words.iter().enumerate() {
                if MASK & 1 << at != 0 {
                    page.add(at).write_volatile(*word);
                }
            }
        }
    }
}
