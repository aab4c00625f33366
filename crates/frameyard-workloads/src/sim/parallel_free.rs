//! `parallel-free` in virtual time.

use std::num::NonZeroUsize;

use crate::counts::Counts;
use crate::parallel_free::{self, FreeRun, huge_mapped, touched};
use crate::{Pages, Setting, TaskMode, WorkloadError};

use crate::sim::driver::{Driver, Plan};
use crate::sim::fixture::SimFixture;
use crate::sim::time_spent::{TimeSpent, whole_ns};
use crate::sim::virtual_time::SimRun;
use crate::sim::workers::{SimWorkers, Spaces};

/// Runs `parallel-free`. Tasks prefer `pages`.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task or an exit fails.
pub fn parallel_free(
    fixture: &SimFixture<'_>,
    setting: &Setting,
    seed: u64,
    pages: Pages,
) -> Result<SimRun<FreeRun>, WorkloadError> {
    let specs = parallel_free::specs(setting, seed, pages, &fixture.vm);
    let before = huge_mapped(&fixture.vm);
    let done = match setting.mode {
        TaskMode::Threads => exit_of_one(fixture, &SimWorkers::new(specs, Spaces::One)),
        TaskMode::Processes => {
            let workers = SimWorkers::new(specs, Spaces::Own);
            let driver = Driver::new(fixture, workers.tasks(), Plan::Once);
            let begun = fixture.now();
            let reports = workers.run(fixture, &driver)?;
            let (before, spent) = driver.since_work_began(fixture);
            let exit_ns = reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0);
            let counts = Counts::of(&fixture.vm).since(&before);
            let run = FreeRun { pages: touched(&reports), huge: 0, exit_ns, counts };
            let simulated = fixture.now() - begun;
            Ok(SimRun { run, simulated, spent })
        }
    }?;
    let huge = huge_mapped(&fixture.vm) - before;
    Ok(SimRun { run: FreeRun { huge, ..done.run }, ..done })
}

/// The exit of one space that all tasks have filled, by one thread per task.
fn exit_of_one(fixture: &SimFixture<'_>, workers: &SimWorkers) -> Result<SimRun<FreeRun>, WorkloadError> {
    let begun = fixture.now();
    let space = fixture.vm.create_space().map_err(WorkloadError::run_time)?;
    let driver = Driver::new(fixture, workers.tasks(), Plan::Once);
    let reports = workers.run_in(fixture, &driver, std::slice::from_ref(&space))?;
    let threads = NonZeroUsize::new(workers.tasks()).unwrap_or(NonZeroUsize::MIN);
    let (before, profile, work) = (Counts::of(&fixture.vm), fixture.profile(), fixture.now());
    fixture.run_on_first(|| parallel_free::exit(space, threads))??;
    let spent = TimeSpent::of(fixture.platform(), &fixture.profile().since(&profile), fixture.now() - work);
    let counts = Counts::of(&fixture.vm).since(&before);
    let exit_ns = whole_ns(fixture.now() - work);
    let simulated = fixture.now() - begun;
    Ok(SimRun { run: FreeRun { pages: touched(&reports), huge: 0, exit_ns, counts }, simulated, spent })
}
