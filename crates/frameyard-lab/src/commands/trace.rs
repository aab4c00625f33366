//! `trace`: what a kernel's page allocator did, recorded and counted.

mod demand;
mod export;
mod facts;
mod import;
pub(super) mod input;
mod pipes;
mod record;
mod replay;
mod sources;
mod stat;
mod tracefs;

use clap::{Args, Subcommand};

use crate::Failure;

/// What follows the options in the help text.
const HELP: &str = "\
Examples:
  frameyard trace record -o build.fyt -- make
  frameyard trace record --malloc -o program.fyt -- python3 program.py
  frameyard trace stat build.fyt
  frameyard trace replay build.fyt --policy vanilla,bits";

/// Records what this kernel's page allocator does, counts it, and replays it
#[derive(Args, Debug)]
#[command(arg_required_else_help = false, disable_help_subcommand = true, after_help = HELP)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand, Debug)]
enum TraceCommand {
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Record(record::RecordArgs),
    Replay(replay::ReplayArgs),
    Stat(stat::StatArgs),
}

/// Runs a command of `trace`.
pub(super) fn run(args: &TraceArgs) -> Result<(), Failure> {
    match &args.command {
        TraceCommand::Export(args) => export::run(args),
        TraceCommand::Import(args) => import::run(args),
        TraceCommand::Replay(args) => replay::run(args),
        TraceCommand::Record(args) => record::run(args),
        TraceCommand::Stat(args) => stat::run(args),
    }
}
