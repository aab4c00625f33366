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
//! A CPU waits with pauses, then yielding, then sleeping, as the platform implements it. The wait ends because a holder
//! never depends on a CPU without a lock. Under a spinning lock, a holder waits only for spinning locks later in the
//! order. Under a map lock, a holder also waits for a page's own lock, for a migration and for memory, each with a bound
//! and a typed error. The locks are not fair.
//!
//! # Processes
//!
//! In a shared yard a holder may end or stop. The word of a spinning lock names it, and so does the word of a map lock
//! that is held for writing. Readers of a map lock name their processes in words of their own beside it ([`Readers`]).
//! So each wait ends in a [`LockError`] as [`Platform::lock`] describes.

use core::fmt;
use core::num::NonZeroU32;

use frameyard::Platform;
use frameyard::platform::{Access, Contention, LineKind, LockError, LockId, Probe, SharedLine};
use frameyard::sync::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
use frameyard::sync::{Weakness, is_weakened};

use crate::words::Words;

/// A held spinning lock. Releases it on drop.
pub(crate) struct Held<'a, P: Platform> {
    platform: &'a P,
    id: LockId,
    word: &'a AtomicU32,
    _guard: P::Guard,
}

impl<'a, P: Platform> Held<'a, P> {
    /// Takes a lock; spins until acquired, or until the platform gives up.
    #[inline(always)]
    pub(crate) fn lock(platform: &'a P, id: LockId, word: &'a AtomicU32) -> Result<Self, LockError> {
        let guard = platform.guard();
        platform.lock(id, word)?;
        Ok(Self { platform, id, word, _guard: guard })
    }

    /// Takes a lock if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(platform: &'a P, id: LockId, word: &'a AtomicU32) -> Option<Self> {
        let guard = platform.guard();
        match platform.try_lock(id, word) {
            Contention::Free => Some(Self { platform, id, word, _guard: guard }),
            Contention::Contended => None,
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
/// Rounds after which a reader no longer believes that a writer waits for a lock that is free.
const FORGET_WRITER: u32 = 128;

/// Whether a broken model names readers after they are counted.
#[inline(always)]
fn is_late() -> bool {
    #[cfg(loom)]
    return is_weakened(Weakness::ReadersNamedLate);
    #[cfg(not(loom))]
    false
}

/// The holder that a lock word names when the caller takes it: its process, or any in a private yard.
#[inline(always)]
pub(crate) fn own_name<P: Platform>(platform: &P) -> u32 {
    platform.process().map_or(1, NonZeroU32::get)
}

/// Words of a map lock: the lock itself, then the readers.
pub(crate) const MAP_LOCK_WORDS: usize = 1 + READERS;
/// Processes that can read a map at once in a shared yard. Readers of further processes wait.
const READERS: usize = 7;

/// A readers-writer lock: bit 63 set while a writer holds it, bit 62 while a writer waits (which keeps new readers out).
/// The other bits count readers, or name the process of the writer. A thread must not take it for reading twice: a writer
/// that waits between the two would block it forever.
pub(crate) struct MapLock<'a, P> {
    platform: &'a P,
    id: LockId,
    words: Words<'a>,
}

/// Guard of a reader.
pub(crate) struct Reading<'a, P: Platform> {
    lock: MapLock<'a, P>,
    named: Option<&'a AtomicU64>,
}

/// Guard of the writer.
pub(crate) struct Writing<'a, P: Platform> {
    lock: MapLock<'a, P>,
}

/// The processes that read a map of a shared yard: a word each, with the process in the high half and the number of its
/// readers in the low half. Behind the word of the lock.
///
/// A reader counts itself here before it counts itself in the word of the lock, and removes itself afterwards. So every
/// reader that a writer waits for has its process here.
#[derive(Clone, Copy)]
struct Readers<'a>(Words<'a>);

