//! Arguments of `sim`: workloads on simulated machines.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use frameyard::ByteSize;
use frameyard::boot::Initialiser;
use frameyard::watermarks::PcpSizing;

use super::init_args::initialiser;
use super::values::{TaskRange, duration, percentage, positive_duration, positive_number, positive_size};
use super::{CalibrateArgs, CheckArgs, ComparedArgs, OutputArgs, SimKernbenchArgs};
use crate::output::OutputFile;

/// Arguments of `sim`.
#[derive(Args, Clone, Debug)]
#[command(arg_required_else_help = false, disable_help_subcommand = true)]
pub struct SimArgs {
    /// What to do on a simulated machine.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// What simulated machines are for.
#[derive(Subcommand, Clone, Debug)]
pub enum SimCommand {
    /// Maps memory, touches every page, unmaps it, and again
    PageFault(SimPageFaultArgs),
    /// Takes spaces down that hold most of memory
    ParallelFree(SimParallelFreeArgs),
    /// Runs tasks with huge pages beside others without, in memory that was full of small ones
    Order0Thp(SimOrder0ThpArgs),
    /// Frees pages on other CPUs than they were allocated on
    Purge(SimPurgeArgs),
    /// Runs jobs of a build on every CPU, with per-CPU lists sized before most memory was up, and after it
    Kernbench(SimKernbenchArgs),
    /// Brings up the memory maps of machines, beside published times
    DeferredInit(SimDeferredInitArgs),
    /// Fits the free parameters of a machine on rows of a published table
    Calibrate(CalibrateArgs),
    /// Compares predictions with published measurements, row by row
    Check(CheckArgs),
    /// Asks for huge blocks while builders fill memory with page cache; its contents take as much of the host's memory
    Highalloc(SimHighallocArgs),
}

/// What is simulated and compared, on which machine.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Runs")]
pub struct SimRunArgs {
    /// A built-in simulated machine, or a file that describes one (TOML)
    #[arg(long, value_name = "NAME|FILE", default_value = "broadwell-40", value_hint = ValueHint::AnyPath)]
    pub machine: String,

    /// Memory of the machine, of all its nodes together [default: what the tasks need]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    pub memory: Option<ByteSize>,

    /// What is compared.
    #[command(flatten)]
    pub compared: ComparedArgs,

    /// Size of the per-CPU lists: scaled, classic, early, fraction:N or fixed:N; classic is what kernels up to 5.13 had, early up to 4.18
    #[arg(long, value_name = "SIZING", default_value = "classic")]
    pub pcp_sizing: PcpSizing,

    /// Also write where virtual time went, as folded stacks for flame graphs; with several rows, one file for each, named after it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profile: Option<OutputFile>,

    /// How the result is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// For how long tasks are watched.
#[derive(Args, Clone, Copy, Debug)]
pub struct VirtualDurationArgs {
    /// Virtual time for which tasks are watched, as in 100ms or 1s; whole rounds are counted, so they run on for a while
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = positive_duration)]
    pub duration: Duration,
}

/// Arguments of `sim page-fault`.
#[derive(Args, Clone, Debug)]
pub struct SimPageFaultArgs {
    /// How much a task maps at a time
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = positive_size)]
    pub map: ByteSize,
    /// How long.
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
    /// How much a task maps at a time
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = positive_size)]
    pub map: ByteSize,
    /// How long.
    #[command(flatten)]
    pub duration: VirtualDurationArgs,
    /// What is simulated; there are as many tasks of each kind as asked for.
    #[command(flatten)]
    pub runs: SimRunArgs,
}

/// Arguments of `sim purge`.
#[derive(Args, Clone, Debug)]
pub struct SimPurgeArgs {
    /// Threads that free, for all tasks together where those are threads [default: one for four tasks]; a process has one
    /// of its own
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub purgers: Option<NonZeroU32>,
    /// How long.
    #[command(flatten)]
    pub duration: VirtualDurationArgs,
    /// What is simulated.
    #[command(flatten)]
    pub runs: SimRunArgs,
}

/// Arguments of `sim deferred-init`.
#[derive(Args, Clone, Debug)]
pub struct SimDeferredInitArgs {
    /// Built-in simulated machines, or files that describe them (TOML) [default: those of the published table]
    #[arg(long = "machine", value_name = "NAME|FILE", value_delimiter = ',', value_hint = ValueHint::AnyPath)]
    pub machines: Vec<String>,

    /// Threads for each node, at most one for each of its CPUs, each number or from one to another, as in 1,2,4 or 1..8 [default: one
    /// alone, and one for each CPU]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub threads: Vec<TaskRange>,

    /// By which means page structures are written; none: they are zero already
    #[arg(long, value_name = "HOW", value_parser = initialiser(), default_value = Initialiser::StoresPerPage.name())]
    pub initialiser: Initialiser,

    /// How the result is written.
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
    /// The part of memory that builders hold in unmovable frames, up to 50%
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
    fn a_bare_simulation_compares_as_a_bare_benchmark_does() {
        let args = read("page-fault").unwrap();
        assert_eq!(args.runs.machine, "broadwell-40");
        assert_eq!(args.runs.compared.policies.lru, LruPolicy::ALL);
        assert_eq!(args.runs.compared.policies.zones, [ZonePolicy::Depot]);
        assert_eq!(args.runs.compared.modes, [TaskMode::Threads, TaskMode::Processes]);
        assert_eq!((args.map, args.duration.duration), (ByteSize::mib(128), Duration::from_millis(100)));
    }

    #[test]
    fn numbers_of_tasks_are_single_ones_and_ranges() {
        let args = read("page-fault --tasks 1..3,8").unwrap();
        let numbers: Vec<u32> = args.runs.compared.tasks().into_iter().map(NonZeroU32::get).collect();
        assert_eq!(numbers, [1, 2, 3, 8]);
    }

    #[test]
    fn wrong_values_are_refused_with_what_would_be_right() {
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
