//! The workloads of several tasks on a simulated machine: on virtual CPUs, in virtual time.
//!
//! Tasks run the same code as on a host. A driver moves them from stage to stage. Tasks of a timed run are measured in whole
//! rounds: each from the first end of a round after all have ended one, so that they are out of step. No task stops before
//! all have been measured for long enough. Counters are read when the last task has ended its first round, and when the
//! last has been measured for long enough.

mod driver;
mod fixture;
mod highalloc;
mod runtime;
mod time_spent;
mod virtual_time;
mod workers;

use std::num::NonZeroUsize;
use std::time::Duration;

use frameyard::ByteSize;

use crate::counts::Counts;
use crate::error::WorkloadError;
use crate::mapping::check_gone;
use crate::parallel_free::{self, FreeRun, touched};
use crate::setting::{Setting, TaskMode};
use crate::timed_run::TaskRun;
use crate::{kernbench, order0_thp, page_fault, purge};

use driver::{Driver, Plan};
pub use fixture::{FrameContents, SimFixture, SimInit, SimOptions, with_sim_fixture};
pub use highalloc::{highalloc, other_cpus};
pub use time_spent::{TimeSpent, whole_ns};
pub use virtual_time::SimRun;
use virtual_time::picoseconds;
use workers::{SimWorkers, Spaces};

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

/// Runs `order0-thp` with `setting.tasks` tasks of each kind.
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
) -> Result<SimRun<TaskRun>, WorkloadError> {
    let spaces = Spaces::of(setting.mode);
    let filling = SimWorkers::new(order0_thp::filling(setting, seed, &fixture.vm), spaces);
    filling.run(fixture, &Driver::new(fixture, filling.tasks(), Plan::Once))?;
    measure(fixture, &SimWorkers::new(order0_thp::specs(setting, seed, map), spaces), duration, usize::MAX)
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
    let tasks = setting.tasks.get();
    let waiting = purge::PIECES_WAITING;
    let (bound, spaces) = match setting.mode {
        TaskMode::Threads => (waiting * tasks as usize, Spaces::One),
        TaskMode::Processes => (waiting, Spaces::Shared(tasks as usize)),
    };
    let workers = SimWorkers::new(purge::single_role_specs(tasks, purgers, seed, bound), spaces);
    measure(fixture, &workers, duration, tasks as usize)
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

/// Runs `parallel-free`.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task or an exit fails.
pub fn parallel_free(fixture: &SimFixture<'_>, setting: &Setting, seed: u64) -> Result<SimRun<FreeRun>, WorkloadError> {
    let specs = parallel_free::specs(setting, seed, &fixture.vm);
    match setting.mode {
        TaskMode::Threads => exit_of_one(fixture, &SimWorkers::new(specs, Spaces::One)),
        TaskMode::Processes => {
            let workers = SimWorkers::new(specs, Spaces::Own);
            let driver = Driver::new(fixture, workers.tasks(), Plan::Once);
            let begun = fixture.now();
            let reports = workers.run(fixture, &driver)?;
            let (before, spent) = driver.since_work_began(fixture);
            let exit_ns = reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0);
            let counts = Counts::of(&fixture.vm).since(&before);
            let run = FreeRun { pages: touched(&reports), exit_ns, counts };
            let simulated = fixture.now() - begun;
            Ok(SimRun { run, simulated, spent })
        }
    }
}

/// The exit of one space that all tasks have filled, by one thread per task.
fn exit_of_one(fixture: &SimFixture<'_>, workers: &SimWorkers) -> Result<SimRun<FreeRun>, WorkloadError> {
    let begun = fixture.now();
    let space = fixture.vm.create_space().map_err(WorkloadError::run_time)?;
    let driver = Driver::new(fixture, workers.tasks(), Plan::Once);
    let reports = workers.run_in(fixture, &driver, std::slice::from_ref(&space))?;
    let threads = NonZeroUsize::new(workers.tasks()).unwrap_or(NonZeroUsize::MIN);
    let (before, profile, work) = (Counts::of(&fixture.vm), fixture.profile(), fixture.now());
    let gone = fixture.run_on_first(|| check_gone(space.exit(threads)))?;
    gone.map_err(WorkloadError::run_time)?;
    let spent = TimeSpent::of(fixture, &fixture.profile().since(&profile), fixture.now() - work);
    let counts = Counts::of(&fixture.vm).since(&before);
    let exit_ns = whole_ns(fixture.now() - work);
    let simulated = fixture.now() - begun;
    Ok(SimRun { run: FreeRun { pages: touched(&reports), exit_ns, counts }, simulated, spent })
}

/// Runs tasks in rounds and measures the first `measured` of them.
fn measure(
    fixture: &SimFixture<'_>,
    workers: &SimWorkers,
    duration: Duration,
    measured: usize,
) -> Result<SimRun<TaskRun>, WorkloadError> {
    let plan = Plan::Rounds { measured: measured.min(workers.tasks()), duration: picoseconds(duration) };
    let driver = Driver::new(fixture, workers.tasks(), plan);
    let begun = fixture.now();
    let reports = workers.run(fixture, &driver)?;
    let (counts, spent) = driver.while_measured(fixture);
    let simulated = fixture.now() - begun;
    Ok(SimRun { run: TaskRun { reports, counts, idle: None }, simulated, spent })
}
