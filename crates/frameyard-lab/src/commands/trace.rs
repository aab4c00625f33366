//! `trace`: what a kernel's page allocator did, recorded and counted.

mod facts;
mod input;
mod record;
mod stat;
mod tracefs;

use clap::{Args, Subcommand};

use crate::Failure;

/// What follows the options in the help text.
const HELP: &str = "\
Examples:
  frameyard trace record -o build.trace.zst -- make
  frameyard trace stat build.trace.zst";

/// Records what this kernel's page allocator does, and counts it
#[derive(Args, Debug)]
#[command(arg_required_else_help = false, disable_help_subcommand = true, after_help = HELP)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand, Debug)]
enum TraceCommand {
    Record(record::RecordArgs),
    Stat(stat::StatArgs),
}

/// Runs a command of `trace`.
pub(super) fn run(args: &TraceArgs) -> Result<(), Failure> {
    match &args.command {
        TraceCommand::Record(args) => record::run(args),
        TraceCommand::Stat(args) => stat::run(args),
    }
}