impl<'a> Readers<'a> {
    fn words(self) -> impl Iterator<Item = &'a AtomicU64> {
        (1..=READERS).map(move |at| self.0.at(at))
    }

    /// Counts a reader of a process; `None` if seven other processes read.
    #[inline]
    fn enter(self, process: u32) -> Option<&'a AtomicU64> {
        let own = u64::from(process) << 32;
        let more = |found: u64| match found {
            0 => Some(own + 1),
            _ if found & !u64::from(u32::MAX) == own && found as u32 != u32::MAX => Some(found + 1),
            _ => None,
        };
        // Release: pairs with the Acquire in `named`, a look at the names of a count. Readers order their accesses by the word of
        // the lock.
        self.words().find(|word| word.fetch_update(Ordering::Release, Ordering::Relaxed, more).is_ok())
    }

    /// Removes a reader.
    #[inline]
    fn leave(word: &AtomicU64) {
        let less = |found: u64| match found as u32 {
            0 => None,
            1 => Some(0),
            _ => Some(found - 1),
        };
        // A word that another process has damaged stays as it is.
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The processes of the readers.
    fn named(self) -> impl Iterator<Item = (u32, &'a AtomicU64)> {
        // Acquire: pairs with the Release in `enter`.
        self.words()
            .map(|word| ((word.load(Ordering::Acquire) >> 32) as u32, word))
            .filter(|(process, _)| *process != 0)
    }
}

impl<P> Clone for MapLock<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for MapLock<'_, P> {}

impl<'a, P: Platform> MapLock<'a, P> {
    /// The lock in these words.
    #[inline(always)]
    pub(crate) fn new(platform: &'a P, id: LockId, words: Words<'a>) -> Self {
        Self { platform, id, words }
    }

