//! Purges and forks wait for each other.
//!
//! A purge takes extents from an arena and returns them to the yard one by one. A child that is forked meanwhile has no use of them.
//!
//! Both sides count themselves and then look at the other side's count. Each count changes and is read by additions alone, so all
//! accesses to one have an order. If a purge looks before a fork counts itself, that fork's addition follows, acquires what the purge
//! released, and sees its count.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Whether the process is a forked child.
static IS_FORKED: AtomicBool = AtomicBool::new(false);
static GATE: Gate<AtomicU32> = Gate { purging: AtomicU32::new(0), forking: AtomicU32::new(0) };

/// After this number of rounds, a thread that waits sleeps a millisecond in each. Before, it lets another thread run.
const YIELDS: u32 = 16;

/// A count of threads.
trait Count {
    /// Adds with wrapping, and returns the count before. Acquires and releases.
    fn add(&self, number: u32) -> u32;
    /// The count. Possibly stale.
    fn racy(&self) -> u32;
    /// Waits a little.
    fn pause(round: u32);
}

impl Count for AtomicU32 {
    fn add(&self, number: u32) -> u32 {
        // AcqRel: pairs with itself in `add`, of another thread.
        self.fetch_add(number, Ordering::AcqRel)
    }

    fn racy(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    fn pause(round: u32) {
        pause(round);
    }
}

/// The threads on each side.
struct Gate<C> {
    purging: C,
    forking: C,
}

impl<C: Count> Gate<C> {
    fn begin_purge(&self) {
        Self::wait_until(|| {
            // Not counted while it waits: forks wait for what is counted.
            if self.forking.add(0) > 0 {
                return false;
            }
            self.purging.add(1);
            let is_free = self.forking.add(0) == 0;
            if !is_free {
                self.end_purge();
            }
            is_free
        });
    }

    fn end_purge(&self) {
        self.purging.add(1_u32.wrapping_neg());
    }

    fn begin_fork(&self) {
        self.forking.add(1);
        Self::wait_until(|| self.purging.add(0) == 0);
    }

    fn end_fork(&self) {
        self.forking.add(1_u32.wrapping_neg());
    }

    /// Calls `is_done` until it returns true. Bounded by the length of a fork or of a purge.
    fn wait_until(is_done: impl Fn() -> bool) {
        for round in 0.. {
            if is_done() {
                break;
            }
            C::pause(round);
        }
    }
}

/// Counts the thread among those that purge, when none forks.
pub(crate) fn begin_purge() {
    GATE.begin_purge();
}

pub(crate) fn end_purge() {
    GATE.end_purge();
}

/// Whether a thread purges. Possibly stale.
pub(crate) fn is_purging() -> bool {
    GATE.purging.racy() > 0
}

/// Waits for threads that purge. None begins until [`end_fork`].
pub(crate) fn begin_fork() {
    GATE.begin_fork();
}

pub(crate) fn end_fork() {
    GATE.end_fork();
}

/// As [`end_fork`], in a child, where no other thread exists.
pub(crate) fn end_fork_in_child() {
    GATE.forking.store(0, Ordering::Relaxed);
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Whether the process is a forked child.
pub(crate) fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// A round of waiting.
pub(crate) fn pause(round: u32) {
    if round < YIELDS { thread::yield_now() } else { thread::sleep(Duration::from_millis(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a call still waits after a while.
    fn waits(call: &thread::JoinHandle<()>) -> bool {
        thread::sleep(Duration::from_millis(20));
        !call.is_finished()
    }

    #[test]
    fn a_fork_waits_for_a_purge_and_a_purge_for_a_fork() {
        begin_purge();
        let fork = thread::spawn(begin_fork);
        assert!(waits(&fork) && is_purging());
        end_purge();
        fork.join().unwrap();
        let purge = thread::spawn(begin_purge);
        assert!(waits(&purge));
        end_fork();
        purge.join().unwrap();
        end_purge();
        assert!(!is_purging());
    }
}

#[cfg(test)]
mod loom_models {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::AtomicU32;

    use super::*;

    /// A count of a model. A flawed one has no order.
    struct ModelCount<const FLAWED: bool>(AtomicU32);

    impl<const FLAWED: bool> Count for ModelCount<FLAWED> {
        fn add(&self, number: u32) -> u32 {
            match (FLAWED, number) {
                (false, _) => self.0.fetch_add(number, Ordering::AcqRel),
                (true, 0) => self.0.load(Ordering::Acquire),
                (true, _) => self.0.fetch_add(number, Ordering::Release),
            }
        }

        fn racy(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }

        fn pause(_round: u32) {
            loom::thread::yield_now();
        }
    }

    /// What a purge changes and a fork copies.
    struct Shared<const FLAWED: bool> {
        gate: Gate<ModelCount<FLAWED>>,
        extents: UnsafeCell<u32>,
    }

    // SAFETY: loom checks all accesses to the cell.
    unsafe impl<const FLAWED: bool> Sync for Shared<FLAWED> {}

    // SAFETY: as for `Sync`.
    unsafe impl<const FLAWED: bool> Send for Shared<FLAWED> {}

    /// A thread that purges, beside one that forks. A third one makes no difference to the two, and waits beyond loom's bounds.
    fn explore<const FLAWED: bool>() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let count = || ModelCount(AtomicU32::new(0));
            let gate = Gate { purging: count(), forking: count() };
            let shared: Arc<Shared<FLAWED>> = Arc::new(Shared { gate, extents: UnsafeCell::new(0) });
            let purging = Arc::clone(&shared);
            let purge = loom::thread::spawn(move || {
                purging.gate.begin_purge();
                // SAFETY: loom panics where the fork overlaps.
                purging.extents.with_mut(|extents| unsafe { *extents += 1 });
                purging.gate.end_purge();
            });
            shared.gate.begin_fork();
            // SAFETY: loom panics where the purge overlaps.
            shared.extents.with(|extents| unsafe { *extents });
            shared.gate.end_fork();
            purge.join().unwrap();
        });
    }

    #[test]
    fn no_fork_overlaps_a_purge() {
        explore::<false>();
    }

    #[test]
    fn counts_that_are_loaded_overlap() {
        let panic = catch_unwind(AssertUnwindSafe(explore::<true>)).expect_err("the flaw is found");
        let message = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref().copied()).unwrap();
        assert!(message.contains("Causality violation"), "{message}");
    }
}
