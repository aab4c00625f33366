//! What the program `frameyard` is made of, as a library.
//!
//! A command line becomes typed arguments ([`cli`]), a command turns those into a typed outcome
//! ([`commands`]), most often by way of a machine that is brought up ([`bring_up`](mod@bring_up)), and an outcome is rendered as text or JSON ([`output`]). [`run`] ties them together.

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
/// Exit codes: 0 done, 1 a run-time failure, 2 bad usage or bad input. A failure is one line on standard
/// error; standard output then holds nothing that could be taken for a result.
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
