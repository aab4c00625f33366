//! The command line: the commands, their arguments, and the wording of refusals.
//!
//! Each command has a struct. Groups of options that several commands share ([`MachineArgs`], [`YardArgs`], [`ComparedArgs`],
//! [`OutputArgs`]) are flattened into it.

mod calibration_args;
mod device_args;
mod examples;
mod extent_args;
mod init_args;
mod kernbench_args;
mod machine_args;
mod machines_args;
mod memmap_args;
mod pin_args;
mod run_args;
mod sim_args;
mod stress_args;
mod values;
mod workload_args;
mod yard_args;
mod zone_args;
mod zone_lock_args;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

use crate::Failure;
pub use crate::output::OutputArgs;
use crate::output::OutputFile;
use crate::version::LONG_VERSION;

pub use calibration_args::{CalibrateArgs, CheckArgs, CheckedTable, EffortArgs, FittedTable};
pub use device_args::{
    DeviceArgs, DeviceChoice, DeviceCommand, DeviceCreateArgs, DeviceDestroyArgs, DeviceListArgs, DeviceMapArgs,
    DeviceSessionArgs, SessionArgs,
};
pub use extent_args::{FullArgs, QuickArgs, VirtualDurationArgs};
pub use init_args::{InitArgs, usual_initialiser};
pub use kernbench_args::{BuildArgs, KernbenchArgs, ListsSized, SimKernbenchArgs};
pub use machine_args::{GeometryArgs, MachineArgs};
pub use machines_args::{MachinesArgs, MachinesCommand, MachinesShowArgs};
pub use memmap_args::{MemmapArgs, PcpResetArgs};
pub use pin_args::{MemoryRegionArgs, PinArgs, PinMemory, PinResult, PinnedArgs};
pub use run_args::{AllocArgs, BenchArgs, BenchWorkload};
pub use sim_args::{
    SimArgs, SimCommand, SimDeferredInitArgs, SimHighallocArgs, SimOrder0ThpArgs, SimPageFaultArgs,
    SimParallelFreeArgs, SimPurgeArgs, SimRunArgs,
};
pub use stress_args::{StressArgs, StressPolicy};
pub use values::{Amount, HugePageMinimum, ParseAmountError, ParseTasksError, TaskRange};
pub use values::{ShownFile, ShownFormat, Workload};
pub use workload_args::{
    ComparedArgs, ComparisonArgs, DurationArgs, FaultCostArgs, HighallocArgs, Order0ThpArgs, PageFaultArgs,
    ParallelFreeArgs, PolicyArgs, PurgeArgs, WorkerArgs,
};
pub use yard_args::{BootArgs, LayoutArgs, ShowArgs, YardArgs};
pub use zone_args::{CompactionArgs, ContigArgs, ReportFreeArgs};
pub use zone_lock_args::{ZoneLockArgs, ZoneLockWorkload};

/// The whole command line.
#[derive(Parser, Debug)]
#[command(
    name = "frameyard",
    version = LONG_VERSION,
    about = "Boots, measures and shows page-frame allocators",
    disable_help_subcommand = true,
    arg_required_else_help = false,
    after_help = examples::PROGRAM
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Boots a yard on a machine and prints the boot log
    #[command(after_help = examples::BOOT)]
    Boot(BootArgs),
    /// Boots a yard and prints a file of /proc as a kernel would, or metrics
    #[command(after_help = examples::SHOW)]
    Show(ShowArgs),
    /// Prints the words of a page structure and their contents in each state
    Layout(LayoutArgs),
    /// Lists the built-in machines, or prints a machine's description
    Machines(MachinesArgs),
    /// Runs a workload on this machine and times it
    Bench(BenchArgs),
    /// Runs a workload on a simulated machine and shows where virtual time went
    Sim(SimArgs),
    /// Creates, lists and destroys devices whose memory has page structures
    #[command(after_help = examples::DEVICE)]
    Device(DeviceArgs),
    /// Allocates and frees at random under disturbances, and checks that no frame is lost or allocated twice
    #[command(after_help = examples::STRESS)]
    Stress(StressArgs),
    /// Prints the completion script of a shell
    Completions(CompletionsArgs),
    /// Writes the manual pages into a folder
    Man(ManArgs),
    /// Runs a task of a workload in its own process. Only `bench` and `stress` start it. No help text and no completion script
    /// shows it: [`parse`] recognises it.
    #[command(skip)]
    Worker(WorkerArgs),
    /// Holds a yard with devices until the last one is destroyed. Only `device create` starts it; hidden as `Worker` is.
    #[command(skip)]
    DeviceSession(DeviceSessionArgs),
}

