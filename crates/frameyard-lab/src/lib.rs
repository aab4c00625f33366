// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`run`]: run
//!
#![doc = include_str!("../README.md")]
//!
//! `cli` reads a command line into the arguments of a command. A command (`commands`) boots a machine (`boot`), runs a
//! workload, and prints a report as text, JSON or CSV (`output`). Options that several commands share are in `args`.

mod args;
mod boot;
mod chosen_machine;
mod cli;
mod commands;
mod failure;
mod fixture;
mod measure;
mod output;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use failure::Failure;
use frameyard_machines as machine;

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
