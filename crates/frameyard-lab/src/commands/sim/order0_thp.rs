//! `sim order0-thp`: tasks with huge pages beside tasks without, in memory that was full of small pages, on virtual CPUs.

use super::simulation::Simulation;
use crate::Failure;
use crate::cli::SimOrder0ThpArgs;
use crate::commands::bench::order0_thp::{row, write_rows};
use frameyard_workloads::Setting;
use frameyard_workloads::{Pages};
use frameyard_workloads::{order0_thp, simulated};

/// Runs every combination of mode, number of tasks of each kind, and policies.
pub(super) fn run(args: &SimOrder0ThpArgs) -> Result<(), Failure> {
    let cpus = |setting: &Setting| 2 * u64::from(setting.tasks.get());
    let simulation = Simulation::new(&args.runs, "sim order0-thp", cpus)?;
    let (seed, map, duration) = (args.runs.seed, args.map, args.duration.duration);
    let needed = |setting: &Setting| (order0_thp::memory_needed(setting.tasks.get(), map), cpus(setting));
    let rows =
        simulation.measure(needed, |fixture, setting| Ok(simulated::order0_thp(fixture, setting, seed, map, duration)?))?;
    let both = |compared: &_| [Pages::Huge, Pages::Small].map(|kind| row(compared, kind)).into();
    simulation.print(rows, |compared| both(&compared), write_rows)
}
