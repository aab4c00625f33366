//! `parallel-free`: the exit of spaces that hold most of memory: one whose exit threads share, or one for each process.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Instant;

use frameyard::{ByteSize, PageCount, Platform};
use frameyard_vm::{ExitOutcome, ExitProblem, ExitStalled, MemoryAccess, Vm};
use serde::{Deserialize, Serialize};

use super::counts::Counts;
use super::course::Course;
use super::crew::lead_threads;
use super::ground::{Ground, Setting, share_of_free};
use super::page_fault::{Pages, map, pages_of};
use super::task::{Site, TaskOrder, TaskProblem, TaskReport, TaskSpace, Work, nanoseconds};
use crate::Failure;
use crate::cli::TaskMode;

/// The part of free memory that is filled, in percent; page tables and reserves need some of the rest.
const FILLED_PERCENT: u64 = 85;

/// What a task fills.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fill {
    /// How much.
    pub(crate) bytes: u64,
}

impl Fill {
    /// Fills the common space and is done; or a space of its own, which it then takes down when work begins.
    pub(crate) fn run<P: Platform, C: Course>(&self, site: &Site<'_, '_, P, C>) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let range = map(&space, ByteSize(self.bytes), Pages::Small)?;
        let mut iterations = 0;
        for addr in pages_of(range) {
            space.touch(addr, MemoryAccess::Write)?;
            iterations += 1;
        }
        let TaskSpace::Own(space) = space else {
            return Ok(TaskReport { iterations, ..TaskReport::default() });
        };
        let begin = site.begin()?;
        let outcome = space.exit(NonZeroUsize::MIN);
        let elapsed_ns = site.course.elapsed_ns(begin);
        check_gone(outcome)?;
        Ok(TaskReport { iterations, elapsed_ns, ..TaskReport::default() })
    }
}

/// One exit.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FreeRun {
    /// Pages that were mapped.
    pub(crate) pages: PageCount,
    /// How long it took until all were free.
    pub(crate) exit_ns: u64,
    /// What was counted meanwhile.
    pub(crate) counts: Counts,
}

/// One run of the workload.
pub(crate) fn run(ground: &Ground<'_>, setting: &Setting, seed: u64) -> Result<FreeRun, Failure> {
    let orders = orders(setting, seed, &ground.vm);
    match setting.mode {
        TaskMode::Threads => one_space(ground, &orders),
        TaskMode::Processes => many_spaces(ground, &orders),
    }
}

/// What the tasks of a run are told.
pub(crate) fn orders<P: Platform>(setting: &Setting, seed: u64, vm: &Vm<'_, P>) -> Vec<TaskOrder> {
    let tasks = setting.tasks.get();
    let share = share_of_free(vm.yard(), FILLED_PERCENT, tasks).0;
    TaskOrder::alike(tasks, seed, &Work::Fill(Fill { bytes: share }))
}

fn one_space(ground: &Ground<'_>, orders: &[TaskOrder]) -> Result<FreeRun, Failure> {
    let space = ground.vm.create_space().map_err(Failure::run_time)?;
    let reports = lead_threads(ground.vm, &space, orders, |crew| crew.reports().map_err(Failure::run_time))?;
    let workers = NonZeroUsize::new(orders.len()).unwrap_or(NonZeroUsize::MIN);
    let (before, begin) = (Counts::of(&ground.vm), Instant::now());
    let outcome = space.exit(workers);
    let exit_ns = nanoseconds(begin.elapsed());
    check_gone(outcome).map_err(Failure::run_time)?;
    Ok(FreeRun { pages: touched(&reports), exit_ns, counts: Counts::of(&ground.vm).since(&before) })
}

/// Why a space that was to go is still there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StillThere {
    /// Somebody else has a handle of it.
    Used,
    /// It stopped on the way.
    Stalled(ExitProblem),
}

impl fmt::Display for StillThere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Used => f.write_str("the space did not go: somebody else has a handle of it"),
            Self::Stalled(problem) => write!(f, "the space did not go: {problem}"),
        }
    }
}

impl std::error::Error for StillThere {}

/// Whether a space went.
pub(crate) fn check_gone<P: Platform>(outcome: Result<ExitOutcome, ExitStalled<'_, P>>) -> Result<(), StillThere> {
    match outcome {
        Ok(ExitOutcome::Gone(_)) => Ok(()),
        Ok(ExitOutcome::StillUsed) => Err(StillThere::Used),
        Err(stalled) => Err(StillThere::Stalled(stalled.problem)),
    }
}

fn many_spaces(ground: &Ground<'_>, orders: &[TaskOrder]) -> Result<FreeRun, Failure> {
    ground.lead(orders, |crew| {
        crew.wait_prepared().map_err(Failure::run_time)?;
        let before = Counts::of(&ground.vm);
        crew.begin().map_err(Failure::run_time)?;
        let reports = crew.reports().map_err(Failure::run_time)?;
        let exit_ns = reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0);
        Ok(FreeRun { pages: touched(&reports), exit_ns, counts: Counts::of(&ground.vm).since(&before) })
    })
}

/// What a yard must have free for so many tasks: some pages for each, and page tables for them.
#[must_use]
pub(crate) fn memory_needed(tasks: u32) -> ByteSize {
    ByteSize(ByteSize::mib(16).0.saturating_mul(1 + u64::from(tasks)))
}

/// Pages that all tasks touched.
pub(crate) fn touched(reports: &[TaskReport]) -> PageCount {
    PageCount(reports.iter().map(|report| report.iterations).sum())
}
