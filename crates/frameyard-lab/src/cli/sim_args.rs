//! Arguments of `sim`: workloads on simulated machines.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use frameyard::ByteSize;
use frameyard::boot::Initialiser;
use frameyard::watermarks::PcpSizing;

use super::extent_args::VirtualDurationArgs;
use super::init_args::initialiser;
use super::values::{TaskRange, duration, percentage, positive_duration, positive_number, positive_size};
use super::{CalibrateArgs, CheckArgs, ComparedArgs, OutputArgs, SimKernbenchArgs};
use crate::output::OutputFile;

/// Arguments of `sim`.
#[derive(Args, Clone, Debug)]
#[command(arg_required_else_help = false, disable_help_subcommand = true)]
pub struct SimArgs {
    /// What to simulate.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// Commands of `sim`.
#[derive(Subcommand, Clone, Debug)]
pub enum SimCommand {
    /// Maps memory, touches every page, unmaps it, and repeats
    PageFault(SimPageFaultArgs),
    /// Tears down address spaces that hold most of memory
    ParallelFree(SimParallelFreeArgs),
    /// Runs tasks with huge pages beside tasks without, in memory that was full of small pages
    Order0Thp(SimOrder0ThpArgs),
    /// Frees pages on other CPUs than they were allocated on
    Purge(SimPurgeArgs),
    /// Runs jobs of a build on every CPU, with per-CPU lists sized before or after most memory is initialised
    Kernbench(SimKernbenchArgs),
    /// Initialises memory maps of machines; prints predicted and published times
    DeferredInit(SimDeferredInitArgs),
    /// Fits a machine's free parameters to rows of a published table
    Calibrate(CalibrateArgs),
    /// Compares predictions with published measurements, row by row
    Check(CheckArgs),
    /// Asks for huge blocks while builders fill memory with page cache; the host needs as much memory as the machine
    Highalloc(SimHighallocArgs),
}

/// The simulated machine and the compared policies.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Runs")]
pub struct SimRunArgs {
    /// A built-in machine with costs (see `frameyard machines`), or a file that describes one (TOML)
    #[arg(long, value_name = "NAME|FILE", default_value = "broadwell-40", value_hint = ValueHint::AnyPath)]
    pub machine: String,

    /// Memory of the machine, all nodes together [default: enough for the tasks]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    pub memory: Option<ByteSize>,

    /// What is compared.
    #[command(flatten)]
    pub compared: ComparedArgs,

    /// Size of the per-CPU lists: scaled, classic, early, fraction:N or fixed:N; kernels up to 5.13 had classic, up
    /// to 4.18 early
    #[arg(long, value_name = "SIZING", default_value = "classic")]
    pub pcp_sizing: PcpSizing,

    /// Also write a profile of virtual time as folded stacks for flame graphs; several rows get one file each, named
    /// after the row
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profile: Option<OutputFile>,

    /// Output options.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `sim page-fault`.
#[derive(Args, Clone, Debug)]
pub struct SimPageFaultArgs {
    /// Size of each mapping of a task
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = positive_size)]
    pub map: ByteSize,
    /// The counted time.
    #[command(flatten)]
    pub duration: VirtualDurationArgs,
    /// What is simulated.
    #[command(flatten)]
    pub runs: SimRunArgs,
}

/// Arguments of `sim parallel-free`.
#[derive(Args, Clone, Debug)]
pub struct SimParallelFreeArgs {
    /// What is simulated.
    #[command(flatten)]
    pub runs: SimRunArgs,
}

/// Arguments of `sim order0-thp`.
#[derive(Args, Clone, Debug)]
pub struct SimOrder0ThpArgs {
    /// Size of each mapping of a task
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = positive_size)]
    pub map: ByteSize,
    /// The counted time.
    #[command(flatten)]
    pub duration: VirtualDurationArgs,
    /// The simulated machine; the number of tasks holds for each kind.
    #[command(flatten)]
    pub runs: SimRunArgs,
}

/// Arguments of `sim purge`.
#[derive(Args, Clone, Debug)]
pub struct SimPurgeArgs {
    /// Freeing threads, in total for threads [default: one for four tasks]; each process has one of its own
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub purgers: Option<NonZeroU32>,
    /// The counted time.
    #[command(flatten)]
    pub duration: VirtualDurationArgs,
    /// What is simulated.
    #[command(flatten)]
    pub runs: SimRunArgs,
}

/// Arguments of `sim deferred-init`.
#[derive(Args, Clone, Debug)]
pub struct SimDeferredInitArgs {
    /// Built-in machines with costs, or files that describe machines (TOML) [default: those of the published table]
    #[arg(long = "machine", value_name = "NAME|FILE", value_delimiter = ',', value_hint = ValueHint::AnyPath)]
    pub machines: Vec<String>,

    /// Threads per node, at most its CPUs: numbers and ranges, as in 1,2,4 or 1..8 [default: one, and one per CPU]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub threads: Vec<TaskRange>,

    /// How page structures are written; none: they are zero already
    #[arg(long, value_name = "HOW", value_parser = initialiser(), default_value = Initialiser::StoresPerPage.name())]
    pub initialiser: Initialiser,

    /// Output options.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `sim highalloc`.
#[derive(Args, Clone, Debug)]
pub struct SimHighallocArgs {
    /// Virtual time between two requests for a huge block
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration)]
    pub delay: Duration,
    /// Virtual time between the filling of memory and the first request
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration)]
    pub settle: Duration,
    /// The share of memory that builders hold in unmovable frames, up to 50%
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percentage)]
    pub unmovable: u8,
    /// What is simulated; a task is a builder.
    #[command(flatten)]
    pub runs: SimRunArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use frameyard::policy::ZonePolicy;
    use frameyard_vm::LruPolicy;

    use frameyard_workloads::TaskMode;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        sim: SimArgs,
    }

    fn read(line: &str) -> Result<SimPageFaultArgs, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let SimCommand::PageFault(args) = line.sim.command else { panic!("no page-fault") };
        Ok(args)
    }

    #[test]
    fn a_simulation_has_the_defaults_of_the_benchmark() {
        let args = read("page-fault").unwrap();
        assert_eq!(args.runs.machine, "broadwell-40");
        assert_eq!(args.runs.compared.policies.lru, LruPolicy::ALL);
        assert_eq!(args.runs.compared.policies.zones, [ZonePolicy::Depot]);
        assert_eq!(args.runs.compared.modes, [TaskMode::Threads, TaskMode::Processes]);
        assert_eq!((args.map, args.duration.duration), (ByteSize::mib(128), Duration::from_millis(100)));
    }

    #[test]
    fn numbers_of_tasks_are_numbers_and_ranges() {
        let args = read("page-fault --tasks 1..3,8").unwrap();
        let numbers: Vec<u32> = args.runs.compared.tasks().into_iter().map(NonZeroU32::get).collect();
        assert_eq!(numbers, [1, 2, 3, 8]);
    }

    #[test]
    fn wrong_values_are_refused_with_the_expected_form() {
        for (line, says) in [
            ("page-fault --tasks 0", "as in 4 or 1..40"),
            ("page-fault --tasks 3..2", "as in 4 or 1..40"),
            ("page-fault --tasks 1..", "as in 4 or 1..40"),
            ("page-fault --policy fast", "possible values: vanilla"),
            ("page-fault --map 0", "more than nothing"),
            ("", "[subcommands: page-fault, parallel-free, "),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
