//! Marks of threads that get references speculatively, and waiting for them: a grace period, for platforms that turn pages
//! of the memory map into ones that cannot be written.
//!
//! # The hazard
//!
//! Who gets references on a page of a device without a lock reads its count, and where there are some tries an exchange. In
//! between the device may be removed, and its page structures zeroed: the exchange finds another count and changes nothing.
//! But it is a write for the processor, whatever it finds, and it faults where the page cannot be written any more.
//!
//! # Protocol
//!
//! The reader marks itself, then reads the count, exchanges, and takes its mark back. The updater has seen the structures
//! zeroed, makes all threads pass a full barrier, waits for each mark that it finds set to change, and only then makes the
//! pages such that they cannot be written. A full barrier on both sides leaves two cases:
//!
//! - the reader's is first: the updater finds its mark, and waits; or the mark was taken back already, with Release, and the
//!   exchange is over;
//! - the updater's is first: the reader finds the zeroed count, and exchanges nothing.
//!
//! The reader's barrier is nowhere in its code where the updater can make it for all ([`GetMark::begin`]): `membarrier` of
//! Linux, or an interrupt to each processor. It falls somewhere among the reader's instructions. If it falls before the mark
//! is stored, that is the second case, for the count is read later; if behind, the first. So a fence right behind the mark
//! ([`GetMark::begin_fenced`], and all marks of models) allows the same outcomes.
//!
//! In the kernel this is RCU's work: `page_ref_add_unless` is a read-side section, and who remaps tails of huge pages waits
//! for all of them (`synchronize_rcu` in `hugetlb_vmemmap`).

#[cfg(not(loom))]
use crate::sync::compiler_fence;
use crate::sync::{AtomicU64, Ordering, fence};

/// The mark of a thread: odd while it gets references speculatively. On a cache line of its own.
///
/// The owner stores, everybody may look. A section does not begin inside another of the same mark.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct GetMark(AtomicU64);

impl GetMark {
    /// The mark of a thread that gets nothing now.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the mark. The updater makes this thread pass a barrier before it looks: two plain accesses, no fence.
    #[inline(always)]
    pub fn begin(&self) {
        self.step(Ordering::Relaxed);
        // The compiler keeps the order, the updater's barrier makes the processor's irrelevant.
        #[cfg(not(loom))]
        compiler_fence(Ordering::SeqCst);
        #[cfg(loom)]
        modelled_barrier();
    }

    /// Sets the mark where the updater cannot make others pass a barrier: costs a fence.
    #[inline]
    pub fn begin_fenced(&self) {
        self.step(Ordering::Relaxed);
        // Pairs with the fence of the updater.
        fence(Ordering::SeqCst);
    }

    /// Takes the mark back.
    #[inline(always)]
    pub fn end(&self) {
        // Release: pairs with the Acquire in `wait`; the exchange is over.
        self.step(Ordering::Release);
    }

    /// The next number. Only the owner stores, so nothing comes between load and store.
    #[inline(always)]
    fn step(&self, ordering: Ordering) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), ordering);
    }

    /// Waits until what the thread was at, if anything, is over; what it begins later is not waited for.
    ///
    /// The caller has made the thread pass a barrier after it saw the page structures zeroed, or has passed a
    /// sequentially consistent fence himself where threads [fence](Self::begin_fenced). `wait_round` is called
    /// between two looks, with a number that rises from 0, and says whether to go on.
    ///
    /// # Errors
    ///
    /// [`StillGetting`] where it says no.
    pub fn wait(&self, mut wait_round: impl FnMut(u32) -> bool) -> Result<(), StillGetting> {
        // Acquire: pairs with the Release in `end`.
        let seen = self.0.load(Ordering::Acquire);
        if seen.is_multiple_of(2) {
            return Ok(());
        }
        let mut round = 0;
        while self.0.load(Ordering::Acquire) == seen {
            if !wait_round(round) {
                return Err(StillGetting);
            }
            round = round.saturating_add(1);
        }
        Ok(())
    }
}

/// The barrier that the updater makes, at one of the places where it can fall.
#[cfg(loom)]
fn modelled_barrier() {
    if !crate::sync::is_weakened(crate::sync::Weakness::MarksUnordered) {
        fence(Ordering::SeqCst);
    }
}

/// A thread is still at what it was at when the wait for its mark began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StillGetting;

impl core::fmt::Display for StillGetting {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a thread that gets references was stopped while it did: let it run")
    }
}

impl core::error::Error for StillGetting {}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn only_what_had_begun_is_waited_for() {
        let mark = GetMark::new();
        assert_eq!(mark.wait(|_| panic!("nothing has begun")), Ok(()));
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
