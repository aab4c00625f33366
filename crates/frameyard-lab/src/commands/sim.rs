//! `sim`: workloads on simulated machines, and comparisons with published measurements.

mod alloc;
mod calibrate;
mod check;
mod deferred_init;
mod effort;
mod kernbench;
mod published;

use clap::{Args, Subcommand};

use super::workloads::{decision_support, frag, highalloc, order0_thp, page_fault, parallel_free, purge};
use crate::Failure;

/// What follows the options in the help text.
const HELP: &str = "\
Every command states its duration in its own --help and returns rows within 30 seconds with --quick.

Examples:
  frameyard sim page-fault --quick
  frameyard sim page-fault --machine skylake-112 --tasks 112 --mode processes --policy vanilla-4.16,bits
  frameyard sim check --table zone-lock";

/// Runs a workload on a simulated machine and shows where virtual time went
#[derive(Args, Debug)]
#[command(arg_required_else_help = false, disable_help_subcommand = true, after_help = HELP)]
pub(super) struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand, Debug)]
enum SimCommand {
    Alloc(alloc::SimAllocArgs),
    PageFault(page_fault::SimPageFaultArgs),
    ParallelFree(parallel_free::SimParallelFreeArgs),
    Order0Thp(order0_thp::SimOrder0ThpArgs),
    Purge(purge::SimPurgeArgs),
    DecisionSupport(decision_support::SimDecisionSupportArgs),
    Kernbench(kernbench::SimKernbenchArgs),
    DeferredInit(deferred_init::SimDeferredInitArgs),
    Calibrate(calibrate::CalibrateArgs),
    Check(check::CheckArgs),
    Highalloc(highalloc::SimHighallocArgs),
    Frag(frag::SimFragArgs),
}

/// Runs a command of `sim`.
pub(super) fn run(args: &SimArgs) -> Result<(), Failure> {
    match &args.command {
        SimCommand::Alloc(args) => alloc::run(args),
        SimCommand::PageFault(args) => page_fault::sim(args),
        SimCommand::ParallelFree(args) => parallel_free::sim(args),
        SimCommand::Order0Thp(args) => order0_thp::sim(args),
        SimCommand::Purge(args) => purge::sim(args),
        SimCommand::DecisionSupport(args) => decision_support::sim(args),
        SimCommand::Kernbench(args) => kernbench::run(args),
        SimCommand::DeferredInit(args) => deferred_init::run(args),
        SimCommand::Calibrate(args) => calibrate::run(args),
        SimCommand::Check(args) => check::run(args),
        SimCommand::Highalloc(args) => highalloc::sim(args),
        SimCommand::Frag(args) => frag::sim(args),
    }
}
