//! `man`: the manual pages, one for the program and one for each command.

use clap::CommandFactory;

use crate::Failure;
use crate::cli::{Cli, ManArgs};

/// Writes the pages into the folder.
pub(super) fn run(args: &ManArgs) -> Result<(), Failure> {
    let failed = |error| Failure::run_time(format!("{}: cannot write manual pages: {error}", args.folder.display()));
    std::fs::create_dir_all(&args.folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(failed)
}
