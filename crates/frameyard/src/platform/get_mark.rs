//! A grace period for platforms that make pages of the memory map read-only: threads mark themselves while they get a
//! reference speculatively, and the platform waits for the marks.
//!
//! # Hazard
//!
//! A lock-free get on a device page reads the page's count and, if it is not 0, tries to exchange it. In between, the
//! device may be removed and its page structures zeroed. The exchange then fails and changes nothing. But to the
//! processor even a failed exchange is a write, and it faults if the page of the map has become read-only.
//!
//! # Protocol
//!
//! 1. The reader sets its mark, reads the count, exchanges it, and clears its mark.
//! 2. The updater sees the structures zeroed, makes all threads pass a full barrier, waits until each mark that it finds set
//!    has changed, and only then makes the pages read-only.
//!
//! With a full barrier on both sides there are two cases:
//!
//! - The reader's barrier is first. The updater finds the mark set and waits, or the reader has cleared it with Release after
//!   the exchange.
//! - The updater's barrier is first. The reader finds the count zeroed and does not exchange.
//!
//! # Barrier of the reader
//!
//! [`GetMark::begin`] contains no barrier: the updater imposes one on all threads (`membarrier` of Linux, or an interrupt to
//! each processor). It takes effect somewhere among the reader's instructions. Before the store of the mark, it gives the second
//! case, because the count is read later; after the store, the first. A fence right after the store therefore allows the
//! same outcomes ([`GetMark::begin_fenced`], and all marks in models).
//!
//! In the kernel, RCU does this job: `page_ref_add_unless` is called under `rcu_read_lock`, and `hugetlb_vmemmap` calls
//! `synchronize_rcu` before it remaps tails.

use core::ops::Deref;

#[cfg(not(loom))]
use crate::sync::compiler_fence;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::units::messages;

/// The mark of a thread: odd while the thread gets a reference speculatively. It has a cache line of its own.
///
/// Only the thread itself stores to it; any thread may read it. Gets under one mark do not nest.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct GetMark(AtomicU64);

impl GetMark {
    /// A mark of a thread that is not in a get.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the mark, with two plain accesses and no fence. The updater must impose a barrier on this thread.
    #[inline(always)]
    pub fn begin(&self) {
        self.step(Ordering::Relaxed);
        // SeqCst, for the compiler only: pairs with the barrier that the caller of `GetMark::wait` imposes on this thread.
        #[cfg(not(loom))]
        compiler_fence(Ordering::SeqCst);
        #[cfg(loom)]
        if !crate::sync::is_broken!(MarksUnordered) {
            // SeqCst: pairs with the fence that the caller of `GetMark::wait` executes. It stands for the imposed barrier.
            fence(Ordering::SeqCst);
        }
    }

    /// Sets the mark, followed by a fence, for updaters that cannot impose a barrier.
    #[inline]
    pub fn begin_fenced(&self) {
        self.step(Ordering::Relaxed);
        // SeqCst: pairs with the fence that the caller of `GetMark::wait` executes.
        fence(Ordering::SeqCst);
    }

    /// Clears the mark.
    #[inline(always)]
    pub fn end(&self) {
        // Release: pairs with the Acquire in `GetMark::wait`. The exchange is over.
        self.step(Ordering::Release);
    }

    /// Stores the next number. Only the owner stores, so load and store need not be one operation.
    #[inline(always)]
    fn step(&self, ordering: Ordering) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), ordering);
    }

    /// Waits until the thread has finished the get that it is in, if any. Does not wait for gets that begin later.
    ///
    /// Before the call, the caller has seen the page structures zeroed, and then made the thread pass a barrier, or
    /// executed a sequentially consistent fence if threads [fence](Self::begin_fenced). `wait_round` is called between
    /// two reads of the mark with the number of the round, from 0, and returns whether to go on waiting.
    ///
    /// # Errors
    ///
    /// [`StillGetting`] if `wait_round` returns false.
    pub fn wait(&self, mut wait_round: impl FnMut(u32) -> bool) -> Result<(), StillGetting> {
        // Acquire: pairs with the Release in `GetMark::end`.
        let seen = self.0.load(Ordering::Acquire);
        if seen.is_multiple_of(2) {
            return Ok(());
        }
        let mut round = 0;
        // Acquire: pairs with the Release in `GetMark::end`.
        while self.0.load(Ordering::Acquire) == seen {
            if !wait_round(round) {
                return Err(StillGetting);
            }
            round = round.saturating_add(1);
        }
        Ok(())
    }
}

/// Waits until all gets of a process that began before the call have ended.
///
/// The caller has seen the page structures zeroed. `all` copies the list of marks, under the lock that threads hold to
/// register theirs: a thread that registers its mark later sees the zeroes. `impose` then makes all threads pass a
/// barrier: each thread has either set its mark before it, or reads zeroes after it. It does nothing if threads
/// [fence](GetMark::begin_fenced). `wait_round` is that of [`GetMark::wait`].
///
/// # Errors
///
/// That of `impose`, or [`StillGetting`].
pub fn wait_for_gets<L, E>(
    all: impl FnOnce() -> L,
    impose: impl FnOnce() -> Result<(), E>,
    mut wait_round: impl FnMut(u32) -> bool,
) -> Result<(), E>
where
    L: IntoIterator<Item: Deref<Target = GetMark>>,
    E: From<StillGetting>,
{
    let all = all();
    // SeqCst: pairs with the SeqCst in `GetMark::begin_fenced`.
    fence(Ordering::SeqCst);
    impose()?;
    all.into_iter().try_for_each(|mark| Ok(mark.wait(&mut wait_round)?))
}

/// A thread is still in the get that [`GetMark::wait`] waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StillGetting;

messages!(StillGetting { Self => "a thread was stopped while it was getting a page reference: let it run" });

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn waits_only_for_the_get_that_has_begun() {
        let mark = GetMark::new();
        assert_eq!(mark.wait(|_| panic!("no get has begun")), Ok(()));
        mark.begin();
        assert_eq!(mark.wait(|round| round < 3), Err(StillGetting));
        let mut rounds = 0;
        let next_begins = |round| {
            assert_eq!(round, rounds);
            rounds += 1;
            if round == 2 {
                mark.end();
                mark.begin_fenced();
            }
            true
        };
        assert_eq!(mark.wait(next_begins), Ok(()));
        mark.end();
        assert_eq!(rounds, 3);
    }
}
