//! The words that processes share, and the services that the protocol of views needs. A trait, so that a model checker
//! can provide its own.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use super::process::{Attachment, Process};
use crate::region::Region;
use crate::sys::futex;

/// Numbered words, initially zero, with waiting, time and the life of processes.
pub(super) trait WordStore: Debug {
    /// The maximum number of views.
    const VIEWS: usize;
    /// The maximum number of devices with deduplicated tails.
    const RECORDS: usize;

    fn load(&self, word: usize, ordering: Ordering) -> u64;
    fn store(&self, word: usize, value: u64, ordering: Ordering);
    fn compare_exchange(&self, word: usize, current: u64, new: u64, success: Ordering) -> Result<u64, u64>;
    fn fetch_add(&self, word: usize, value: u64, ordering: Ordering);
    fn fence(&self, ordering: Ordering);

    /// Sleeps until the word is woken, `longest` has passed, or for no reason. Returns at once if it is not `seen`.
    fn sleep_on(&self, word: usize, seen: u64, longest: Duration);
    /// Wakes all threads that sleep on a word.
    fn wake(&self, word: usize);
    /// Sleeps for `nap`.
    fn pause(&self, nap: Duration);
    /// The time since `begin`.
    fn since(&self, begin: Instant) -> Duration;

    /// How long a wait for another process that holds a right may take.
    fn lock_limit(&self) -> Duration;
    /// The process of the caller.
    fn this(&self) -> Process;
    /// Whether a process has certainly ended.
    fn has_ended(&self, process: Process) -> bool;
}

/// The words in a memory file.
#[derive(Debug)]
pub(super) struct FileWords {
    pub(super) region: Region,
    pub(super) attachment: Arc<Attachment>,
    pub(super) lock_limit: Duration,
}

impl FileWords {
    fn atomics(&self) -> &[AtomicU64] {
        self.region.atomics()
    }
}

impl WordStore for FileWords {
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
        // A thread that is not woken looks again when its sleep ends.
        let _ = futex::wake_all(&self.atomics()[word]);
    }

    fn pause(&self, nap: Duration) {
        thread::sleep(nap);
    }

    fn since(&self, begin: Instant) -> Duration {
        begin.elapsed()
    }

    fn lock_limit(&self) -> Duration {
        self.lock_limit
    }

    fn this(&self) -> Process {
        self.attachment.process()
    }

    fn has_ended(&self, process: Process) -> bool {
        self.attachment.has_ended(process)
    }
}
