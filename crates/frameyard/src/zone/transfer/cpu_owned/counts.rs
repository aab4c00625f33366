//! What CPU-owned pageblocks count.

use crate::sync::{AtomicU64, all_atomic};

/// [`CpuOwnedStatistics`](super::CpuOwnedStatistics) of one CPU in one zone, being counted. Changes under the lock of the CPU's owned lists.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) claims: AtomicU64,
    pub(super) returns: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) pages_taken: AtomicU64,
    pub(super) local_pages_freed: AtomicU64,
    pub(super) remote_pages_freed: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) direct_frees: AtomicU64,
    pub(super) direct_pages_freed: AtomicU64,
}

all_atomic!(Counts {
    claims,
    returns,
    given_up,
    pages_taken,
    local_pages_freed,
    remote_pages_freed,
    merges,
    direct_frees,
    direct_pages_freed
});
