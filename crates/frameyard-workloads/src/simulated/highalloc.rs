//! `highalloc` in virtual time: the leader and the background threads of each node have CPUs of their own, and a delay passes.

use std::cell::RefCell;

use frameyard::{CpuId, NodeId};
use frameyard_sim::Picos;

use super::conductor::{Conductor, Plan};
use super::crew::{Crew, Spaces};
use super::{SimGround, SimRun, TimeSpent, picoseconds, whole_ns};
use crate::Failure;
use crate::workload::ground::Setting;
use crate::workload::highalloc::{self, Build, HighallocPlan, HighallocRun};
use crate::workload::task::{TaskOrder, Work};

/// How often the leader looks whether memory is full.
const LOOK: Picos = Picos::from_ns(100_000);

/// The CPUs that a run takes beside those of its builders: the leader's, and one for each background thread.
pub(crate) fn other_cpus(nodes: u64) -> u64 {
    1 + nodes * highalloc::background::<frameyard_sim::SimPlatform>().len() as u64
}

/// Runs `highalloc`. What is measured is from the first request to the last.
pub(crate) fn highalloc(
    ground: &SimGround<'_>,
    setting: &Setting,
    seed: u64,
    plan: &HighallocPlan,
) -> Result<SimRun<HighallocRun>, Failure> {
    let builders = setting.tasks.get();
    let build = Build::share_of(&ground.vm, builders, plan.unmovable_percent);
    let crew = Crew::new(TaskOrder::alike(builders, seed, &Work::Build(build)), Spaces::Own);
    let conductor = Conductor::new(ground, crew.tasks(), Plan::Once);
    let begun = ground.now();
    let asked = RefCell::new(None);
    let lead = || {
        let result = lead(ground, &conductor, plan);
        conductor.end();
        asked.replace(Some(result));
    };
    let mut others: Vec<(CpuId, Box<dyn FnOnce() + '_>)> = vec![(CpuId(builders), Box::new(lead))];
    for node in (0..ground.vm.yard().nodes()).map(NodeId) {
        for step in highalloc::background() {
            let conductor = &conductor;
            let work = move || {
                while !conductor.is_over() {
                    if !step(&ground.vm, node) {
                        ground.platform().idle_for(picoseconds(highalloc::NAP));
                    }
                }
            };
            let cpu = CpuId(builders + others.len() as u32);
            others.push((cpu, Box::new(work)));
        }
    }
    let reports = crew.run_beside(ground, &conductor, &[], others)?;
    let asked = asked.into_inner().ok_or_else(|| Failure::run_time("the leader did not come to its end"))?;
    let (run, spent) = asked?;
    Ok(SimRun { run: highalloc::with_reports(run, &reports), simulated: ground.now() - begun, spent })
}

/// Waits until memory is full and has settled, and asks for blocks.
fn lead(
    ground: &SimGround<'_>,
    conductor: &Conductor<'_, '_>,
    plan: &HighallocPlan,
) -> Result<(HighallocRun, TimeSpent), Failure> {
    let platform = ground.platform();
    let rest = |time| {
        platform.idle_for(time);
        if conductor.is_over() { Err(Failure::run_time("a builder ended before it was told to")) } else { Ok(None) }
    };
    while !conductor.is_working() {
        rest(LOOK)?;
    }
    rest(picoseconds(plan.settle))?;
    let (before, begin) = (ground.profile(), ground.now());
    let run = highalloc::ask(&ground.vm, || whole_ns(ground.now()), || rest(picoseconds(plan.delay)))?;
    let spent = TimeSpent::of(ground, &ground.profile().since(&before), ground.now() - begin);
    Ok((run, spent))
}
