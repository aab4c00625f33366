//! Runs on a simulated machine: the workloads of what owns frames on virtual CPUs, in virtual time.
//!
//! What a task does is the same code as on a host; a [`Conductor`] leads the tasks through the stages of a run. Tasks that go
//! round are watched in whole rounds, each from its first end of a round after all have ended one, so that they are out of
//! step; none stops before all have been watched for long enough. What is counted is from when all have ended a round to
//! when the last has been watched for long enough.

mod conductor;
mod crew;
mod ground;
mod highalloc;
mod time_spent;

use std::num::NonZeroUsize;
use std::time::Duration;

use frameyard::ByteSize;
use frameyard_sim::Picos;

use super::counts::Counts;
use super::ground::Setting;
pub(crate) use super::page_fault::TaskRun;
use super::parallel_free::{self, FreeRun, check_gone, touched};
use super::{kernbench, order0_thp, page_fault, purge};
use crate::Failure;
use crate::cli::TaskMode;

use conductor::{Conductor, Plan};
use crew::{Crew, Spaces};
pub(crate) use ground::{CameUp, Contents, SimGround, SimOptions, on_sim_ground};
pub(crate) use highalloc::{highalloc, other_cpus};
pub(crate) use time_spent::TimeSpent;

/// A run in virtual time.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SimRun<R> {
    /// What came of it.
    pub(crate) run: R,
    /// How long it took, all in all.
    pub(crate) simulated: Picos,
    /// Where the time of the CPUs went while it was counted.
    pub(crate) spent: TimeSpent,
}

/// Runs `page-fault`, each task with so much mapped at a time.
pub(crate) fn page_fault(
    ground: &SimGround<'_>,
    setting: &Setting,
    seed: u64,
    map: ByteSize,
    duration: Duration,
) -> Result<SimRun<TaskRun>, Failure> {
    watch(ground, &Crew::new(page_fault::orders(setting, seed, map), Spaces::of(setting.mode)), duration, usize::MAX)
}

/// Runs `order0-thp`: as many tasks of each kind as the setting has.
pub(crate) fn order0_thp(
    ground: &SimGround<'_>,
    setting: &Setting,
    seed: u64,
    map: ByteSize,
    duration: Duration,
) -> Result<SimRun<TaskRun>, Failure> {
    let spaces = Spaces::of(setting.mode);
    let filling = Crew::new(order0_thp::filling(setting, seed, &ground.vm), spaces);
    filling.run(ground, &Conductor::new(ground, filling.tasks(), Plan::Once))?;
    watch(ground, &Crew::new(order0_thp::orders(setting, seed, map), spaces), duration, usize::MAX)
}

/// Runs `purge`. Purgers have CPUs of their own.
pub(crate) fn purge(
    ground: &SimGround<'_>,
    setting: &Setting,
    purgers: u32,
    seed: u64,
    duration: Duration,
) -> Result<SimRun<TaskRun>, Failure> {
    let tasks = setting.tasks.get();
    let waiting = purge::PIECES_WAITING;
    let (bound, spaces) = match setting.mode {
        TaskMode::Threads => (waiting * tasks as usize, Spaces::One),
        TaskMode::Processes => (waiting, Spaces::Shared(tasks as usize)),
    };
    watch(ground, &Crew::new(purge::apart(tasks, purgers, seed, bound), spaces), duration, tasks as usize)
}

/// Runs `kernbench`: a process of its own for each job.
pub(crate) fn kernbench(
    ground: &SimGround<'_>,
    setting: &Setting,
    seed: u64,
    build: kernbench::Build,
    duration: Duration,
) -> Result<SimRun<TaskRun>, Failure> {
    watch(ground, &Crew::new(kernbench::orders(setting, seed, build), Spaces::Own), duration, usize::MAX)
}

/// Runs `parallel-free`.
pub(crate) fn parallel_free(ground: &SimGround<'_>, setting: &Setting, seed: u64) -> Result<SimRun<FreeRun>, Failure> {
    let orders = parallel_free::orders(setting, seed, &ground.vm);
    match setting.mode {
        TaskMode::Threads => exit_of_one(ground, &Crew::new(orders, Spaces::One)),
        TaskMode::Processes => {
            let crew = Crew::new(orders, Spaces::Own);
            let conductor = Conductor::new(ground, crew.tasks(), Plan::Once);
            let begun = ground.now();
            let reports = crew.run(ground, &conductor)?;
            let (before, spent) = conductor.since_work_began(ground);
            let exit_ns = reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0);
            let counts = Counts::of(&ground.vm).since(&before);
            let run = FreeRun { pages: touched(&reports), exit_ns, counts };
            let simulated = ground.now() - begun;
            Ok(SimRun { run, simulated, spent })
        }
    }
}

/// The exit of the space that all tasks have filled, by as many workers.
fn exit_of_one(ground: &SimGround<'_>, crew: &Crew) -> Result<SimRun<FreeRun>, Failure> {
    let begun = ground.now();
    let space = ground.vm.create_space().map_err(Failure::run_time)?;
    let conductor = Conductor::new(ground, crew.tasks(), Plan::Once);
    let reports = crew.run_in(ground, &conductor, std::slice::from_ref(&space))?;
    let workers = NonZeroUsize::new(crew.tasks()).unwrap_or(NonZeroUsize::MIN);
    let (before, profile, work) = (Counts::of(&ground.vm), ground.profile(), ground.now());
    let gone = ground.run_on_first(|| check_gone(space.exit(workers)))?;
    gone.map_err(Failure::run_time)?;
    let spent = TimeSpent::of(ground, &ground.profile().since(&profile), ground.now() - work);
    let counts = Counts::of(&ground.vm).since(&before);
    let exit_ns = whole_ns(ground.now() - work);
    let simulated = ground.now() - begun;
    Ok(SimRun { run: FreeRun { pages: touched(&reports), exit_ns, counts }, simulated, spent })
}

/// Lets tasks go round, and watches the first so many of them.
fn watch(ground: &SimGround<'_>, crew: &Crew, duration: Duration, watched: usize) -> Result<SimRun<TaskRun>, Failure> {
    let plan = Plan::Rounds { watched: watched.min(crew.tasks()), duration: picoseconds(duration) };
    let conductor = Conductor::new(ground, crew.tasks(), plan);
    let begun = ground.now();
    let reports = crew.run(ground, &conductor)?;
    let (counts, spent) = conductor.while_watched(ground);
    let simulated = ground.now() - begun;
    Ok(SimRun { run: TaskRun { reports, counts, idle: None }, simulated, spent })
}

fn picoseconds(duration: Duration) -> Picos {
    Picos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000))
}

/// Nanoseconds, without the part of one.
pub(crate) fn whole_ns(time: Picos) -> u64 {
    time.0 / 1000
}
