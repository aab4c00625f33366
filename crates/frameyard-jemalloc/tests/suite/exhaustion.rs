//! Requests beyond the size of the yard fail, and the heap works afterwards.

use std::alloc::{Layout, alloc, dealloc};

use crate::alone;

#[test]
fn a_block_larger_than_the_yard_is_refused() {
    let alone = alone();
    let failures = alone.heap.summary().failures;
    assert!(Vec::<u8>::new().try_reserve(1 << 30).is_err());
    assert!(alone.heap.summary().failures > failures);
    let mut fits = Vec::<u8>::new();
    fits.try_reserve(64 << 20).expect("a quarter of the yard");
    assert!(alone.heap.contains(fits.as_ptr()));
}

#[test]
fn a_full_yard_gives_null_and_serves_again_after_a_free() {
    let alone = alone();
    for size in [3 << 20, 200_000] {
        let layout = Layout::from_size_align(size, 8).unwrap();
        let most = (256 << 20) / size;
        let mut held = Vec::with_capacity(most + 1);
        // SAFETY: the size is not zero.
        let full = (0..=most).any(|_| match unsafe { alloc(layout) } {
            block if block.is_null() => true,
            block => {
                held.push(block);
                false
            }
        });
        let (count, outside) = (held.len(), held.iter().filter(|block| !alone.heap.contains(**block)).count());
        for block in held {
            // SAFETY: a block of that layout, which the test owns.
            unsafe { dealloc(block, layout) };
        }
        // Only now: a message about a failed assertion needs memory.
        assert!(full && count > most / 2, "{count} blocks of {size} bytes");
        assert_eq!(outside, 0, "of {count} blocks of {size} bytes");
        let mut again = Vec::<u8>::new();
        again.try_reserve_exact(64 << 20).expect("the memory is free again");
    }
}
