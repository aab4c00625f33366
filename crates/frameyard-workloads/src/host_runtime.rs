//! The runtime of tasks on this host: threads, the monotonic clock, and a queue.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use frameyard::CpuId;
use frameyard_host::{CpuList, HostPlatform};

use crate::cpu_work::CpuWork;
use crate::exchange::Exchange;
use crate::measure::nanoseconds;
use crate::report::{Abandoned, TaskEvent, TaskReport};
use crate::runtime::{Piece, Runtime};
use crate::site::Site;
use crate::stage::{Stage, Stages};

/// Where a task of this host runs.
pub(crate) type HostSite<'a, 'y> = Site<'a, 'y, HostPlatform, HostRuntime<'a>>;

/// The runtime of one task.
#[derive(Clone, Copy)]
pub(crate) struct HostRuntime<'a> {
    /// What tasks of this process hand each other.
    pub(crate) exchange: &'a Exchange,
    /// The stage of the run.
    pub(crate) stages: &'a Stages,
    /// The CPUs that this process may use.
    pub(crate) cpus: &'a CpuList,
    /// Sends an event to the driver of the run.
    pub(crate) tell: &'a (dyn Fn(TaskEvent) + Sync),
}

impl fmt::Debug for HostRuntime<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRuntime").field("stages", &self.stages).finish_non_exhaustive()
    }
}

impl Runtime for HostRuntime<'_> {
    type Moment = Instant;

    fn begin(&self) -> Result<Instant, Abandoned> {
        (self.tell)(TaskEvent::Prepared);
        match self.stages.wait_for(Stage::Work) {
            Stage::End => Err(Abandoned),
            _ => {
                (self.tell)(TaskEvent::Begun);
                Ok(Instant::now())
            }
        }
    }

    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn elapsed_ns(&self, since: Instant) -> u64 {
        nanoseconds(since.elapsed())
    }

    #[inline(always)]
    fn is_over(&self) -> bool {
        self.stages.has_come(Stage::End)
    }

    /// Runs a dependent chain of multiply-adds. Each takes four cycles on processors of the last ten years.
    fn spend(&self, _kind: CpuWork, cycles: u64) {
        let step = |x: u64, _| x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        black_box((0..cycles / 4).fold(black_box(1), step));
    }

    /// All of it: tasks on a host soon get out of step by themselves.
    #[inline(always)]
    fn first_round(&self, bytes: u64) -> u64 {
        bytes
    }

    #[inline(always)]
    fn round_ends(&self, _iterations: u64) {}

    fn report(&self, begin: Instant, iterations: u64, rounds: u64) -> TaskReport {
        TaskReport { iterations, rounds, elapsed_ns: self.elapsed_ns(begin), ..TaskReport::default() }
    }

    fn put(&self, piece: Piece, bound: usize) -> Result<(), Piece> {
        self.exchange.put(piece, bound)
    }

    fn take(&self) -> Option<Piece> {
        self.exchange.take()
    }

    /// If the host refuses, the task runs on any CPU.
    fn keep_to(&self, some: impl FnOnce(&[CpuId]) -> &[CpuId]) {
        let own = some(self.cpus.as_slice());
        if !own.is_empty() {
            let _ = own.iter().copied().collect::<CpuList>().pin_this_thread();
        }
    }
}
