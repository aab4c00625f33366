//! The native platform: CPU identity, waiting, workers, and the bytes of frames.

use std::fmt;
use std::ptr::NonNull;
use std::thread;
use std::time::Duration;

use frameyard::{CpuId, NodeId, Pfn, Platform, WorkerPanicked};

use crate::cpu_list::CpuList;
use crate::memory::HostMemory;
use crate::sys::cpu::{self, RseqCpu};
use crate::topology::HostTopology;

/// How the platform knows which CPU runs a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CpuIdentity {
    /// From the `cpu_id` of the thread's `rseq` area: one load. Where the kernel leaves it negative on some
    /// thread, that thread asks as with [`Getcpu`](CpuIdentity::Getcpu).
    Rseq,
    /// From `sched_getcpu`.
    Getcpu,
    /// Always the same: every thread is on this CPU of the yard.
    Fixed(CpuId),
}

impl CpuIdentity {
    /// The name of the path, as in `rseq`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rseq => "rseq",
            Self::Getcpu => "getcpu",
            Self::Fixed(_) => "fixed",
        }
    }
}

/// The C library registers no `rseq` area for the calling thread, or the kernel keeps none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RseqUnavailable;

impl fmt::Display for RseqUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no rseq area registered: needs x86-64, glibc 2.35 or later, and a kernel with rseq")
    }
}

impl std::error::Error for RseqUnavailable {}

/// The environment of a yard in a process of Linux.
///
/// Says the host's CPU numbers as they are; a yard of fewer CPUs folds them in.
#[derive(Debug)]
pub struct HostPlatform {
    /// Where to look for the identity; `None` unless it is [`CpuIdentity::Rseq`].
    rseq: Option<RseqCpu>,
    identity: CpuIdentity,
    memory: HostMemory,
    host: HostTopology,
}

impl HostPlatform {
    /// A platform for a yard on that memory.
    ///
    /// Identity comes from `rseq` where the calling thread has a registered area, else from `sched_getcpu`.
    #[must_use]
    pub fn new(memory: HostMemory, host: &HostTopology) -> Self {
        let rseq = usable_rseq();
        let identity = if rseq.is_some() { CpuIdentity::Rseq } else { CpuIdentity::Getcpu };
        Self { rseq, identity, memory, host: host.clone() }
    }

    /// The same with another way to know the CPU.
    ///
    /// # Errors
    ///
    /// [`RseqUnavailable`] where `rseq` is asked for and is not there.
    pub fn with_identity(mut self, identity: CpuIdentity) -> Result<Self, RseqUnavailable> {
        self.rseq = match identity {
            CpuIdentity::Rseq => Some(usable_rseq().ok_or(RseqUnavailable)?),
            CpuIdentity::Getcpu | CpuIdentity::Fixed(_) => None,
        };
        self.identity = identity;
        Ok(self)
    }

    /// How the platform knows which CPU runs a thread.
    #[must_use]
    pub fn identity(&self) -> CpuIdentity {
        self.identity
    }

    /// The memory behind the frames.
    #[must_use]
    pub fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// The machine that the platform runs on.
    #[must_use]
    pub fn host(&self) -> &HostTopology {
        &self.host
    }

    /// The identity where one load did not give it.
    #[cold]
    #[inline(never)]
    fn slow_cpu() -> u32 {
        cpu::getcpu()
    }

    /// The CPUs that workers of a node of the yard run on; none where the host leaves no choice.
    fn cpus_of(&self, node: NodeId) -> CpuList {
        if self.host.nodes().len() == 1 {
            return CpuList::default();
        }
        self.host.node_for(node).cpus.intersection(self.host.allowed())
    }
}

/// The `rseq` area, where it says something about the calling thread.
fn usable_rseq() -> Option<RseqCpu> {
    RseqCpu::registered().filter(|rseq| rseq.cpu_id() >= 0)
}

/// Rounds of [`Platform::relax`] that only pause: together 127 pauses, a few microseconds.
const SPIN_ROUNDS: u32 = 7;
/// Rounds up to here give the CPU to another thread; later ones sleep.
const YIELD_ROUNDS: u32 = 64;
/// The longest sleep is 2 to this power microseconds.
const MAX_SLEEP_SHIFT: u32 = 9;

impl Platform for HostPlatform {
    type Guard = ();

    #[inline(always)]
    fn guard(&self) {}

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        let known = match (self.rseq, self.identity) {
            (Some(rseq), _) => rseq.cpu_id(),
            (None, CpuIdentity::Fixed(cpu)) => return cpu,
            (None, _) => -1,
        };
        CpuId(if known >= 0 { known as u32 } else { Self::slow_cpu() })
    }

    /// Pauses 2ⁿ times in round n, then yields, then sleeps up to half a millisecond.
    #[cold]
    fn relax(&self, round: u32) {
        if round < SPIN_ROUNDS {
            for _ in 0..1 << round {
                std::hint::spin_loop();
            }
        } else if round < YIELD_ROUNDS {
            thread::yield_now();
        } else {
            let shift = (round - YIELD_ROUNDS).min(MAX_SLEEP_SHIFT);
            thread::sleep(Duration::from_micros(1 << shift));
        }
    }

    #[inline]
    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        self.memory.frame(pfn)
    }

    /// Runs worker 0 on the caller and the others on new threads, on the CPUs of the host's nodes that stand for theirs.
    ///
    /// Where the system grants fewer threads than asked for, fewer run.
    fn run_workers(
        &self,
        count: usize,
        node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        thread::scope(|scope| {
            let spawn = |worker: usize| {
                let body = move || {
                    let cpus = self.cpus_of(node_of(worker));
                    if !cpus.is_empty() {
                        // Placement alone: a job runs as well elsewhere, only slower.
                        let _ = cpus.pin_this_thread();
                    }
                    job(worker);
                };
                thread::Builder::new().spawn_scoped(scope, body).ok()
            };
            let workers: Vec<_> = (1..count.max(1)).map_while(spawn).collect();
            let own = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(0)));
            // Every worker is joined, so that a panic of one is seen and none is left behind.
            let panicked = workers.into_iter().filter_map(|worker| worker.join().err()).count();
            if panicked == 0 && own.is_ok() { Ok(()) } else { Err(WorkerPanicked) }
        })
    }
}

#[cfg(test)]
mod tests;
