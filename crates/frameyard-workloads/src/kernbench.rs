//! `kernbench`: the jobs of a build. Each job is a process that maps memory in a few pieces, computes between its first
//! uses of pages, and exits.
//!
//! The other system time of a build (process creation, file reads and writes) is charged to the pages: a fixed number of
//! cycles per page.

use std::time::Duration;

use frameyard::ByteSize;

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::setting::Setting;
use crate::task::kernbench::PAGE;
use crate::task::{TaskSpec, Work};
use crate::timed_run::{TaskRun, run_for};

pub use crate::cpu_work::CpuWork;
pub use crate::task::kernbench::Job;

/// Runs the workload once.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn run(
    fixture: &Fixture<'_>,
    setting: &Setting,
    seed: u64,
    job: Job,
    duration: Duration,
) -> Result<TaskRun, WorkloadError> {
    run_for(fixture, &specs(setting, seed, job), duration)
}

/// The tasks of a run.
#[must_use]
pub fn specs(setting: &Setting, seed: u64, job: Job) -> Vec<TaskSpec> {
    TaskSpec::alike(setting.tasks.get(), seed, &Work::Kernbench(job))
}

/// Free memory that `tasks` tasks need: pages of their processes, page tables for them, and a reserve.
#[must_use]
pub fn memory_needed(tasks: u32, job: Job) -> ByteSize {
    let process = (u64::from(job.pages) + 64) * PAGE;
    ByteSize((process + process / 16).saturating_mul(u64::from(tasks)).saturating_add(ByteSize::mib(32).0))
}
