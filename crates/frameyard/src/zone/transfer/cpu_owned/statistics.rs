//! What CPU-owned pageblocks count.

use crate::sync::{AtomicU64, all_atomic};
use crate::zone::transfer::statistics::{counters, read};

/// What is counted for one CPU in one zone. Changes under the lock of the CPU's owned lists.
#[derive(Default)]
pub(super) struct Counts {
    /// Pageblocks that the CPU claimed.
    pub(super) claims: AtomicU64,
    /// Pageblocks that were whole again and returned to the zone.
    pub(super) returns: AtomicU64,
    /// Pageblocks given up because their free frames were needed or too many.
    pub(super) given_up: AtomicU64,
    /// Frames that per-CPU lists took from them.
    pub(super) pages_taken: AtomicU64,
    /// Frames that the owner's own lists gave back.
    pub(super) local_pages_freed: AtomicU64,
    /// Frames that other CPUs gave back.
    pub(super) remote_pages_freed: AtomicU64,
    /// Pairs of buddies that merged.
    pub(super) merges: AtomicU64,
    /// Blocks freed past the per-CPU lists.
    pub(super) direct_frees: AtomicU64,
    /// Their frames.
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

counters! { |view, counts, cpu|
    let of = cpu.and_then(|cpu| view.cpu_owned_lists(cpu));
    "cross_cpu_frees" Counter of Cpu
        "Page frames of CPU-owned pageblocks freed by a CPU other than the owner; counted for the owner, by owned-blocks."
        = read(&of.counts.remote_pages_freed);
    "owned_pages_freed_local" Counter of Cpu "Page frames of CPU-owned pageblocks freed by the owner."
        = read(&of.counts.local_pages_freed);
    "owned_pages_taken" Counter of Cpu "Page frames that per-CPU lists took from CPU-owned pageblocks."
        = read(&of.counts.pages_taken);
    "owned_pageblocks" Gauge of Cpu "CPU-owned pageblocks." = of.pageblocks_racy();
    "owned_free_pages" Gauge of Cpu "Free page frames in CPU-owned pageblocks." = of.pages_racy().0;
    "owned_claims" Counter of Cpu "Pageblocks claimed by a CPU." = read(&of.counts.claims);
    "owned_returns" Counter of Cpu "CPU-owned pageblocks that returned to the zone whole." = read(&of.counts.returns);
    "owned_given_up" Counter of Cpu
        "CPU-owned pageblocks released early, because their free frames were needed or too many." = read(&of.counts.given_up);
    "owned_merges" Counter of Cpu "Merges of buddies in CPU-owned pageblocks." = read(&of.counts.merges);
    "owned_lock_acquisitions" Counter of Cpu "Acquisitions of an owner's lock." = of.lock_use().acquisitions;
    "owned_lock_contended" Counter of Cpu "Acquisitions of an owner's lock that had to wait." = of.lock_use().contended;
}
