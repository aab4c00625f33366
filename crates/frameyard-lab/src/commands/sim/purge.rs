//! `sim purge`: pages that are freed on other CPUs than they were allocated on, on virtual CPUs.

use std::num::NonZeroU32;

use super::simulation::Simulation;
use crate::Failure;
use crate::cli::SimPurgeArgs;
use frameyard_workloads::TaskMode;
use crate::commands::bench::purge::{row, write_rows};
use frameyard_workloads::Setting;
use frameyard_workloads::{purge, simulated};

/// Runs every combination of mode, number of tasks and policies.
pub(super) fn run(args: &SimPurgeArgs) -> Result<(), Failure> {
    let purgers = |setting: &Setting| match setting.mode {
        TaskMode::Threads => args.purgers.map_or_else(|| purge::usual_purgers(setting.tasks.get()), NonZeroU32::get),
        TaskMode::Processes => setting.tasks.get(),
    };
    let cpus = |setting: &Setting| u64::from(setting.tasks.get()) + u64::from(purgers(setting));
    let simulation = Simulation::new(&args.runs, "sim purge", cpus)?;
    let (seed, duration) = (args.runs.seed, args.duration.duration);
    let needed = |setting: &Setting| (purge::memory_needed(setting.tasks.get(), purgers(setting)), cpus(setting));
    let rows = simulation
        .measure(needed, |fixture, setting| Ok(simulated::purge(fixture, setting, purgers(setting), seed, duration)?))?;
    simulation.print(rows, |compared| vec![row(purgers(&compared.setting), compared)], write_rows)
}
