//! `sim highalloc`: how many huge blocks can be had when memory is full of page cache, on virtual CPUs.

use frameyard::ByteSize;

use super::machine::machine;
use super::simulation::Simulation;
use crate::Failure;
use crate::cli::SimHighallocArgs;
use crate::commands::bench::highalloc::{LEAST_MEMORY, row, write_rows};
use frameyard_workloads::Setting;
use frameyard_workloads::highalloc::{DelayKind, HighallocPlan};
use frameyard_workloads::simulated;

/// Runs every combination of number of builders, delay and policies. What a task is makes no difference: builders share files alone.
pub(super) fn run(args: &SimHighallocArgs) -> Result<(), Failure> {
    let others = simulated::other_cpus(machine(&args.runs.machine)?.topology.sockets.into());
    let cpus = |setting: &Setting| u64::from(setting.tasks.get()) + others;
    let simulation = Simulation::new(&args.runs, "sim highalloc", cpus)?.with_contents();
    let plan = HighallocPlan {
        delay: args.delay,
        kind: DelayKind::Real,
        settle: args.settle,
        unmovable_percent: args.unmovable,
    };
    let seed = args.runs.seed;
    let needed = |setting: &Setting| {
        (ByteSize(LEAST_MEMORY.0.saturating_mul(1 + u64::from(setting.tasks.get()))), cpus(setting))
    };
    let rows = simulation.measure(needed, |fixture, setting| Ok(simulated::highalloc(fixture, setting, seed, &plan)?))?;
    simulation.print(rows, |compared| vec![row(&plan, compared)], write_rows)
}
