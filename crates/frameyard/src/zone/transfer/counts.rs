//! What is counted at the border of a zone: how its lock was taken, and what the ways of crossing did.
//!
//! A zone has a [`TransferCounters`] for each CPU, and one for all that does not come from a CPU's lists. A CPU's row is
//! changed under the lock of that CPU's lists, so with [`add_exclusive`]; what its part
//! [`TransferCounters::lock`] counts is changed by the holder of the zone lock. The zone's own row is changed under the zone
//! lock. A row also says whether its CPU has a cut in progress. What is not counted here has counters where it is: [`WaitCounts`](super::WaitCounts),
//! [`ClusterState`](super::ClusterState), the lists of owners and the stacks of the depot.

use crate::locks::{HistogramCounts, LockCounters, LockHold, LockUse, PageHistogram, TimeHistogram};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::MigrateType;
use crate::zone::add_exclusive;

/// What was counted of a zone and a CPU; of a zone and all that did not come from a CPU's lists.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct TransferCounters {
    /// 1 while a cut of the CPU's lists is in progress; changed under the lock of those. 0 in the zone's own row. It shares
    /// a line with what every hold of the zone lock counts.
    cutting: AtomicU32,
    /// How the zone lock was taken.
    pub(crate) lock: ZoneLockCounts,
    /// What policies that put merging off or move clusters did.
    pub(crate) transfer: MechanismCounts,
}

all_atomic!(TransferCounters { cutting, lock, transfer });

impl TransferCounters {
    /// Pages are about to look free that are not, or do already. The caller holds the lock of the CPU's lists, and may have
    /// one cut in progress. One that takes pages off lists begins under the zone lock.
    #[inline(always)]
    pub(super) fn begin_detachment(&self) {
        debug_assert_eq!(self.cutting.load(Ordering::Relaxed), 0, "one cut at a time");
        self.cutting.store(1, Ordering::Relaxed);
    }

    /// All of them are cleared, or on a list.
    #[inline(always)]
    pub(super) fn end_detachment(&self) {
        // Release: pairs with the Acquire in `ZoneView::cuts`.
        self.cutting.store(0, Ordering::Release);
    }

    /// Whether a cut is in progress. Who finds none sees what the last one cleared.
    pub(super) fn is_detaching(&self) -> bool {
        // Acquire: pairs with the Release in `end_detachment`.
        self.cutting.load(Ordering::Acquire) != 0
    }
}

/// How a zone lock was taken. Written by its holder alone.
#[derive(Default)]
pub(crate) struct ZoneLockCounts {
    pub(crate) uses: LockCounters,
    /// Frames that crossed the lock: left the free lists for good, or came back to them.
    pub(crate) pages_moved: AtomicU64,
    /// Those of them that crossed in holds that were timed.
    pages_timed: AtomicU64,
    /// How long it was waited for where somebody else had it; while locks are timed.
    wait: TimeHistogram,
    /// How long it was held; while locks are timed.
    hold: TimeHistogram,
    /// Frames that crossed in one hold, where any did; while locks are timed.
    pages: PageHistogram,
}

all_atomic!(ZoneLockCounts { uses, pages_moved, pages_timed, wait, hold, pages });

impl ZoneLockCounts {
    /// Counts a hold that was timed.
    #[cold]
    pub(crate) fn record(&self, hold: LockHold, held_ns: u64, pages: u64) {
        if let Some(waited_ns) = hold.waited_ns() {
            self.wait.record(waited_ns);
        }
        self.hold.record(held_ns);
        if pages > 0 {
            add_exclusive(&self.pages_timed, pages);
            self.pages.record(pages);
        }
    }

    pub(crate) fn read(&self) -> ZoneLockTelemetry {
        ZoneLockTelemetry {
            uses: self.uses.read(),
            pages_moved: self.pages_moved.load(Ordering::Relaxed),
            pages_timed: self.pages_timed.load(Ordering::Relaxed),
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
    /// Those of them that crossed while locks were timed.
    pub pages_timed: u64,
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
        Self { uses: LockUse::default(), pages_moved: 0, pages_timed: 0, wait_ns: times, hold_ns: times, pages }
    }
}

impl ZoneLockTelemetry {
    /// What was counted here and there.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            uses: self.uses.and(other.uses),
            pages_moved: self.pages_moved.wrapping_add(other.pages_moved),
            pages_timed: self.pages_timed.wrapping_add(other.pages_timed),
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
            pages_timed: self.pages_timed.wrapping_sub(earlier.pages_timed),
            wait_ns: self.wait_ns.since(&earlier.wait_ns),
            hold_ns: self.hold_ns.since(&earlier.hold_ns),
            pages: self.pages.since(&earlier.pages),
        }
    }
}

/// Drains of single frames of one type, under a policy that lets them enter the zone as a cluster.
#[derive(Default)]
pub(crate) struct DrainCounts {
    /// What was taken from a list at once.
    pub(crate) drains: AtomicU64,
    /// Those that were exactly one batch of one type, while merging could be skipped.
    pub(crate) ideal: AtomicU64,
    /// Those that entered as one cluster.
    pub(crate) whole: AtomicU64,
}

all_atomic!(DrainCounts { drains, ideal, whole });

/// Drains of single pages of one type, under a policy that lets them enter a zone as one cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ClusterDrains {
    /// What a drain took from a list at once.
    pub drains: u64,
    /// Those of them that were exactly one batch of one type while merging could be skipped: what the published rule takes.
    pub ideal: u64,
    /// Those that entered as one cluster.
    pub whole: u64,
}

impl DrainCounts {
    fn read(&self) -> ClusterDrains {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClusterDrains { drains: read(&self.drains), ideal: read(&self.ideal), whole: read(&self.whole) }
    }
}

impl ClusterDrains {
    /// What was counted here and there.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            drains: self.drains.wrapping_add(other.drains),
            ideal: self.ideal.wrapping_add(other.ideal),
            whole: self.whole.wrapping_add(other.whole),
        }
    }
}

macro_rules! transfer_counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What policies that put merging off or move clusters did at the border of a zone.
        #[derive(Default)]
        pub(crate) struct MechanismCounts {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
            /// Drains, by the type of the first page's pageblock; the last for types without per-CPU lists.
            pub(crate) drains: [DrainCounts; MigrateType::PER_CPU + 1],
        }

        all_atomic!(MechanismCounts { $($name,)* drains });

        /// What policies that put merging off or move clusters did at the border of a zone, a moment ago. What the policy
        /// in force does not do stays as it is.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct TransferStatistics {
            $($(#[$doc])* pub $name: u64,)*
            /// Drains, by the type of the first page's pageblock; the last for types without per-CPU lists.
            pub drains: [ClusterDrains; MigrateType::PER_CPU + 1],
        }

        impl MechanismCounts {
            pub(crate) fn read(&self) -> TransferStatistics {
                TransferStatistics {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    drains: self.drains.each_ref().map(DrainCounts::read),
                }
            }
        }

        impl TransferStatistics {
            /// What was counted here and there.
            #[must_use]
            pub fn and(&self, other: &Self) -> Self {
                Self {
                    $($name: self.$name.wrapping_add(other.$name),)*
                    drains: core::array::from_fn(|at| self.drains[at].and(&other.drains[at])),
                }
            }
        }
    };
}

transfer_counts! {
    /// Single frames that were freed without a look at their buddies.
    skipped_merges,
    /// Merges of such frames made later, when somebody needed them.
    later_merges,
    /// Clusters cut off their lists by refills.
    cuts,
    /// The pages that they had.
    cut_pages,
}
