//! Arguments of the workloads that compare policies.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use frameyard::ByteSize;
use frameyard::policy::ZonePolicy;
use frameyard_vm::LruPolicy;

use super::values::{
    duration, lru_policy, percentage, positive_duration, positive_number, task_mode, whole_number, zone_policy,
};
use super::{FullArgs, MachineArgs, OutputArgs, QuickArgs, TaskRange, YardArgs};
use frameyard_workloads::TaskMode;

/// Policies. Each pair is run.
#[derive(Args, Clone, Debug)]
pub struct PolicyArgs {
    /// Policies of zones to compare
    #[arg(long = "policy", value_name = "POLICIES", value_delimiter = ',', value_parser = zone_policy(), default_value = ZonePolicy::default().name())]
    pub zones: Vec<ZonePolicy>,

    /// Policies of LRU lists to compare, each with each policy of zones
    #[arg(
        long = "lru",
        value_name = "POLICIES",
        value_delimiter = ',',
        value_parser = lru_policy(),
        default_value = "vanilla,sharded"
    )]
    pub lru: Vec<LruPolicy>,
}

impl PolicyArgs {
    /// Each policy of zones with each policy of LRU lists.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (ZonePolicy, LruPolicy)> {
        self.zones.iter().flat_map(|&zone| self.lru.iter().map(move |&lru| (zone, lru)))
    }
}

/// What is compared, here and on simulated machines.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Runs")]
pub struct ComparedArgs {
    /// Which policies.
    #[command(flatten)]
    pub policies: PolicyArgs,

    /// Numbers of tasks, single or as a range, as in 1,2,4 or 1..40 [default: 1,2,4,… up to the CPUs of the machine]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub tasks: Vec<TaskRange>,

    /// What a task is: a thread in a common address space, or a process with its own
    #[arg(long = "mode", value_name = "MODES", value_delimiter = ',', value_parser = task_mode(), default_value = "threads,processes")]
    pub modes: Vec<TaskMode>,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    pub seed: u64,
}

impl ComparedArgs {
    /// The numbers of tasks that the command line names.
    #[must_use]
    pub fn tasks(&self) -> Vec<NonZeroU32> {
        self.tasks.iter().flat_map(|range| range.numbers()).collect()
    }
}

/// What is compared on this machine, and how often it is run.
#[derive(Args, Clone, Debug)]
#[command(
    next_help_heading = "Runs",
    mut_arg("modes", |arg| arg.default_value_if("quick", "true", "threads"))
)]
pub struct ComparisonArgs {
    /// What is compared.
    #[command(flatten)]
    pub compared: ComparedArgs,

