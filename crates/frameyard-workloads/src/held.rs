//! Frames on per-CPU lists during a workload, sampled by a thread of its own.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use frameyard::{PageCount, Yard};
use frameyard_host::HostPlatform;

/// Time between two samples, long enough to take no CPU time from the tasks.
const PAUSE: Duration = Duration::from_millis(2);

/// Frames on per-CPU lists, over all samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeldPages {
    /// The maximum.
    pub most: PageCount,
    /// The mean.
    pub mean: f64,
}

/// Does `work` and samples the frames on per-CPU lists meanwhile. The last sample follows the end of the work.
pub fn while_sampling<R>(yard: &Yard<HostPlatform>, work: impl FnOnce() -> R) -> (R, HeldPages) {
    let (done, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let sampler = scope.spawn(move || sample_until(yard, &over));
        let result = work();
        drop(done);
        let held = sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, held)
    })
}

fn sample_until(yard: &Yard<HostPlatform>, over: &Receiver<()>) -> HeldPages {
    let (mut most, mut sum, mut count) = (PageCount(0), 0, 0u64);
    loop {
        let ended = over.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout);
        let held: PageCount = yard.stats().zones().map(|zone| zone.per_cpu).sum();
        (most, sum, count) = (most.max(held), sum + held.0, count + 1);
        if ended {
            return HeldPages { most, mean: sum as f64 / count as f64 };
        }
    }
}
