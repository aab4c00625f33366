//! What a workload does to the border between per-CPU lists and zones, one direction at a time.
//!
//! While tasks run side by side, refills and drains mix. Here one thread does what the tasks do, a round after the other:
//! it faults a mapping in, which only takes frames, and lets it go, which only gives them back. So each direction has figures
//! of its own, and they are the same whenever they are counted.

use std::num::NonZeroUsize;
use std::thread;

use frameyard::{ByteSize, LockUse, Platform, Yard};
use frameyard_host::CpuList;
use frameyard_vm::{ExitOutcome, MemoryAccess, Vm};

use super::page_fault::{Pages, map, pages_of};
use super::task::TaskProblem;
use crate::Failure;

/// Rounds that are not counted, after which lists and caches are as they will stay.
const ROUNDS_BEFORE: u32 = 2;
/// Rounds that are counted.
const ROUNDS: u32 = 2;

/// How frames come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Return {
    /// On the CPU that took them, as `page-fault` unmaps.
    SameCpu,
    /// On another CPU, where there are two, as `purge` frees.
    OtherCpu,
    /// With the space that had them, as in `parallel-free`.
    Exit,
}

/// What was done and counted in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Direction {
    /// Frames handed out, or taken back.
    pub(crate) pages: u64,
    /// How zone locks were taken.
    pub(crate) zone_lock: LockUse,
    /// Page structures touched while one was held, where that is counted.
    pub(crate) lines_under_lock: Option<u64>,
}

impl Direction {
    /// Both rounds' figures together.
    fn and(self, other: Self) -> Self {
        let lines = self.lines_under_lock.unwrap_or(0) + other.lines_under_lock.unwrap_or(0);
        Self {
            pages: self.pages + other.pages,
            zone_lock: self.zone_lock.and(other.zone_lock),
            lines_under_lock: other.lines_under_lock.map(|_| lines),
        }
    }
}

/// Both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Crossing {
    /// Frames are taken.
    pub(crate) refill: Direction,
    /// Frames are given back.
    pub(crate) drain: Direction,
}

/// Counters of a yard at a moment.
struct Look {
    allocated: u64,
    freed: u64,
    zone_lock: LockUse,
    lines: Option<u64>,
}

impl Look {
    fn at<P: Platform>(yard: &Yard<P>, lines: Option<u64>) -> Self {
        let nothing = Self { allocated: 0, freed: 0, zone_lock: LockUse::default(), lines };
        yard.zones().fold(nothing, |look, zone| Self {
            allocated: look.allocated + zone.pages_allocated,
            freed: look.freed + zone.pages_freed,
            zone_lock: look.zone_lock.and(zone.lock),
            lines,
        })
    }

    fn since(&self, earlier: &Self, pages: impl Fn(&Self) -> u64) -> Direction {
        Direction {
            pages: pages(self) - pages(earlier),
            zone_lock: self.zone_lock.since(earlier.zone_lock),
            lines_under_lock: self.lines.zip(earlier.lines).map(|(now, then)| now - then),
        }
    }
}

/// Takes so much memory and gives it back, some rounds, on a thread of its own. `cpus` are those that it may use, and `lines`
/// says how many page structures were touched under zone locks so far, where that is counted.
pub(crate) fn run<P: Platform>(
    vm: &Vm<'_, P>,
    cpus: &CpuList,
    way: Return,
    bytes: ByteSize,
    lines: impl Fn() -> Option<u64> + Sync,
) -> Result<Crossing, Failure> {
    let rounds = || {
        let mut crossing = Crossing::default();
        for round in 0..ROUNDS_BEFORE + ROUNDS {
            let Crossing { refill, drain } = one_round(vm, cpus, way, bytes, &lines)?;
            if round >= ROUNDS_BEFORE {
                crossing = Crossing { refill: crossing.refill.and(refill), drain: crossing.drain.and(drain) };
            }
        }
        Ok(crossing)
    };
    // A thread of its own: it stays on the CPU that it was put on last.
    let result = thread::scope(|scope| scope.spawn(rounds).join());
    result
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .map_err(|problem: TaskProblem| Failure::run_time(problem))
}

fn one_round<P: Platform>(
    vm: &Vm<'_, P>,
    cpus: &CpuList,
    way: Return,
    bytes: ByteSize,
    lines: &dyn Fn() -> Option<u64>,
) -> Result<Crossing, TaskProblem> {
    let look = || Look::at(vm.yard(), lines());
    let space = vm.create_space()?;
    settle(cpus, 0);
    let before = look();
    let range = map(&space, bytes, Pages::Small)?;
    for addr in pages_of(range) {
        space.touch(addr, MemoryAccess::Write)?;
    }
    let between = look();
    match way {
        Return::SameCpu => {
            space.unmap(range)?;
        }
        Return::OtherCpu => {
            settle(cpus, 1);
            space.unmap(range)?;
        }
        Return::Exit => {
            if !matches!(space.exit(NonZeroUsize::MIN), ExitOutcome::Gone(_)) {
                return Err("the space did not go".into());
            }
        }
    }
    let after = look();
    Ok(Crossing {
        refill: between.since(&before, |look| look.allocated),
        drain: after.since(&between, |look| look.freed),
    })
}

/// Goes to the n-th CPU. Where that is refused, or there is one alone, stays: figures of a return to another CPU are then
/// those of a return to the same.
fn settle(cpus: &CpuList, number: usize) {
    if let Some(&cpu) = cpus.as_slice().get(number) {
        let _ = CpuList::from_iter([cpu]).pin_this_thread();
    }
}
