//! `sim parallel-free`: the exit of spaces that hold most of memory, on virtual CPUs.

use super::simulation::Simulation;
use crate::Failure;
use crate::cli::SimParallelFreeArgs;
use crate::commands::bench::parallel_free::{row, write_rows};
use frameyard_workloads::Setting;
use frameyard_workloads::{parallel_free, simulated};

/// Runs every combination of mode, number of workers and policies.
pub(super) fn run(args: &SimParallelFreeArgs) -> Result<(), Failure> {
    let tasks = |setting: &Setting| u64::from(setting.tasks.get());
    let simulation = Simulation::new(&args.runs, "sim parallel-free", tasks)?;
    let seed = args.runs.seed;
    let needed = |setting: &Setting| (parallel_free::memory_needed(setting.tasks.get()), tasks(setting));
    let rows = simulation.measure(needed, |fixture, setting| Ok(simulated::parallel_free(fixture, setting, seed)?))?;
    simulation.print(rows, |compared| vec![row(compared)], write_rows)
}
