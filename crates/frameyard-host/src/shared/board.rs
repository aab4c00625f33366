//! Words that processes share, and what else of the world the protocol of views needs: behind a trait, so that a model
//! checker can have its own.

use std::fmt::Debug;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use super::process::Process;
use crate::region::Region;
use crate::sys::futex;

/// Zeroed words by number, and waiting.
pub(super) trait Board: Debug {
    /// How many views there can be.
    const VIEWS: usize;
    /// How many devices with shared tails.
    const RECORDS: usize;

    fn load(&self, word: usize, ordering: Ordering) -> u64;
    fn store(&self, word: usize, value: u64, ordering: Ordering);
    fn compare_exchange(&self, word: usize, current: u64, new: u64, success: Ordering) -> Result<u64, u64>;
    fn fetch_add(&self, word: usize, value: u64, ordering: Ordering);
    fn fence(&self, ordering: Ordering);

    /// Sleeps until somebody wakes the word, or the time is over, or for no reason; not where it is not `seen` any more.
    fn sleep_on(&self, word: usize, seen: u64, longest: Duration);
    /// Wakes all who sleep on a word.
    fn wake(&self, word: usize);
    /// Lets others run for some time.
    fn pause(&self, nap: Duration);
    /// How long it is since then.
    fn since(&self, begin: Instant) -> Duration;

    /// The process of the caller.
    fn this(&self) -> Process;
    fn is_alive(&self, process: Process) -> bool;
}

impl Board for Region {
    const VIEWS: usize = 1024;
    const RECORDS: usize = 256;

    fn load(&self, word: usize, ordering: Ordering) -> u64 {
        self.atomics()[word].load(ordering)
    }

    fn store(&self, word: usize, value: u64, ordering: Ordering) {
        self.atomics()[word].store(value, ordering);
    }

    fn compare_exchange(&self, word: usize, current: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        self.atomics()[word].compare_exchange(current, new, success, Ordering::Relaxed)
    }

    fn fetch_add(&self, word: usize, value: u64, ordering: Ordering) {
        self.atomics()[word].fetch_add(value, ordering);
    }

    fn fence(&self, ordering: Ordering) {
        fence(ordering);
    }

    fn sleep_on(&self, word: usize, seen: u64, longest: Duration) {
        futex::wait(&self.atomics()[word], seen, longest);
    }

    fn wake(&self, word: usize) {
        // Who is not woken looks by himself, if later.
        let _ = futex::wake_all(&self.atomics()[word]);
    }

    fn pause(&self, nap: Duration) {
        thread::sleep(nap);
    }

    fn since(&self, begin: Instant) -> Duration {
        begin.elapsed()
    }

    fn this(&self) -> Process {
        Process::this()
    }

    fn is_alive(&self, process: Process) -> bool {
        process.is_alive()
    }
}
