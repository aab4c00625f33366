#![doc = include_str!("../README.md")]
//!
//! A command line becomes typed arguments ([`cli`]). A command ([`commands`]) boots a machine
//! ([`bring_up`](mod@bring_up)), runs a workload, and prints a report as text, JSON or CSV ([`output`]). [`run`] ties them
//! together.

pub mod bring_up;
mod chosen_machine;
pub mod cli;
pub mod commands;
mod failure;
mod fixture;
pub mod measure;
pub mod output;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

pub use chosen_machine::ChosenMachine;
pub use failure::Failure;
pub use frameyard_machines as machine;
pub use version::{COMMIT, LONG_VERSION, VERSION};

/// Runs the program on a command line, the program's own name first.
///
/// Exit codes: 0 done, 1 a run-time failure, 2 bad usage or bad input, 141 standard output was closed. A failure is one line on
/// standard error. Standard output then has no result, except where only the file of `--csv` could not be written.
pub fn run<I, T>(arguments: I) -> ExitCode
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    match cli::parse(arguments).and_then(commands::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
