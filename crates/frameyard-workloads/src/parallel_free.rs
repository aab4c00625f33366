//! `parallel-free`: the exit of address spaces that hold most of memory. As threads, the tasks share the exit of one
//! space; as processes, each exits its own.

use std::num::NonZeroUsize;
use std::time::Instant;

use frameyard::{ByteSize, PageCount, Platform};
use frameyard_vm::{AddressSpace, Vm, VmCounter};

use crate::counts::Counts;
use crate::error::WorkloadError;
use crate::fixture::{Fixture, share_of_free};
use crate::mapping::{Pages, check_gone};
use crate::measure::nanoseconds;
use crate::report::TaskReport;
use crate::setting::{Setting, TaskMode};
use crate::task::fill::Fill;
use crate::task::{TaskSpec, Work};
use crate::workers::drive_threads;

/// Percentage of free memory that is filled. Page tables and reserves need some of the rest.
const FILLED_PERCENT: u64 = 85;

/// The result of one exit.
#[derive(Clone, PartialEq, Debug)]
pub struct FreeRun {
    /// Pages that were mapped, those of huge pages included.
    pub pages: PageCount,
    /// Huge pages that were mapped.
    pub huge: u64,
    /// Nanoseconds until all were free.
    pub exit_ns: u64,
    /// Counter changes during the exit.
    pub counts: Counts,
}

/// Runs the workload once. Tasks prefer `pages`.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task or an exit fails.
pub fn run(fixture: &Fixture<'_>, setting: &Setting, seed: u64, pages: Pages) -> Result<FreeRun, WorkloadError> {
    let specs = specs(setting, seed, pages, &fixture.vm);
    let before = huge_mapped(&fixture.vm);
    let run = match setting.mode {
        TaskMode::Threads => one_space(fixture, &specs),
        TaskMode::Processes => many_spaces(fixture, &specs),
    }?;
    Ok(FreeRun { huge: huge_mapped(&fixture.vm) - before, ..run })
}

/// Huge pages that faults have mapped so far.
#[must_use]
pub fn huge_mapped<P: Platform>(vm: &Vm<'_, P>) -> u64 {
    Counts::of(vm).vm(VmCounter::ThpFaultAlloc)
}

/// The tasks of a run.
#[must_use]
pub fn specs<P: Platform>(setting: &Setting, seed: u64, pages: Pages, vm: &Vm<'_, P>) -> Vec<TaskSpec> {
    let tasks = setting.tasks.get();
    let share = share_of_free(vm.yard(), FILLED_PERCENT, tasks).0;
    let bytes = share / pages.size().0 * pages.size().0;
    TaskSpec::alike(tasks, seed, &Work::Fill(Fill { bytes, pages }))
}

fn one_space(fixture: &Fixture<'_>, specs: &[TaskSpec]) -> Result<FreeRun, WorkloadError> {
    let space = fixture.vm.create_space().map_err(WorkloadError::run_time)?;
    let reports =
        drive_threads(fixture.vm, &space, specs, |workers| workers.reports().map_err(WorkloadError::run_time))?;
    let threads = NonZeroUsize::new(specs.len()).unwrap_or(NonZeroUsize::MIN);
    let (before, begin) = (Counts::of(&fixture.vm), Instant::now());
    let outcome = space.exit(threads);
    let exit_ns = nanoseconds(begin.elapsed());
    check_gone(outcome).map_err(WorkloadError::run_time)?;
    Ok(FreeRun { pages: touched(&reports), huge: 0, exit_ns, counts: Counts::of(&fixture.vm).since(&before) })
}

fn many_spaces(fixture: &Fixture<'_>, specs: &[TaskSpec]) -> Result<FreeRun, WorkloadError> {
    fixture.drive(specs, |workers| {
        workers.wait_prepared().map_err(WorkloadError::run_time)?;
        let before = Counts::of(&fixture.vm);
        workers.begin().map_err(WorkloadError::run_time)?;
        let reports = workers.reports().map_err(WorkloadError::run_time)?;
        let exit_ns = reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0);
        Ok(FreeRun { pages: touched(&reports), huge: 0, exit_ns, counts: Counts::of(&fixture.vm).since(&before) })
    })
}

/// Exits a space that tasks have filled, by `threads` threads.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if the space is still there.
pub fn exit<P: Platform>(space: AddressSpace<'_, P>, threads: NonZeroUsize) -> Result<(), WorkloadError> {
    check_gone(space.exit(threads)).map_err(WorkloadError::run_time)
}

/// Free memory that `tasks` tasks need: some pages for each, and page tables for them.
#[must_use]
pub fn memory_needed(tasks: u32) -> ByteSize {
    ByteSize(ByteSize::mib(16).0.saturating_mul(1 + u64::from(tasks)))
}

/// Pages that all tasks touched.
#[must_use]
pub fn touched(reports: &[TaskReport]) -> PageCount {
    PageCount(reports.iter().map(|report| report.iterations).sum())
}
