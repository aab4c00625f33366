//! What a workload does to the border between per-CPU lists and zones, one direction at a time.
//!
//! While tasks run side by side, refills and drains mix. Here one thread does what the tasks do, a round after the other:
//! it faults a mapping in, which only takes frames, and lets it go, which only gives them back. So each direction has figures
//! of its own, and they are the same whenever they are counted.

use std::num::NonZeroUsize;
use std::thread;

use frameyard::locks::LockUse;
use frameyard::{ByteSize, Platform, Yard};
use frameyard_counting::{Counted, TaskCounters};
use frameyard_host::CpuList;
use frameyard_vm::{ExitOutcome, MemoryAccess, Vm};

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::mapping::{Pages, map, pages_of};
use crate::report::TaskProblem;

/// Rounds that are not counted, after which lists and caches are as they will stay.
const ROUNDS_BEFORE: usize = 2;
/// Rounds that are counted.
const ROUNDS: usize = 5;

/// Lines that are told apart in one hold of a zone lock, and a third more: enough for the largest batch there is.
const LINES_REMEMBERED: usize = 1 << 16;

/// How frames come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    /// On the CPU that took them, as `page-fault` unmaps.
    SameCpu,
    /// On another CPU, where there are two, as `purge` frees.
    OtherCpu,
    /// With the space that had them, as in `parallel-free`.
    Exit,
}

/// What was done and counted in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Direction {
    /// Frames handed out, or taken back.
    pub pages: u64,
    /// How zone locks were taken.
    pub zone_lock: LockUse,
    /// Page structures touched while one was held, each once a hold, where that is counted.
    pub lines_under_lock: Option<u64>,
}

/// Both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransferCounts {
    /// Frames are taken.
    pub refill: Direction,
    /// Frames are given back.
    pub drain: Direction,
}

/// Counters of a yard at a moment.
struct Snapshot {
    allocated: u64,
    freed: u64,
    zone_lock: LockUse,
    counted: Option<Counted>,
}

impl Snapshot {
    fn at<P: Platform>(yard: &Yard<P>, counted: Option<Counted>) -> Self {
        let nothing = Self { allocated: 0, freed: 0, zone_lock: LockUse::default(), counted };
        yard.zones().fold(nothing, |look, zone| Self {
            allocated: look.allocated + zone.pages_allocated,
            freed: look.freed + zone.pages_freed,
            zone_lock: look.zone_lock.and(zone.lock),
            counted,
        })
    }

    fn since(&self, earlier: &Self, pages: fn(&Self) -> u64) -> Direction {
        let counted = self.counted.zip(earlier.counted).map(|(now, then)| now.since(&then));
        // Rows that were too small leave lines out.
        let whole = counted.filter(|counted| counted.forgotten + counted.lost == 0);
        Direction {
            pages: pages(self) - pages(earlier),
            zone_lock: self.zone_lock.since(earlier.zone_lock),
            lines_under_lock: whole
                .map(|all| [all.refill, all.drain, all.elsewhere].map(|span| span.under_lock.lines).iter().sum()),
        }
    }
}

/// Rounds on a fixture, with the times at locks where these are timed, and with the lines of page structures from as many
/// rounds more through a view that counts them.
///
/// # Errors
///
/// [`WorkloadError::RunTime`]: no memory, or the view cannot be had.
pub fn timed_and_counted(
    fixture: &Fixture<'_>,
    cpus: &CpuList,
    way: Return,
    bytes: ByteSize,
) -> Result<Vec<TransferCounts>, WorkloadError> {
    let timed = run(&fixture.vm, cpus, way, bytes, || None)?;
    // One thread at a time uses the view.
    let rows: Vec<TaskCounters<LINES_REMEMBERED>> = vec![TaskCounters::default()];
    let yard = fixture.yard.counting(&rows, || 0).map_err(WorkloadError::run_time)?;
    let vm = Vm::attach(&yard).map_err(WorkloadError::run_time)?;
    let counted = run(&vm, cpus, way, bytes, || Some(yard.platform().counted()))?;
    let joined =
        |(timed, counted): (Direction, Direction)| Direction { lines_under_lock: counted.lines_under_lock, ..timed };
    let rounds = timed.into_iter().zip(counted);
    Ok(rounds
        .map(|(timed, counted)| TransferCounts {
            refill: joined((timed.refill, counted.refill)),
            drain: joined((timed.drain, counted.drain)),
        })
        .collect())
}

/// Takes so much memory and gives it back, some rounds, on a thread of its own. `cpus` are those that it may use, and `counted`
/// says what was counted so far, where it is.
fn run<P: Platform>(
    vm: &Vm<'_, P>,
    cpus: &CpuList,
    way: Return,
    bytes: ByteSize,
    counted: impl Fn() -> Option<Counted> + Sync,
) -> Result<Vec<TransferCounts>, WorkloadError> {
    let rounds = || {
        let all = (0..ROUNDS_BEFORE + ROUNDS).map(|_| one_round(vm, cpus, way, bytes, &counted));
        let mut all = all.collect::<Result<Vec<TransferCounts>, TaskProblem>>()?;
        Ok(all.split_off(ROUNDS_BEFORE))
    };
    // A thread of its own: it stays on the CPU that it was put on last.
    let result = thread::scope(|scope| scope.spawn(rounds).join());
    result
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .map_err(|problem: TaskProblem| WorkloadError::run_time(problem))
}

fn one_round<P: Platform>(
    vm: &Vm<'_, P>,
    cpus: &CpuList,
    way: Return,
    bytes: ByteSize,
    counted: &dyn Fn() -> Option<Counted>,
) -> Result<TransferCounts, TaskProblem> {
    let look = || Snapshot::at(vm.yard(), counted());
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
            if !matches!(space.exit(NonZeroUsize::MIN), Ok(ExitOutcome::Gone(_))) {
                return Err("the space did not go".into());
            }
        }
    }
    let after = look();
    Ok(TransferCounts {
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
