//! `highalloc` in virtual time. The requester and the background threads of each node have CPUs of their own, and delays
//! pass in virtual time.

use std::cell::RefCell;

use crate::background::{self, NAP};
use crate::highalloc::{self, HighallocPlan, HighallocRun};
use crate::{Setting, WorkloadError};
use frameyard::{CpuId, NodeId};
use frameyard_sim::{Picos, SimPlatform};

use crate::sim::driver::{Driver, Plan};
use crate::sim::fixture::SimFixture;
use crate::sim::time_spent::{TimeSpent, whole_ns};
use crate::sim::virtual_time::{SimRun, picoseconds};
use crate::sim::workers::{Companion, SimWorkers, Spaces};

/// Time between two checks whether memory is full.
const INTERVAL: Picos = Picos::from_ns(100_000);

/// CPUs that a run takes besides those of its builders: the requester's, and one per background thread.
#[must_use]
pub fn other_cpus(nodes: u64) -> u64 {
    1 + nodes * background::steps::<SimPlatform>().len() as u64
}

/// Runs `highalloc`. The measurement covers the first request to the last.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a builder or a request fails.
pub fn highalloc(
    fixture: &SimFixture<'_>,
    setting: &Setting,
    seed: u64,
    plan: &HighallocPlan,
) -> Result<SimRun<HighallocRun>, WorkloadError> {
    fixture.vm.yard().set_defrag_mode(plan.defrag);
    let builders = setting.tasks.get();
    let workers = SimWorkers::new(highalloc::specs(setting, seed, plan, &fixture.vm), Spaces::Own);
    let driver = Driver::new(fixture, workers.tasks(), Plan::Once);
    let begun = fixture.now();
    let requested = RefCell::new(None);
    let requester = || {
        let result = request(fixture, &driver, plan);
        driver.end();
        requested.replace(Some(result));
    };
    let mut companions: Vec<Companion<'_>> = vec![(CpuId(builders), Box::new(requester))];
    companions.extend(background_workers(fixture, &driver, builders + 1));
    let reports = workers.run_beside(fixture, &driver, &[], companions)?;
    let requested = requested.into_inner().ok_or_else(|| WorkloadError::run_time("the requester did not finish"))?;
    let (run, spent) = requested?;
    Ok(SimRun { run: run.with_reports(&reports), simulated: fixture.now() - begun, spent })
}

/// The background workers of all nodes, on the CPUs from `first` on. They end with the run.
pub(crate) fn background_workers<'t>(
    fixture: &'t SimFixture<'_>,
    driver: &'t Driver<'_, '_>,
    first: u32,
) -> impl Iterator<Item = Companion<'t>> {
    let nodes = (0..fixture.vm.yard().nodes()).map(NodeId);
    let workers = nodes.flat_map(|node| background::steps().map(|step| (node, step)));
    workers.zip(first..).map(move |((node, step), cpu)| {
        let work = move || {
            while !driver.is_over() {
                if !step(&fixture.vm, node) {
                    fixture.platform().idle_for(picoseconds(NAP));
                }
            }
        };
        (CpuId(cpu), Box::new(work) as Box<dyn FnOnce() + 't>)
    })
}

/// Waits until memory is full and has settled, then requests blocks.
fn request(
    fixture: &SimFixture<'_>,
    driver: &Driver<'_, '_>,
    plan: &HighallocPlan,
) -> Result<(HighallocRun, TimeSpent), WorkloadError> {
    let platform = fixture.platform();
    let rest = |time| {
        platform.idle_for(time);
        if driver.is_over() { Err(WorkloadError::run_time("a builder ended before it was told to")) } else { Ok(None) }
    };
    while !driver.is_working() {
        rest(INTERVAL)?;
    }
    rest(picoseconds(plan.settle))?;
    let (before, begin) = (fixture.profile(), fixture.now());
    let run = highalloc::request(&fixture.vm, || whole_ns(fixture.now()), || rest(picoseconds(plan.delay)))?;
    let spent = TimeSpent::of(fixture.platform(), &fixture.profile().since(&before), fixture.now() - begin);
    Ok((run, spent))
}
