//! What each command does. A command turns its arguments into a [`Report`](crate::output::Report) and prints it.

mod bench;
mod boot;
mod comparison;
mod completions;
mod device;
mod layout;
mod machines;
mod man;
mod published_table;
mod show;
mod sim;
mod simulated_machine;
mod stress;
mod worker;
mod workloads;

use crate::Failure;
use crate::cli::{Cli, Command};

/// Runs a command and prints its report.
///
/// # Errors
///
/// The [`Failure`] of the command.
pub fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Boot(args) => boot::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Layout(args) => layout::run(&args),
        Command::Machines(args) => machines::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Stress(args) => stress::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Device(args) => device::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::DeviceSession(args) => device::hold_session(&args),
    }
}
