//! How many frames CPUs keep to themselves while a workload runs: looked at now and then, from a thread of its own.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use frameyard::{PageCount, Platform, Yard};

/// Between two looks: seldom enough to take no time from the tasks.
const PAUSE: Duration = Duration::from_millis(2);

/// Frames on per-CPU lists, over some looks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeldPages {
    /// At most.
    pub most: PageCount,
    /// On average.
    pub mean: f64,
}

/// Does `work`, and says what CPUs held meanwhile; the last look comes when it is done.
pub fn while_looking<P: Platform, R>(yard: &Yard<P>, work: impl FnOnce() -> R) -> (R, HeldPages) {
    let (done, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let looks = scope.spawn(move || {
            let (mut most, mut sum, mut count) = (PageCount(0), 0, 0u64);
            loop {
                let ended = over.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout);
                let held: PageCount = yard.zones().map(|zone| zone.per_cpu).sum();
                (most, sum, count) = (most.max(held), sum + held.0, count + 1);
                if ended {
                    return HeldPages { most, mean: sum as f64 / count as f64 };
                }
            }
        });
        let result = work();
        drop(done);
        let held = looks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, held)
    })
}
