//! Transfers between per-CPU lists and zones, counted for each direction.
//!
//! While tasks run side by side, refills and drains mix. Here one thread does their work in rounds: it faults a mapping in,
//! which only allocates, and unmaps it, which only frees. So each direction has its own counts, and they are reproducible.

use std::num::NonZeroUsize;
use std::thread;

use frameyard::counting::{Counted, TaskCounters};
use frameyard::locks::LockUse;
use frameyard::{ByteSize, Platform, Yard};
use frameyard_host::CpuList;
use frameyard_vm::{ExitOutcome, MemoryAccess, Vm};

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::mapping::{Pages, map, pages_of};
use crate::report::TaskProblem;

/// Rounds before the count, after which lists and caches are in steady state.
const ROUNDS_BEFORE: usize = 2;
/// Counted rounds.
const ROUNDS: usize = 5;

/// Capacity of the table of lines touched during one hold of a zone lock: a third more than the largest batch.
const LINES_REMEMBERED: usize = 1 << 16;

/// How frames are freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    /// On the CPU that allocated them, like `page-fault`.
    SameCpu,
    /// On another CPU, if there are two, like `purge`.
    OtherCpu,
    /// By the exit of their address space, like `parallel-free`.
    Exit,
}

/// The counts of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Direction {
    /// Frames allocated, or freed.
    pub pages: u64,
    /// Acquisitions of zone locks.
    pub zone_lock: LockUse,
    /// Page structures touched under a zone lock, each counted once per hold; `None` if not counted.
    pub lines_under_lock: Option<u64>,
}

/// The counts of both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransferCounts {
    /// While frames are allocated.
    pub refill: Direction,
    /// While frames are freed.
    pub drain: Direction,
}

/// The counters of a yard at a moment.
struct Snapshot {
    allocated: u64,
    freed: u64,
    zone_lock: LockUse,
    counted: Option<Counted>,
}

impl Snapshot {
    fn at<P: Platform>(yard: &Yard<P>, counted: Option<Counted>) -> Self {
        let nothing = Self { allocated: 0, freed: 0, zone_lock: LockUse::default(), counted };
        yard.stats().zones().fold(nothing, |look, zone| Self {
            allocated: look.allocated + zone.pages_allocated,
            freed: look.freed + zone.pages_freed,
            zone_lock: look.zone_lock.and(zone.lock),
            counted,
        })
    }

    fn since(&self, earlier: &Self, pages: fn(&Self) -> u64) -> Direction {
        let counted = self.counted.zip(earlier.counted).map(|(now, then)| now.since(&then));
        // Tables that were too small miss lines.
        let whole = counted.filter(|counted| counted.forgotten + counted.lost == 0);
        Direction {
            pages: pages(self) - pages(earlier),
            zone_lock: self.zone_lock.since(earlier.zone_lock),
            lines_under_lock: whole
                .map(|all| [all.refill, all.drain, all.elsewhere].map(|span| span.under_lock.lines).iter().sum()),
        }
    }
}

/// Counts rounds on a fixture. Lock times are those of the first rounds, if locks are timed; the lines under the lock come
/// from further rounds through a counting view.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if memory is exhausted, or the view cannot be created.
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

/// Allocates and frees memory in rounds, on a new thread that uses `cpus`. `counted` returns the counts so far, if any.
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
    // A new thread, because it stays pinned to the last CPU.
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
    let snapshot = || Snapshot::at(vm.yard(), counted());
    let space = vm.create_space()?;
    settle(cpus, 0);
    let before = snapshot();
    let range = map(&space, bytes, Pages::Small)?;
    for addr in pages_of(range) {
        space.touch(addr, MemoryAccess::Write)?;
    }
    let between = snapshot();
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
                return Err("the address space is still there".into());
            }
        }
    }
    let after = snapshot();
    Ok(TransferCounts {
        refill: between.since(&before, |look| look.allocated),
        drain: after.since(&between, |look| look.freed),
    })
}

/// Moves to the n-th CPU. If the host refuses, or there is only one, stays; then [`Return::OtherCpu`] equals
/// [`Return::SameCpu`].
fn settle(cpus: &CpuList, number: usize) {
    if let Some(&cpu) = cpus.as_slice().get(number) {
        let _ = CpuList::from_iter([cpu]).pin_this_thread();
    }
}
