//! `sim`: workloads on simulated machines, and what is said of published measurements.

mod calibrate;
mod check;
mod description;
mod published;

use crate::Failure;
use crate::cli::{SimArgs, SimCommand};

/// Runs what is asked for.
pub(super) fn run(args: &SimArgs) -> Result<(), Failure> {
    match &args.command {
        SimCommand::PageFault(_) => Err(not_yet("page-fault")),
        SimCommand::ParallelFree(_) => Err(not_yet("parallel-free")),
        SimCommand::Order0Thp(_) => Err(not_yet("order0-thp")),
        SimCommand::Purge(_) => Err(not_yet("purge")),
        SimCommand::Calibrate(args) => calibrate::run(args),
        SimCommand::Check(args) => check::run(args),
        SimCommand::Highalloc(_) => Err(Failure::input(
            "sim highalloc: what was read into pages is checked, and frames of a simulated machine have no contents; use bench highalloc",
        )),
    }
}

fn not_yet(workload: &str) -> Failure {
    Failure::input(format!("sim {workload}: is not simulated yet; use bench {workload}"))
}
