//! What each command does. A command turns its arguments into a [`Report`](crate::output::Report) and prints it.
//!
//! A command is a file, or a folder: its arguments, its help text, its run and the columns of its rows.

mod bench;
mod boot;
mod comparison;
mod completions;
mod device;
mod layout;
mod machines;
mod man;
mod page_zeroing;
mod published_table;
mod report;
mod run;
mod show;
mod sim;
mod simulated_machine;
mod stress;
mod top;
mod trace;
mod worker;
mod workloads;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use frameyard_workloads::workers::WORKER_COMMAND;

use crate::Failure;
use crate::version::LONG_VERSION;

/// What follows the options in the help text.
const HELP: &str = "\
Examples:
  frameyard boot                                       boot this machine's memory layout
  frameyard machines                                   list the machines that the program knows
  frameyard show buddyinfo --machine server-1t --memory 8G --phantom --after churn
  frameyard bench alloc --quick                        allocate and free blocks, within 30 seconds
  frameyard bench zone-lock                            compare all policies of zones, in about five minutes
  frameyard sim page-fault --machine skylake-112 --tasks 112 --mode processes --policy vanilla-4.16,bits

Exit codes: 0 done, 1 a failure at run time, 2 bad usage or bad input, 141 standard output was closed.";

/// Boots, measures and shows page-frame allocators
#[derive(Parser, Debug)]
#[command(
    name = "frameyard",
    version = LONG_VERSION,
    disable_help_subcommand = true,
    arg_required_else_help = false,
    after_help = HELP
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Boot(boot::BootArgs),
    Show(show::ShowArgs),
    Layout(layout::LayoutArgs),
    Machines(machines::MachinesArgs),
    Bench(bench::BenchArgs),
    Sim(sim::SimArgs),
    Device(device::DeviceArgs),
    Stress(stress::StressArgs),
    Report(report::ReportArgs),
    Run(run::RunArgs),
    Top(top::TopArgs),
    Trace(trace::TraceArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    /// Runs a task of a workload in its own process. Only `bench` and `stress` start it.
    #[command(skip)]
    Worker(String),
    /// Holds a yard with devices until the last one is destroyed. Only `device create` starts it.
    #[command(skip)]
    DeviceSession(PathBuf),
}

impl Cli {
    /// The command line of a process that the program starts itself. No help text and no completion script shows these.
    pub(crate) fn hidden(arguments: &[OsString]) -> Option<Self> {
        let [_, command, argument] = arguments else { return None };
        let command = match command.to_str()? {
            WORKER_COMMAND => Command::Worker(argument.to_string_lossy().into_owned()),
            device::SESSION_COMMAND => Command::DeviceSession(PathBuf::from(argument)),
            _ => return None,
        };
        Some(Self { command })
    }
}

/// Runs a command and prints its report.
///
/// # Errors
///
/// The [`Failure`] of the command.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Boot(args) => boot::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Layout(args) => layout::run(&args),
        Command::Machines(args) => machines::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Stress(args) => stress::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Device(args) => device::run(&args),
        Command::Worker(task) => worker::run(&task),
        Command::DeviceSession(socket) => device::hold_session(&socket),
    }
}
