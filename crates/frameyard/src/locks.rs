//! Locks that count who takes them and how long they wait and hold: of zones, and of the lists of used pages.

use crate::platform::{Access, Contention, LineKind, LockId, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};

mod histogram;

pub use histogram::HistogramCounts;
pub(crate) use histogram::{PageHistogram, TimeHistogram};

/// A lock word, alone on its line: waiters that look at it disturb nothing.
#[repr(C, align(64))]
#[derive(Default, Debug)]
pub(crate) struct LockLine(pub(crate) AtomicU32);

all_atomic!(LockLine { 0 });

/// What is counted of a lock. Written by its holder alone, with plain loads and stores.
#[repr(C)]
#[derive(Default, Debug)]
pub struct LockCounters {
    acquisitions: AtomicU64,
    contended: AtomicU64,
    wait_ns: AtomicU64,
    hold_ns: AtomicU64,
}

all_atomic!(LockCounters { acquisitions, contended, wait_ns, hold_ns });

/// What was counted of a lock, a moment ago.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LockUse {
    /// Times it was taken.
    pub acquisitions: u64,
    /// Times somebody held it when it was asked for.
    pub contended: u64,
    /// Nanoseconds that was waited for it, while locks were timed ([`Probe::lock_clock_ns`](crate::platform::Probe::lock_clock_ns)).
    pub wait_ns: u64,
    /// Nanoseconds it was held, while locks were timed.
    pub hold_ns: u64,
}

impl LockUse {
    /// What happened since an earlier look.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            acquisitions: self.acquisitions.wrapping_sub(earlier.acquisitions),
            contended: self.contended.wrapping_sub(earlier.contended),
            wait_ns: self.wait_ns.wrapping_sub(earlier.wait_ns),
            hold_ns: self.hold_ns.wrapping_sub(earlier.hold_ns),
        }
    }

    /// What happened at this lock and at another.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            acquisitions: self.acquisitions.wrapping_add(other.acquisitions),
            contended: self.contended.wrapping_add(other.contended),
            wait_ns: self.wait_ns.wrapping_add(other.wait_ns),
            hold_ns: self.hold_ns.wrapping_add(other.hold_ns),
        }
    }
}

/// A counted lock that was taken: what [`LockCounters::unlock`] needs to know.
#[derive(Clone, Copy, Debug)]
pub struct LockHold {
    since_ns: Option<u64>,
    waited_ns: Option<u64>,
}

impl LockHold {
    /// How long the lock was waited for, where somebody else held it and locks are timed.
    pub(crate) fn waited_ns(self) -> Option<u64> {
        self.waited_ns
    }
}

impl LockCounters {
    /// Takes a lock, waiting for it, and counts.
    #[inline]
    pub fn lock<P: Platform>(&self, platform: &P, id: LockId, word: &AtomicU32) -> LockHold {
        let asked_ns = platform.lock_clock_ns();
        let contention = platform.lock(id, word);
        let kind = if matches!(id, LockId::LruShard(..)) { LineKind::LruLists } else { LineKind::ZoneCounters };
        platform.touch_line(SharedLine::of(kind, self), Access::Write);
        // What is waited for the lock's line is not held.
        self.count(contention, asked_ns, platform.lock_clock_ns())
    }

    /// Takes a lock if it is free, and counts; `None` where it is not.
    #[inline]
    pub fn try_lock<P: Platform>(&self, platform: &P, id: LockId, word: &AtomicU32) -> Option<LockHold> {
        match platform.try_lock(id, word) {
            Contention::Free => Some(self.count(Contention::Free, None, platform.lock_clock_ns())),
            Contention::Contended => None,
        }
    }

    #[inline(always)]
    fn count(&self, contention: Contention, asked_ns: Option<u64>, since_ns: Option<u64>) -> LockHold {
        add(&self.acquisitions, 1);
        let mut waited_ns = None;
        if contention == Contention::Contended {
            add(&self.contended, 1);
            if let Some((asked, got)) = asked_ns.zip(since_ns) {
                waited_ns = Some(got.saturating_sub(asked));
                add(&self.wait_ns, got.saturating_sub(asked));
            }
        }
        LockHold { since_ns, waited_ns }
    }

    /// Gives a lock back that was taken by [`lock`](Self::lock) or [`try_lock`](Self::try_lock).
    #[inline]
    pub fn unlock<P: Platform>(&self, platform: &P, id: LockId, word: &AtomicU32, hold: LockHold) {
        self.count_hold(platform, hold);
        platform.unlock(id, word);
    }

    /// Counts a hold that is about to end: how long it was, where it was timed. Who calls this gives the lock back himself.
    #[inline(always)]
    pub(crate) fn count_hold<P: Platform>(&self, platform: &P, hold: LockHold) -> Option<u64> {
        let (since, now) = hold.since_ns.zip(platform.lock_clock_ns())?;
        let held_ns = now.saturating_sub(since);
        add(&self.hold_ns, held_ns);
        Some(held_ns)
    }

    /// What was counted, a moment ago.
    #[must_use]
    pub fn read(&self) -> LockUse {
        LockUse {
            acquisitions: self.acquisitions.load(Ordering::Relaxed),
            contended: self.contended.load(Ordering::Relaxed),
            wait_ns: self.wait_ns.load(Ordering::Relaxed),
            hold_ns: self.hold_ns.load(Ordering::Relaxed),
        }
    }
}

/// Adds to a counter that the holder of a lock alone changes.
#[inline(always)]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}
