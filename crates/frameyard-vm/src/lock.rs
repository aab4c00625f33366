//! Locks in words of frames: spinning locks, and the readers-writer lock of an address space's map. Guards release on
//! drop.
//!
//! # Lock order
//!
//! Map of a space (read or write) → file → page table (two only as parent before child) → objects → batch of a CPU →
//! LRU list → the yard's locks (per-CPU list → zone).
//!
//! A page's own lock bit precedes all of them except the map lock, and a CPU waits for it only without a spinning lock
//! held. A CPU that holds one map lock only *tries* the map lock of another space.
//!
//! # Waiting
//!
//! A CPU waits for these locks without a bound: with pauses, then yielding, then sleeping, as the platform implements
//! it. The wait ends because a holder never depends on a CPU without a lock. Under a spinning lock, a holder waits only
//! for spinning locks later in the order. Under a map lock, a holder also waits for a page's own lock, for a migration
//! and for memory, each with a bound and a typed error. The locks are not fair.

use core::fmt;

use frameyard::Platform;
use frameyard::platform::{Access, LineKind, LockId, SharedLine};
use frameyard::sync::{AtomicU32, AtomicU64, Ordering};

/// A held spinning lock. Releases it on drop.
pub(crate) struct Held<'a, P: Platform> {
    platform: &'a P,
    id: LockId,
    word: &'a AtomicU32,
    _guard: P::Guard,
}

impl<'a, P: Platform> Held<'a, P> {
    /// Takes a lock; spins until acquired.
    #[inline(always)]
    pub(crate) fn lock(platform: &'a P, id: LockId, word: &'a AtomicU32) -> Self {
        let guard = platform.guard();
        // Without an error to return, a wait for a process that has ended does not end.
        while platform.lock(id, word).is_err() {}
        Self { platform, id, word, _guard: guard }
    }

    /// Takes a lock if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(platform: &'a P, id: LockId, word: &'a AtomicU32) -> Option<Self> {
        let guard = platform.guard();
        match platform.try_lock(id, word) {
            frameyard::platform::Contention::Free => Some(Self { platform, id, word, _guard: guard }),
            frameyard::platform::Contention::Contended => None,
        }
    }
}

impl<'a, P: Platform> Held<'a, P> {
    /// The platform that observes the work under the lock.
    #[inline(always)]
    pub(crate) fn platform(&self) -> &'a P {
        self.platform
    }
}

impl<P: Platform> Drop for Held<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.platform.unlock(self.id, self.word);
    }
}

impl<P: Platform> fmt::Debug for Held<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.id)
    }
}

const WRITER: u64 = 1 << 63;
const WRITER_WAITS: u64 = 1 << 62;

/// A readers-writer lock in one word: bit 63 set while a writer holds it, bit 62 while a writer waits (which keeps new
/// readers out), the other bits count readers. A thread must not take it for reading twice: a writer that waits between
/// the two would block it forever.
pub(crate) struct MapLock<'a, P> {
    platform: &'a P,
    id: LockId,
    word: &'a AtomicU64,
}

/// Guard of a reader.
pub(crate) struct Reading<'a, P: Platform> {
    lock: MapLock<'a, P>,
}

/// Guard of the writer.
pub(crate) struct Writing<'a, P: Platform> {
    lock: MapLock<'a, P>,
}

impl<P> Clone for MapLock<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for MapLock<'_, P> {}

impl<'a, P: Platform> MapLock<'a, P> {
    #[inline(always)]
    pub(crate) fn new(platform: &'a P, id: LockId, word: &'a AtomicU64) -> Self {
        Self { platform, id, word }
    }

    /// Reports an access to the word to the platform.
    #[inline(always)]
    fn touch(&self) {
        self.platform.touch_line(SharedLine::of(LineKind::MapLock, self.word), Access::ReadModifyWrite);
    }

    /// Takes the lock for reading unless a writer holds it or waits for it.
    #[inline(always)]
    pub(crate) fn try_read(&self) -> Option<Reading<'a, P>> {
        self.read_unless_writer().ok()
    }

    /// Takes the lock for reading; `Err` with the word that shows the writer.
    #[inline(always)]
    fn read_unless_writer(&self) -> Result<Reading<'a, P>, u64> {
        self.touch();
        let mut found = self.word.load(Ordering::Relaxed);
        while found & (WRITER | WRITER_WAITS) == 0 {
            // Acquire: pairs with the Release in `Writing::drop`.
            match self.word.compare_exchange_weak(found, found + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Reading { lock: *self }),
                Err(other) => found = other,
            }
            self.touch();
        }
        Err(found)
    }

    /// Takes the lock for reading; waits for writers.
    #[inline(always)]
    pub(crate) fn read(&self) -> Reading<'a, P> {
        let mut round = 0;
        loop {
            match self.read_unless_writer() {
                Ok(reading) => return reading,
                Err(found) => self.platform.wait_for_change(self.id, self.word, found, round),
            }
            round = round.saturating_add(1);
        }
    }

    /// Takes the lock for writing; waits for readers and writers.
    #[inline]
    pub(crate) fn write(&self) -> Writing<'a, P> {
        let mut round = 0;
        loop {
            self.touch();
            let found = self.word.load(Ordering::Relaxed);
            let is_free = found & !WRITER_WAITS == 0;
            let wanted = if is_free { WRITER } else { found | WRITER_WAITS };
            // Acquire: pairs with the Release in `Reading::drop` and `Writing::drop`.
            let done = found == wanted
                || self.word.compare_exchange_weak(found, wanted, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if is_free && done {
                return Writing { lock: *self };
            }
            // A failed exchange means that the word changed, which ends the wait.
            self.platform.wait_for_change(self.id, self.word, wanted, round);
            round = round.saturating_add(1);
        }
    }
}

impl<P: Platform> Drop for Reading<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        let MapLock { platform, id, word } = self.lock;
        self.lock.touch();
        // Release: pairs with the Acquire in `write`.
        let before = word.fetch_sub(1, Ordering::Release);
        // Only a writer waits for readers.
        if before == WRITER_WAITS | 1 {
            platform.wake_waiters(id, word);
        }
    }
}

impl<P: Platform> Drop for Writing<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        let MapLock { platform, id, word } = self.lock;
        self.lock.touch();
        // Release: pairs with the Acquire in `read_unless_writer` and `write`. Another waiting writer sets its bit again.
        word.store(0, Ordering::Release);
        platform.wake_waiters(id, word);
    }
}