    /// Runs of each row, of which the median is reported [default: 3; highalloc: 1]
    #[arg(long, value_name = "N", value_parser = positive_number, default_value_if("quick", "true", "1"))]
    pub repeat: Option<NonZeroU32>,

    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,
    /// A run without limits.
    #[command(flatten)]
    pub full: FullArgs,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The yard.
    #[command(flatten)]
    pub yard: YardArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The duration of a run.
#[derive(Args, Clone, Copy, Debug)]
pub struct DurationArgs {
    /// Duration of each run, as in 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", default_value_if("quick", "true", "200ms"), value_parser = positive_duration)]
    pub duration: Duration,
}

/// Arguments of `bench page-fault`.
#[derive(Args, Clone, Debug)]
pub struct PageFaultArgs {
    /// Also write the columns of will-it-scale to a file; with several policies, one file for each pair, named after it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub will_it_scale: Option<PathBuf>,
    /// The duration.
    #[command(flatten)]
    pub duration: DurationArgs,
    /// What is compared.
    #[command(flatten)]
    pub comparison: ComparisonArgs,
}

/// Arguments of `bench fault-cost`.
#[derive(Args, Clone, Debug)]
pub struct FaultCostArgs {
    /// Which policies.
    #[command(flatten)]
    pub policies: PolicyArgs,
    /// Memory that is mapped at a time
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    pub map: ByteSize,
    /// Rounds, of which the median is reported
    #[arg(long, value_name = "N", default_value = "21", default_value_if("quick", "true", "5"), value_parser = positive_number)]
    pub repeat: NonZeroU32,
    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The yard.
    #[command(flatten)]
    pub yard: YardArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `bench parallel-free`.
#[derive(Args, Clone, Debug)]
pub struct ParallelFreeArgs {
    /// What is compared.
    #[command(flatten)]
    pub comparison: ComparisonArgs,
}

/// Arguments of `bench highalloc`.
#[derive(Args, Clone, Debug)]
pub struct HighallocArgs {
    /// Times between two requests for a huge block
    #[arg(long = "delay", value_name = "TIMES", value_delimiter = ',', default_value = "100ms,1ms", default_value_if("quick", "true", "1ms"), value_parser = duration)]
    pub delays: Vec<Duration>,
    /// Let that time pass; otherwise only its background work is done
    #[arg(long)]
    pub real_delay: bool,
    /// Time between the filling of memory and the first request
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    pub settle: Duration,
    /// The part of memory that builders hold in unmovable frames, up to 50%
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percentage)]
    pub unmovable: u8,
    /// What is compared.
    #[command(flatten)]
    pub comparison: ComparisonArgs,
}

/// Arguments of `bench order0-thp`.
#[derive(Args, Clone, Debug)]
pub struct Order0ThpArgs {
    /// The duration.
    #[command(flatten)]
    pub duration: DurationArgs,
    /// What is compared; each kind has that number of tasks.
    #[command(flatten)]
    pub comparison: ComparisonArgs,
}

/// Arguments of `bench purge`.
#[derive(Args, Clone, Debug)]
pub struct PurgeArgs {
    /// Threads that free for all tasks together [default: one for four tasks]; with --mode processes each process has one
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub purgers: Option<NonZeroU32>,
    /// The duration.
    #[command(flatten)]
    pub duration: DurationArgs,
    /// What is compared.
    #[command(flatten)]
    pub comparison: ComparisonArgs,
}

/// Arguments of the hidden command that worker processes run.
#[derive(Clone, Debug)]
pub struct WorkerArgs {
    /// The task, as JSON.
    pub order: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        args: HighallocArgs,
    }

    fn read(line: &str) -> Result<HighallocArgs, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bare_workload_compares_every_pair_of_policies_in_both_modes() {
        let args = read("").unwrap();
        let comparison = args.comparison.compared;
        assert_eq!(comparison.policies.lru, LruPolicy::ALL);
        assert_eq!(comparison.policies.zones, [ZonePolicy::Depot]);
        assert_eq!(comparison.modes, [TaskMode::Threads, TaskMode::Processes]);
        assert_eq!(args.delays, [Duration::from_millis(100), Duration::from_millis(1)]);
        assert_eq!(args.unmovable, 5);
    }

    #[test]
    fn quick_runs_have_other_defaults_and_options_override_them() {
        let args = read("--quick").unwrap();
        assert_eq!((args.delays, args.comparison.repeat), (vec![Duration::from_millis(1)], NonZeroU32::new(1)));
        assert_eq!(args.comparison.compared.modes, [TaskMode::Threads]);
        assert_eq!(read("--quick --repeat 7").unwrap().comparison.repeat, NonZeroU32::new(7));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        for (line, says) in [
            ("--tasks 0", "as in 4 or 1..40"),
            ("--lru fast", "possible values: vanilla, sharded"),
            ("--policy fast", "possible values: vanilla"),
            ("--delay 5", "as in 500ms or 2s"),
            ("--delay 99999999999999999999s", "as in 500ms or 2s"),
            ("--unmovable 51%", "from 0% to 50%"),
            ("--mode fibres", "possible values: threads, processes"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