/// The hidden command of worker processes. Its only argument is the task.
pub(crate) const WORKER: &str = frameyard_workloads::workers::WORKER_COMMAND;

/// The hidden command of session processes. Its only argument is their socket.
pub(crate) const DEVICE_SESSION: &str = "device-session";

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell to complete in
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The folder for the pages; created if it does not exist
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}

/// Reads a command line, the program's own name first.
///
/// `--help` and `--version` are printed here, and end the program.
///
/// # Errors
///
/// [`Failure::Input`] in one line that names the mistake and a correct value.
pub fn parse<I, T>(arguments: I) -> Result<Cli, Failure>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    if let [_, command, order] = &arguments[..]
        && command == WORKER
    {
        let order = order.to_string_lossy().into_owned();
        return Ok(Cli { command: Command::Worker(WorkerArgs { order }) });
    }
    if let [_, command, socket] = &arguments[..]
        && command == DEVICE_SESSION
    {
        let socket = PathBuf::from(socket);
        return Ok(Cli { command: Command::DeviceSession(DeviceSessionArgs { socket }) });
    }
    let matches = command().try_get_matches_from(arguments).map_err(|error| refusal(&error))?;
    open_output_files(&matches)?;
    Cli::from_arg_matches(&matches).map_err(|error| refusal(&error))
}

/// The command line, whose options take values that begin with a hyphen: `--memory -5G` is a bad size and no option `-5`.
fn command() -> clap::Command {
    fn take_hyphens(command: clap::Command) -> clap::Command {
        let takes_value = |arg: &clap::Arg| arg.get_action().takes_values() && !arg.is_positional();
        command
            .mut_args(|arg| if takes_value(&arg) { arg.allow_hyphen_values(true) } else { arg })
            .mut_subcommands(take_hyphens)
    }
    take_hyphens(Cli::command())
}

/// Opens the files that results go to, so that a bad path is refused before any work.
fn open_output_files(matches: &ArgMatches) -> Result<(), Failure> {
    for id in matches.ids() {
        if let Ok(Some(files)) = matches.try_get_many::<OutputFile>(id.as_str()) {
            files.into_iter().try_for_each(|file| file.open().map(drop))?;
        }
    }
    matches.subcommand().map_or(Ok(()), |(_, matches)| open_output_files(matches))
}

/// The refusal of clap in one line: without the usage, and without its own `error:`. Prints help and versions and ends.
fn refusal(error: &clap::Error) -> Failure {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.exit();
    }
    let text = error.render().to_string();
    let end = ["\nUsage:", "\nFor more information"].iter().filter_map(|mark| text.find(mark)).min();
    let paragraph = text[..end.unwrap_or(text.len())].trim();
    let paragraph = paragraph.strip_prefix("error:").unwrap_or(paragraph).trim();
    // A tip is a paragraph of its own.
    let line = paragraph.replace("\n\n", ";\n");
    let says_what_is_right =
        ["tip:", "[possible values:", "[subcommands:", "for '"].iter().any(|mark| line.contains(mark));
    Failure::input(if says_what_is_right { line } else { format!("{line}; see --help") })
}