    #[inline(always)]
    fn word(&self) -> &'a AtomicU64 {
        self.words.at(0)
    }

    #[inline(always)]
    fn readers(&self) -> Readers<'a> {
        Readers(self.words)
    }

    /// Reports an access to the word to the platform.
    #[inline(always)]
    fn touch(&self) {
        self.platform.probe().touch_line(SharedLine::of(LineKind::MapLock, self.word()), Access::ReadModifyWrite);
    }

    /// Takes the lock for reading unless a writer holds it or waits for it.
    #[inline(always)]
    pub(crate) fn try_read(&self) -> Option<Reading<'a, P>> {
        let named = self.enter_unless_writer().ok()?;
        Some(Reading { lock: *self, named })
    }

    /// Counts the caller as a reader, and returns the word that names its process; `Err` with the word of the lock if a writer is
    /// there, or too many processes read.
    #[inline(always)]
    fn enter_unless_writer(&self) -> Result<Option<&'a AtomicU64>, u64> {
        self.touch();
        let mut found = self.word().load(Ordering::Relaxed);
        let named = match self.platform.process() {
            None => None,
            Some(_) if found & (WRITER | WRITER_WAITS) != 0 => return Err(found),
            Some(_) if is_late() => None,
            Some(process) => Some(self.readers().enter(process.get()).ok_or(found)?),
        };
        while found & (WRITER | WRITER_WAITS) == 0 {
            // Acquire: pairs with the Release in `Writing::drop`. Release: pairs with the Acquire in `write`, so that a writer that
            // waits for this reader finds its name.
            match self.word().compare_exchange_weak(found, found + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if is_late() => {
                    return Ok(self.platform.process().and_then(|own| self.readers().enter(own.get())));
                }
                Ok(_) => return Ok(named),
                Err(other) => found = other,
            }
            self.touch();
        }
        named.inspect(|word| Readers::leave(word));
        Err(found)
    }

    /// Takes the lock for reading; waits for writers.
    ///
    /// # Errors
    ///
    /// [`LockError`] if the writer, or a reader that a writer waits for, has ended or does not go on.
    #[inline(always)]
    pub(crate) fn read(&self) -> Result<Reading<'a, P>, LockError> {
        let named = match self.enter_unless_writer() {
            Ok(named) => named,
            Err(found) => self.enter_after_writers(found)?,
        };
        Ok(Reading { lock: *self, named })
    }

    #[cold]
    fn enter_after_writers(&self, mut found: u64) -> Result<Option<&'a AtomicU64>, LockError> {
        let mut round = 0;
        loop {
            self.wait(found, round)?;
            match self.enter_unless_writer() {
                Ok(named) => return Ok(named),
                Err(other) => found = other,
            }
            round = round.saturating_add(1);
        }
    }

    /// Takes the lock for writing; waits for readers and writers.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    #[inline]
    pub(crate) fn write(&self) -> Result<Writing<'a, P>, LockError> {
        let held = WRITER | u64::from(own_name(self.platform));
        let mut round = 0;
        loop {
            self.touch();
            // Acquire: pairs with the Release in `enter_unless_writer`: another writer may have set the bit.
            let found = self.word().load(Ordering::Acquire);
            let is_free = found & !WRITER_WAITS == 0;
            let wanted = if is_free { held } else { found | WRITER_WAITS };
            // Acquire: pairs with the Release in `Reading::drop`, `Writing::drop` and `enter_unless_writer`.
            let done = found == wanted
                || self.word().compare_exchange_weak(found, wanted, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if is_free && done {
                return Ok(Writing { lock: *self });
            }
            // A failed exchange means that the word changed, which ends the wait.
            if let Err(error) = self.wait(wanted, round) {
                // Other waiting writers set the bit again.
                self.word().fetch_and(!WRITER_WAITS, Ordering::Relaxed);
                self.platform.wake_waiters(self.id, self.word());
                return Err(error);
            }
            round = round.saturating_add(1);
        }
    }

    /// Waits while the word is `seen`.
    #[cold]
    fn wait(&self, seen: u64, round: u32) -> Result<(), LockError> {
        self.platform.wait_for_change(self.id, self.word(), seen, round);
        if self.platform.process().is_none() {
            return Ok(());
        }
        if seen == WRITER_WAITS && round >= FORGET_WRITER {
            // The waiting writer may have ended. A living one sets the bit again.
            let _ = self.word().compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed);
            return Ok(());
        }
        if seen & WRITER != 0 {
            let still = || (self.word().load(Ordering::Relaxed) ^ seen) & !WRITER_WAITS == 0;
            return self.platform.check_holder(self.id, seen as u32, round, &still);
        }
        self.check_readers(round)
    }

    /// Fails if a process that reads the map has died, or the wait has reached its limit.
    pub(crate) fn check_readers(&self, round: u32) -> Result<(), LockError> {
        let mut named = 0;
        for (process, word) in self.readers().named() {
            named = process;
            let still = || word.load(Ordering::Relaxed) >> 32 == u64::from(process);
            self.platform.check_holder(self.id, process, round, &still)?;
        }
        if named == 0 { self.platform.check_holder(self.id, 0, round, &|| false) } else { Ok(()) }
    }
}

impl<P: Platform> Drop for Reading<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        let (MapLock { platform, id, .. }, word) = (self.lock, self.lock.word());
        self.lock.touch();
        // Release: pairs with the Acquire in `write`.
        let before = word.fetch_sub(1, Ordering::Release);
        self.named.inspect(|word| Readers::leave(word));
        // Only a writer waits for readers.
        if before == WRITER_WAITS | 1 {
            platform.wake_waiters(id, word);
        }
    }
}

impl<P: Platform> Drop for Writing<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        let (MapLock { platform, id, .. }, word) = (self.lock, self.lock.word());
        self.lock.touch();
        // Release: pairs with the Acquire in `enter_unless_writer` and `write`. Another waiting writer sets its bit again.
        word.store(0, Ordering::Release);
        platform.wake_waiters(id, word);
    }
}
