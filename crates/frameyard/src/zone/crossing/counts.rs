//! What is counted at the border of a zone: how its lock was taken, and what the ways of crossing did.
//!
//! A zone has a [`CrossingRow`] for each CPU, and one for all that does not come from a CPU's lists. A CPU's row is
//! changed under the lock of that CPU's lists, so with [`add_exclusive`](crate::zone::add_exclusive); what its part
//! [`CrossingRow::lock`] counts is changed by the holder of the zone lock. The zone's own row is changed under the zone
//! lock, or with atomic additions by those who do without.

use crate::control::AllAtomic;
use crate::lock::{HistogramCounts, LockCounters, LockHold, LockUse, PageHistogram, TimeHistogram};
use crate::sync::{AtomicU64, Ordering};
use crate::units::MigrateType;

/// What was counted of a zone and a CPU; of a zone and all that did not come from a CPU's lists.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct CrossingRow {
    /// How the zone lock was taken.
    pub(crate) lock: ZoneLockCounts,
    /// What the ways of crossing did.
    pub(crate) crossing: CrossingCounts,
}

// SAFETY: atomics and arrays of atomics alone; all-zero has counted nothing.
unsafe impl AllAtomic for CrossingRow {}

/// How a zone lock was taken. Written by its holder alone.
#[derive(Default)]
pub(crate) struct ZoneLockCounts {
    pub(crate) uses: LockCounters,
    /// Frames that crossed the lock: left the free lists for good, or came back to them.
    pub(crate) pages_moved: AtomicU64,
    /// How long it was waited for where somebody else had it; while locks are timed.
    wait: TimeHistogram,
    /// How long it was held; while locks are timed.
    hold: TimeHistogram,
    /// Frames that crossed in one hold, where any did; while locks are timed.
    pages: PageHistogram,
}

impl ZoneLockCounts {
    /// Counts a hold that was timed.
    #[cold]
    pub(crate) fn record(&self, hold: LockHold, held_ns: u64, pages: u64) {
        if let Some(waited_ns) = hold.waited_ns() {
            self.wait.record(waited_ns);
        }
        self.hold.record(held_ns);
        if pages > 0 {
            self.pages.record(pages);
        }
    }

    pub(crate) fn read(&self) -> ZoneLockTelemetry {
        ZoneLockTelemetry {
            uses: self.uses.read(),
            pages_moved: self.pages_moved.load(Ordering::Relaxed),
            wait_ns: self.wait.read(),
            hold_ns: self.hold.read(),
            pages: self.pages.read(),
        }
    }
}

/// How a zone lock was taken, a moment ago: by one CPU's lists, by all that did without these, or all in all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ZoneLockTelemetry {
    /// Times it was taken, times somebody else had it, and the sums of waiting and holding.
    pub uses: LockUse,
    /// Frames that crossed it, either way.
    pub pages_moved: u64,
    /// How long it was waited for where somebody else had it, while locks were timed.
    pub wait_ns: HistogramCounts,
    /// How long it was held, while locks were timed.
    pub hold_ns: HistogramCounts,
    /// Frames that crossed in one hold, of those holds in which any did, while locks were timed.
    pub pages: HistogramCounts,
}

impl Default for ZoneLockTelemetry {
    fn default() -> Self {
        let (times, pages) = (HistogramCounts::of_times(), HistogramCounts::of_pages());
        Self { uses: LockUse::default(), pages_moved: 0, wait_ns: times, hold_ns: times, pages }
    }
}

impl ZoneLockTelemetry {
    /// What was counted here and there.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            uses: self.uses.and(other.uses),
            pages_moved: self.pages_moved.wrapping_add(other.pages_moved),
            wait_ns: self.wait_ns.and(&other.wait_ns),
            hold_ns: self.hold_ns.and(&other.hold_ns),
            pages: self.pages.and(&other.pages),
        }
    }

    /// What happened since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            uses: self.uses.since(earlier.uses),
            pages_moved: self.pages_moved.wrapping_sub(earlier.pages_moved),
            wait_ns: self.wait_ns.since(&earlier.wait_ns),
            hold_ns: self.hold_ns.since(&earlier.hold_ns),
            pages: self.pages.since(&earlier.pages),
        }
    }
}

macro_rules! crossing_counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What the ways of crossing did. Each counts what it has of these; the others stay zero.
        #[derive(Default)]
        pub(crate) struct CrossingCounts {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
            /// Drains that were exactly one batch of single frames of one type, by that type.
            pub(crate) full_batch_drains: [AtomicU64; MigrateType::PER_CPU],
        }

        /// What the ways of crossing did, a moment ago. What the policy does not do stays zero.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct CrossingStatistics {
            $($(#[$doc])* pub $name: u64,)*
            /// Drains that were exactly one batch of single frames of one type, by that type.
            pub full_batch_drains: [u64; MigrateType::PER_CPU],
        }

        impl CrossingCounts {
            pub(crate) fn read(&self) -> CrossingStatistics {
                CrossingStatistics {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    full_batch_drains: core::array::from_fn(|at| self.full_batch_drains[at].load(Ordering::Relaxed)),
                }
            }
        }

        impl CrossingStatistics {
            /// What was counted here and there.
            #[must_use]
            pub fn and(&self, other: &Self) -> Self {
                Self {
                    $($name: self.$name.wrapping_add(other.$name),)*
                    full_batch_drains: core::array::from_fn(|at| {
                        self.full_batch_drains[at].wrapping_add(other.full_batch_drains[at])
                    }),
                }
            }
        }
    };
}

crossing_counts! {
    /// Single frames that were freed without being merged.
    skipped_merges,
    /// Merges of such frames made later, on demand.
    later_merges,
    /// Clusters in use: may fall. Rows change it by different CPUs, so that only their sum, modulo 2⁶⁴, means something.
    clusters_in_use,
    /// Times no cluster was left for frames that could have had one.
    clusters_used_up,
    /// Times somebody waited for cuts in progress.
    cut_waits,
    /// Drains of an overflowing list.
    drains,
    /// Frames that were freed by another CPU than the one that they belong to.
    cross_cpu_frees,
    /// Batches put on a lock-free stack.
    depot_pushes,
    /// Batches taken off the CPU's own stack.
    depot_pops,
    /// Batches taken off another stack.
    depot_steals,
    /// Times such a step had to be tried again, for somebody else was faster.
    depot_retries,
}
