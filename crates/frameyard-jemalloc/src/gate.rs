//! Purges and forks wait for each other.
//!
//! A purge takes extents from an arena and returns them to the yard one by one. A child that is forked meanwhile has no use of them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Threads that purge.
static PURGING: AtomicU32 = AtomicU32::new(0);
/// Threads in a `fork`.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// Whether the process is a forked child.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// After this number of rounds, a thread that waits sleeps a millisecond in each. Before, it lets another thread run.
const YIELDS: u32 = 16;

/// Counts the thread among those that purge, when none forks.
pub(crate) fn begin_purge() {
    wait_until(|| {
        // SeqCst: pairs with the two operations in `begin_fork`, in one order with them. Either this thread sees the fork, or the fork sees
        // this thread.
        PURGING.fetch_add(1, Ordering::SeqCst);
        // SeqCst: pairs with the addition in `begin_fork`, as above.
        let is_free = FORKING.load(Ordering::SeqCst) == 0;
        if !is_free {
            end_purge();
        }
        is_free
    });
}

pub(crate) fn end_purge() {
    // SeqCst: pairs with the load in `begin_fork`.
    PURGING.fetch_sub(1, Ordering::SeqCst);
}

/// Whether a thread purges. Possibly stale.
pub(crate) fn is_purging() -> bool {
    PURGING.load(Ordering::Relaxed) > 0
}

/// Waits for threads that purge. None begins until [`end_fork`].
pub(crate) fn begin_fork() {
    // SeqCst: pairs with the load in `begin_purge`.
    FORKING.fetch_add(1, Ordering::SeqCst);
    // SeqCst: pairs with the addition in `begin_purge`.
    wait_until(|| PURGING.load(Ordering::SeqCst) == 0);
}

pub(crate) fn end_fork() {
    // SeqCst: pairs with the load in `begin_purge`.
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// As [`end_fork`], in a child, where no other thread exists.
pub(crate) fn end_fork_in_child() {
    FORKING.store(0, Ordering::Relaxed);
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Whether the process is a forked child.
pub(crate) fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// Calls `is_done` until it returns true. Bounded by the length of a fork or of a purge.
fn wait_until(is_done: impl Fn() -> bool) {
    for round in 0.. {
        if is_done() {
            break;
        }
        pause(round);
    }
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
