//! Locks with counters of acquisitions and of the time waited and held. Zones and LRU lists use them.

use crate::platform::{Access, Contention, LineKind, LockError, LockId, Platform, Probe, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};

mod histogram;

pub use histogram::HistogramCounts;
pub(crate) use histogram::{PageHistogram, TimeHistogram};

/// A lock word on its own line, so that waiters that read it do not slow the holder down.
#[repr(C, align(64))]
#[derive(Default, Debug)]
pub(crate) struct LockLine(pub(crate) AtomicU32);

all_atomic!(LockLine { 0 });

/// The counters of a lock. Only its holder writes them, with plain loads and stores.
#[repr(C)]
#[derive(Default, Debug)]
pub struct LockCounters {
    acquisitions: AtomicU64,
    contended: AtomicU64,
    wait_ns: AtomicU64,
    hold_ns: AtomicU64,
}

all_atomic!(LockCounters { acquisitions, contended, wait_ns, hold_ns });

/// A reading of a lock's counters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LockUse {
    /// Acquisitions.
    pub acquisitions: u64,
    /// Acquisitions that found the lock held.
    pub contended: u64,
    /// Nanoseconds spent waiting for the lock, while locks were timed
    /// ([`Probe::lock_clock_ns`]).
    pub wait_ns: u64,
    /// Nanoseconds for which the lock was held, while locks were timed.
    pub hold_ns: u64,
}

impl LockUse {
    /// The difference from an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.combined(earlier, u64::wrapping_sub)
    }

    /// The sum of this reading and that of another lock.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.combined(other, u64::wrapping_add)
    }

    fn combined(self, other: Self, by: fn(u64, u64) -> u64) -> Self {
        Self {
            acquisitions: by(self.acquisitions, other.acquisitions),
            contended: by(self.contended, other.contended),
            wait_ns: by(self.wait_ns, other.wait_ns),
            hold_ns: by(self.hold_ns, other.hold_ns),
        }
    }
}

/// One hold of a lock, with the times that [`LockCounters::unlock`] needs.
#[derive(Clone, Copy, Debug)]
pub struct LockHold {
    since_ns: Option<u64>,
    waited_ns: Option<u64>,
}

impl LockHold {
    /// The time spent waiting, if the lock was held and locks are timed.
    pub(crate) fn waited_ns(self) -> Option<u64> {
        self.waited_ns
    }
}

impl LockCounters {
    /// Takes a lock, spinning until it has it, and counts the acquisition.
    ///
    /// # Errors
    ///
    /// As [`Platform::lock`].
    #[inline]
    pub fn lock<P: Platform>(&self, platform: &P, id: LockId, word: &AtomicU32) -> Result<LockHold, LockError> {
        let asked_ns = platform.probe().lock_clock_ns();
        let contention = platform.lock(id, word)?;
        self.touch(platform, id);
        // The wait for the line of the counters is waiting time, not holding time.
        Ok(self.count(contention, asked_ns, platform.probe().lock_clock_ns()))
    }

    /// Takes a lock if it is free, and counts the acquisition; `None` if the lock is held.
    #[inline]
    pub fn try_lock<P: Platform>(&self, platform: &P, id: LockId, word: &AtomicU32) -> Option<LockHold> {
        if platform.try_lock(id, word) == Contention::Contended {
            return None;
        }
        self.touch(platform, id);
        Some(self.count(Contention::Free, None, platform.probe().lock_clock_ns()))
    }

    /// Announces a use of the counters.
    #[inline(always)]
    fn touch<P: Platform>(&self, platform: &P, id: LockId) {
        let kind = if matches!(id, LockId::LruShard(..)) { LineKind::LruLists } else { LineKind::ZoneCounters };
        platform.probe().touch_line(SharedLine::of(kind, self), Access::Write);
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

    /// Releases a lock that [`lock`](Self::lock) or [`try_lock`](Self::try_lock) took.
    #[inline]
    pub fn unlock<P: Platform>(&self, platform: &P, id: LockId, word: &AtomicU32, hold: LockHold) {
        self.count_hold(platform, hold);
        platform.unlock(id, word);
    }

    /// Counts a hold that is about to end; its length, if locks are timed. The caller then releases the lock.
    #[inline(always)]
    pub(crate) fn count_hold<P: Platform>(&self, platform: &P, hold: LockHold) -> Option<u64> {
        let (since, now) = hold.since_ns.zip(platform.probe().lock_clock_ns())?;
        let held_ns = now.saturating_sub(since);
        add(&self.hold_ns, held_ns);
        Some(held_ns)
    }

    /// Reads the counters.
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

/// Adds to a counter that only the holder of a lock changes.
#[inline(always)]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}
