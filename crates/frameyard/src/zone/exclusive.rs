//! Counters that only the holder of a lock changes, so that a change is a plain load and store.

use crate::sync::{AtomicU64, Ordering};

/// Adds to a counter that only the holder of a lock changes.
#[inline(always)]
pub(crate) fn add_exclusive(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// Subtracts from a counter that only the holder of a lock changes.
#[inline(always)]
pub(crate) fn sub_exclusive(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_sub(amount), Ordering::Relaxed);
}
