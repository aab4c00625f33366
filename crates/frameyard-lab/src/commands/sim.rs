//! `sim`: workloads on simulated machines, and comparisons with published measurements.

mod calibrate;
mod check;
mod deferred_init;
mod kernbench;
mod published;

use crate::Failure;
use crate::cli::{SimArgs, SimCommand};

use super::workloads::{highalloc, order0_thp, page_fault, parallel_free, purge};

/// Runs a command of `sim`.
pub(super) fn run(args: &SimArgs) -> Result<(), Failure> {
    match &args.command {
        SimCommand::PageFault(args) => page_fault::sim(args),
        SimCommand::ParallelFree(args) => parallel_free::sim(args),
        SimCommand::Order0Thp(args) => order0_thp::sim(args),
        SimCommand::Purge(args) => purge::sim(args),
        SimCommand::Kernbench(args) => kernbench::run(args),
        SimCommand::DeferredInit(args) => deferred_init::run(args),
        SimCommand::Calibrate(args) => calibrate::run(args),
        SimCommand::Check(args) => check::run(args),
        SimCommand::Highalloc(args) => highalloc::sim(args),
    }
}
