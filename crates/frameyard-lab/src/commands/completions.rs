//! `completions`: the completion script of a shell.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::Failure;

/// What follows the options in the help text.
const HELP: &str = "\
Examples:
  frameyard completions bash > ~/.local/share/bash-completion/completions/frameyard
  frameyard completions fish > ~/.config/fish/completions/frameyard.fish";

/// Prints the completion script of a shell
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct CompletionsArgs {
    /// The shell to complete in
    shell: Shell,
}

/// Prints the script to standard output.
pub(super) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    // Into memory first: the generator panics when its output fails.
    clap_complete::generate(args.shell, &mut Cli::command(), "frameyard", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}
