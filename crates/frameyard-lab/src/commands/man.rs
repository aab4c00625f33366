//! `man`: the manual pages, one for the program and one for each command.

use std::path::PathBuf;

use clap::{Args, CommandFactory, ValueHint};

use super::Cli;
use crate::Failure;

/// What follows the options in the help text.
const HELP: &str = "\
Examples:
  frameyard man ~/.local/share/man/man1
  man frameyard-bench-alloc";

/// Writes the manual pages into a folder
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct ManArgs {
    /// The folder for the pages; created if it does not exist
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

/// Writes the pages into the folder.
pub(super) fn run(args: &ManArgs) -> Result<(), Failure> {
    let failed = |error| Failure::run_time(format!("{}: cannot write manual pages: {error}", args.folder.display()));
    std::fs::create_dir_all(&args.folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(failed)
}
