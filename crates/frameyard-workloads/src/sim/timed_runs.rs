//! Workloads of tasks that repeat their rounds for a virtual time.
//!
//! Tasks are measured in whole rounds: each from the first end of a round after all have ended one, so that they are out of
//! step. No task stops before all have been measured for long enough. Counters are read when the last task has ended its
//! first round, and when the last has been measured for long enough.

use std::time::Duration;

use crate::background::BackgroundWork;
use crate::order0_thp::{Kept, Surroundings};
use crate::timed_run::TaskRun;
use crate::{Setting, TaskMode, WorkloadError, decision_support, kernbench, order0_thp, page_fault, purge};
use frameyard::{ByteSize, CpuId};

use crate::sim::driver::{Driver, Plan};
use crate::sim::fixture::SimFixture;
use crate::sim::highalloc::background_workers;
use crate::sim::virtual_time::{SimRun, picoseconds};
use crate::sim::workers::{SimWorkers, Spaces};

/// Runs `page-fault`. Each task maps `map` bytes at a time.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn page_fault(
    fixture: &SimFixture<'_>,
    setting: &Setting,
    seed: u64,
    map: ByteSize,
    duration: Duration,
) -> Result<SimRun<TaskRun>, WorkloadError> {
    let workers = SimWorkers::new(page_fault::specs(setting, seed, map), Spaces::of(setting.mode));
    measure(fixture, &workers, duration, usize::MAX)
}

/// Runs `order0-thp` with `setting.tasks` tasks of each kind. Background workers have CPUs of their own.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn order0_thp(
    fixture: &SimFixture<'_>,
    setting: &Setting,
    seed: u64,
    map: ByteSize,
    duration: Duration,
    around: Surroundings,
) -> Result<SimRun<TaskRun>, WorkloadError> {
    let spaces = Spaces::of(setting.mode);
    fixture.vm.yard().set_defrag_mode(around.defrag);
    let workers = SimWorkers::new(order0_thp::specs(setting, seed, map), spaces);
    let background = match around.background {
        BackgroundWork::Absent => Background::Absent,
        BackgroundWork::OfNodes => Background::From(2 * setting.tasks.get()),
    };
    if around.kept_percent > 0 {
        let scattered = || Kept::scattered(&fixture.vm, seed, around.kept_percent);
        let _kept = fixture.set_up_on(CpuId(0), scattered)?;
        return measure_beside(fixture, &workers, duration, usize::MAX, background);
    }
    let filling = SimWorkers::new(order0_thp::filling(setting, seed, &fixture.vm), spaces);
    filling.run(fixture, &Driver::new(fixture, filling.tasks(), Plan::Once))?;
    measure_beside(fixture, &workers, duration, usize::MAX, background)
}

/// Runs `purge`. Purgers have CPUs of their own.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn purge(
    fixture: &SimFixture<'_>,
    setting: &Setting,
    purgers: u32,
    seed: u64,
    duration: Duration,
) -> Result<SimRun<TaskRun>, WorkloadError> {
    let tasks = setting.tasks.get() as usize;
    let spaces = match setting.mode {
        TaskMode::Threads => Spaces::One,
        TaskMode::Processes => Spaces::Shared(tasks),
    };
    let workers = SimWorkers::new(purge::single_role_specs(setting, purgers, seed), spaces);
    measure(fixture, &workers, duration, tasks)
}

/// Runs `kernbench`: a process of its own for each job.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn kernbench(
    fixture: &SimFixture<'_>,
    setting: &Setting,
    seed: u64,
    job: kernbench::Job,
    duration: Duration,
) -> Result<SimRun<TaskRun>, WorkloadError> {
    measure(fixture, &SimWorkers::new(kernbench::specs(setting, seed, job), Spaces::Own), duration, usize::MAX)
}

/// Runs `decision-support`.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn decision_support(
    fixture: &SimFixture<'_>,
    setting: &Setting,
    seed: u64,
    mix: decision_support::QueryMix,
    duration: Duration,
) -> Result<SimRun<TaskRun>, WorkloadError> {
    let workers = SimWorkers::new(decision_support::specs(setting, seed, mix), Spaces::of(setting.mode));
    measure(fixture, &workers, duration, usize::MAX)
}

/// The background workers of a run.
#[derive(Clone, Copy)]
enum Background {
    Absent,
    /// They have CPUs of their own, from that number on.
    From(u32),
}

/// Runs tasks in rounds and measures the first `measured` of them.
fn measure(
    fixture: &SimFixture<'_>,
    workers: &SimWorkers,
    duration: Duration,
    measured: usize,
) -> Result<SimRun<TaskRun>, WorkloadError> {
    measure_beside(fixture, workers, duration, measured, Background::Absent)
}

/// As [`measure`], beside background workers.
fn measure_beside(
    fixture: &SimFixture<'_>,
    workers: &SimWorkers,
    duration: Duration,
    measured: usize,
    background: Background,
) -> Result<SimRun<TaskRun>, WorkloadError> {
    let plan = Plan::Rounds { measured: measured.min(workers.tasks()), duration: picoseconds(duration) };
    let driver = Driver::new(fixture, workers.tasks(), plan);
    let begun = fixture.now();
    let companions = match background {
        Background::Absent => Vec::new(),
        Background::From(first) => background_workers(fixture, &driver, first).collect(),
    };
    let reports = workers.run_beside_alone(fixture, &driver, companions)?;
    let (counts, spent) = driver.while_measured(fixture);
    let simulated = fixture.now() - begun;
    Ok(SimRun { run: TaskRun { reports, counts, idle: None }, simulated, spent })
}
