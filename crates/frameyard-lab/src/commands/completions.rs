//! `completions`: the completion script of a shell.

use std::io::Write;

use clap::CommandFactory;

use crate::Failure;
use crate::cli::{Cli, CompletionsArgs};

/// Prints the script to standard output.
pub(super) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    // Into memory first: the generator panics when its output fails.
    clap_complete::generate(args.shell, &mut Cli::command(), "frameyard", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}
