//! `order0-thp`: small pages fill memory and are freed; then tasks with huge pages and tasks with small ones run side by
//! side on the fragmented memory.

use std::time::Duration;

use frameyard::{ByteSize, Platform};
use frameyard_vm::Vm;

use crate::error::WorkloadError;
use crate::fixture::{Fixture, share_of_free};
use crate::mapping::{MAP_SIZE, Pages};
use crate::page_fault;
use crate::setting::Setting;
use crate::task::fragment::Fragment;
use crate::task::page_fault::{Frames, Loop};
use crate::task::{TaskSpec, Work, task_seed};
use crate::timed_run::{TaskRun, run_for};

/// Percentage of free memory that is filled first. Page tables and reserves need some of the rest.
const FILLED_PERCENT: u64 = 90;

/// The page size of a task: huge for the first half of the tasks.
#[must_use]
pub fn pages_of_task(setting: &Setting, task: usize) -> Pages {
    if task < setting.tasks.get() as usize { Pages::Huge } else { Pages::Small }
}

/// Runs the workload once, with `setting.tasks` tasks of each kind.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn run(fixture: &Fixture<'_>, setting: &Setting, seed: u64, duration: Duration) -> Result<TaskRun, WorkloadError> {
    fragment(fixture, setting, seed)?;
    run_for(fixture, &specs(setting, seed, MAP_SIZE), duration)
}

/// The tasks of a run. Each maps `map` bytes at a time.
#[must_use]
pub fn specs(setting: &Setting, seed: u64, map: ByteSize) -> Vec<TaskSpec> {
    let spec = |number| {
        let pages = pages_of_task(setting, number as usize);
        let each = Loop { bytes: map.0, pages, frames: Frames::Ignored };
        TaskSpec { number, seed: task_seed(seed, number), work: Work::PageFault(each) }
    };
    (0..2 * setting.tasks.get()).map(spec).collect()
}

/// Fills memory and frees it.
fn fragment(fixture: &Fixture<'_>, setting: &Setting, seed: u64) -> Result<(), WorkloadError> {
    let specs = filling(setting, seed, &fixture.vm);
    fixture.drive(&specs, |workers| {
        workers.wait_prepared().map_err(WorkloadError::run_time)?;
        workers.begin().map_err(WorkloadError::run_time)?;
        workers.reports().map_err(WorkloadError::run_time).map(drop)
    })
}

/// The tasks that fill memory first.
#[must_use]
pub fn filling<P: Platform>(setting: &Setting, seed: u64, vm: &Vm<'_, P>) -> Vec<TaskSpec> {
    let tasks = setting.tasks.get();
    let share = share_of_free(vm.yard(), FILLED_PERCENT, tasks).0;
    TaskSpec::alike(tasks, seed, &Work::Fragment(Fragment { bytes: share }))
}

/// Free memory that `tasks` tasks of each kind need.
#[must_use]
pub fn memory_needed(tasks: u32, map: ByteSize) -> ByteSize {
    page_fault::memory_needed(tasks.saturating_mul(2), map)
}
