//! Locks in words: spinning ones, given back when dropped, and the readers-writer lock of an address space's map.
//!
//! # Lock order
//!
//! Map of a space (read or write) → file → page table (two of them only parent before child) → objects → batch of a CPU →
//! list of used pages → the yard's own (per-CPU list → zone). A page's own lock bit is taken before all of them but the
//! map, waited for only while no spinning lock is held. Whoever holds a map and needs that of another space only *tries*.
//!
//! # Waiting
//!
//! These locks are waited for without a count of rounds: with pauses, then yielding, then sleeping, as the platform has
//! it. That ends, for whoever holds one comes to an end without anybody who holds none: under a spinning lock nobody waits
//! but for spinning locks further down; under a map's also for a page's own lock, for a page that is being moved, and for
//! memory, each for a bounded time and with a typed way out. Locks are not fair: who waits may see others come first.

use core::fmt;

use frameyard::Platform;
use frameyard::platform::{Access, LineKind, LockId, SharedLine};
use frameyard::sync::{AtomicU32, AtomicU64, Ordering};

/// A spinning lock that is held; given back when dropped.
pub(crate) struct Held<'a, P: Platform> {
    platform: &'a P,
    id: LockId,
    word: &'a AtomicU32,
    _guard: P::Guard,
}

impl<'a, P: Platform> Held<'a, P> {
    /// Takes a lock, waiting for it.
    #[inline(always)]
    pub(crate) fn lock(platform: &'a P, id: LockId, word: &'a AtomicU32) -> Self {
        let guard = platform.guard();
        platform.lock(id, word);
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
    /// What is told of what is done under the lock.
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

/// A readers-writer lock in one word: bit 63 a writer has it, bit 62 one waits (and new readers stay out), the rest counts
/// readers. A thread must not take it for reading twice: a writer that waits between would stop it for ever.
pub(crate) struct MapLock<'a, P> {
    platform: &'a P,
    id: LockId,
    word: &'a AtomicU64,
}

/// Somebody reads what the lock guards.
pub(crate) struct Reading<'a, P: Platform> {
    lock: MapLock<'a, P>,
}

/// Somebody alone writes what the lock guards.
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

    /// Tells the platform that the word is about to be exchanged.
    #[inline(always)]
    fn touch(&self) {
        self.platform.touch_line(SharedLine::of(LineKind::MapLock, self.word), Access::ReadModifyWrite);
    }

    /// Gets in as a reader if no writer has it or waits for it.
    #[inline(always)]
    pub(crate) fn try_read(&self) -> Option<Reading<'a, P>> {
        self.get_in().ok()
    }

    /// Gets in as a reader; `Err` with the word that says why not.
    #[inline(always)]
    fn get_in(&self) -> Result<Reading<'a, P>, u64> {
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

    /// Gets in as a reader, waiting for writers.
    #[inline(always)]
    pub(crate) fn read(&self) -> Reading<'a, P> {
        let mut round = 0;
        loop {
            match self.get_in() {
                Ok(reading) => return reading,
                Err(found) => self.platform.wait_for_change(self.id, self.word, found, round),
            }
            round = round.saturating_add(1);
        }
    }

    /// Gets in as a writer, waiting for all others.
    #[inline]
    pub(crate) fn write(&self) -> Writing<'a, P> {
        let mut round = 0;
        loop {
            self.touch();
            let found = self.word.load(Ordering::Relaxed);
            let nobody = found & !WRITER_WAITS == 0;
            let wanted = if nobody { WRITER } else { found | WRITER_WAITS };
            // Acquire: pairs with the Release in `Reading::drop` and `Writing::drop`.
            let done = found == wanted
                || self.word.compare_exchange_weak(found, wanted, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if nobody && done {
                return Writing { lock: *self };
            }
            // Where the exchange failed the word is another by now, which ends the wait.
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
        // Nobody waits for readers but a writer.
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
        // Release: pairs with the Acquire in `get_in` and `write`. Another writer that waits says so again.
        word.store(0, Ordering::Release);
        platform.wake_waiters(id, word);
    }
}
