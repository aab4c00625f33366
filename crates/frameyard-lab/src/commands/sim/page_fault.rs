//! `sim page-fault`: the loop of will-it-scale's page_fault1 on virtual CPUs.

use super::simulation::Simulation;
use crate::Failure;
use crate::cli::SimPageFaultArgs;
use crate::commands::bench::page_fault::{row, write_rows};
use frameyard_workloads::Setting;
use frameyard_workloads::{page_fault, simulated};

/// Runs every combination of mode, number of tasks and policies.
pub(super) fn run(args: &SimPageFaultArgs) -> Result<(), Failure> {
    let tasks = |setting: &Setting| u64::from(setting.tasks.get());
    let simulation = Simulation::new(&args.runs, "sim page-fault", tasks)?;
    let (seed, map, duration) = (args.runs.seed, args.map, args.duration.duration);
    let needed = |setting: &Setting| (page_fault::memory_needed(setting.tasks.get(), map), tasks(setting));
    let rows =
        simulation.measure(needed, |fixture, setting| Ok(simulated::page_fault(fixture, setting, seed, map, duration)?))?;
    simulation.print(rows, |compared| vec![row(compared, map)], write_rows)
}
