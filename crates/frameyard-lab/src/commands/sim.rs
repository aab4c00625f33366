//! `sim`: workloads on simulated machines, and what is said of published measurements.

mod calibrate;
mod check;
mod deferred_init;
mod highalloc;
mod kernbench;
mod machine;
mod order0_thp;
mod page_fault;
mod parallel_free;
mod profile;
mod published;
mod purge;
mod simulation;

use crate::Failure;
use crate::cli::{SimArgs, SimCommand};

/// Runs what is asked for.
pub(super) fn run(args: &SimArgs) -> Result<(), Failure> {
    match &args.command {
        SimCommand::PageFault(args) => page_fault::run(args),
        SimCommand::ParallelFree(args) => parallel_free::run(args),
        SimCommand::Order0Thp(args) => order0_thp::run(args),
        SimCommand::Purge(args) => purge::run(args),
        SimCommand::Kernbench(args) => kernbench::run(args),
        SimCommand::DeferredInit(args) => deferred_init::run(args),
        SimCommand::Calibrate(args) => calibrate::run(args),
        SimCommand::Check(args) => check::run(args),
        SimCommand::Highalloc(args) => highalloc::run(args),
    }
}
