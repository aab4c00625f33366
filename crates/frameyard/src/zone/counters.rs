//! Counters of transfers between per-CPU lists and a zone: lock use, and what the mechanisms count.
//!
//! A zone has one [`TransferCounters`] for each CPU, and one of its own for everything that does not come from a CPU's
//! lists. A CPU's counters change under the lock of that CPU's lists, except that their
//! [`lock`](TransferCounters::lock) part changes under the zone lock. The zone's own counters change under the zone
//! lock. So all of them can use plain loads and stores ([`add_exclusive`](super::exclusive::add_exclusive)).

use crate::locks::{HistogramCounts, LockCounters, LockHold, LockUse, PageHistogram, TimeHistogram};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::zone::exclusive::add_exclusive;
use crate::zone::mechanisms::MechanismCounts;

/// What is counted for one CPU in one zone, or for all that does not come from a CPU's lists.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct TransferCounters {
    /// 1 while the CPU has pages that look free and are on no list. Changes under the lock of the CPU's lists; 0 in the zone's
    /// own counters. On the cache line that every hold of the zone lock writes.
    in_progress: AtomicU32,
    /// How the zone lock was taken.
    pub(crate) lock: ZoneLockCounts,
    /// What the transfer mechanisms count.
    pub(crate) mechanisms: MechanismCounts,
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(TransferCounters, lock) == 8, "two words of 32 bits come first");

all_atomic!(TransferCounters { in_progress, lock, mechanisms });

impl TransferCounters {
    /// Announces pages that look free and are on no list. The caller holds the lock of the CPU's lists and has announced no
    /// other pages; to take pages off a list it calls this under the zone lock.
    #[inline(always)]
    pub(crate) fn begin_detachment(&self) {
        self.in_progress.store(1, Ordering::Relaxed);
    }

    /// Ends the detachment: its pages are cleared or on a list.
    #[inline(always)]
    pub(crate) fn end_detachment(&self) {
        // Release: pairs with the Acquire in `TransferCounters::is_detaching`.
        self.in_progress.store(0, Ordering::Release);
    }

    /// Whether a detachment is in progress. A caller that finds none sees what the last one cleared.
    pub(crate) fn is_detaching(&self) -> bool {
        // Acquire: pairs with the Release in `TransferCounters::end_detachment`.
        self.in_progress.load(Ordering::Acquire) != 0
    }
}

/// How a zone lock was taken. Written by its holder.
#[derive(Default)]
pub(crate) struct ZoneLockCounts {
    pub(crate) uses: LockCounters,
    /// Frames moved under the lock: that left the free lists for good, or came back to them.
    pub(crate) pages_moved: AtomicU64,
    /// The part of them that moved in timed holds.
    pages_timed: AtomicU64,
    /// Time spent waiting for a holder, while locks are timed.
    wait: TimeHistogram,
    /// Time held, while locks are timed.
    hold: TimeHistogram,
    /// Frames moved in one hold, for holds that moved any, while locks are timed.
    pages: PageHistogram,
}

all_atomic!(ZoneLockCounts { uses, pages_moved, pages_timed, wait, hold, pages });

impl ZoneLockCounts {
    /// Counts a timed hold.
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

/// How a zone lock was taken: for one CPU's lists, for callers without lists, or in total. Possibly stale.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ZoneLockTelemetry {
    /// Acquisitions, contended acquisitions, and total time waited and held.
    pub uses: LockUse,
    /// Frames moved under it, in either direction.
    pub pages_moved: u64,
    /// The part of `pages_moved` that moved while locks were timed.
    pub pages_timed: u64,
    /// Time spent waiting for a holder, while locks were timed.
    pub wait_ns: HistogramCounts,
    /// Time held, while locks were timed.
    pub hold_ns: HistogramCounts,
    /// Frames moved in one hold, for holds that moved any, while locks were timed.
    pub pages: HistogramCounts,
}

impl Default for ZoneLockTelemetry {
    fn default() -> Self {
        let (times, pages) = (HistogramCounts::of_times(), HistogramCounts::of_pages());
        Self { uses: LockUse::default(), pages_moved: 0, pages_timed: 0, wait_ns: times, hold_ns: times, pages }
    }
}

impl ZoneLockTelemetry {
    /// The sum of two counts.
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

    /// The difference from an earlier reading.
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
