//! Arguments of `bench zone-lock`.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, ValueEnum};
use frameyard::ZonePolicy;
use frameyard_vm::LruPolicy;

use super::values::{positive_duration, positive_number, task_mode, whole_number};
use super::workload_args::{PolicyArgs, lru_policy, zone_policy};
use super::{ComparisonArgs, MachineArgs, OutputArgs, YardArgs};
use frameyard_workloads::TaskMode;

/// A workload that shows what a zone's lock costs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneLockWorkload {
    /// Mappings are faulted in and unmapped
    PageFault,
    /// Spaces that hold most of memory exit
    ParallelFree,
    /// Pages are freed on other CPUs than they were allocated on
    Purge,
    /// Huge blocks are asked for in memory full of page cache
    Highalloc,
    /// Tasks with huge pages run beside others without
    #[value(name = "order0-thp")]
    Order0Thp,
    /// Single frames are allocated and freed: in bulk, in random order, and one after the other; as threads alone
    Alloc,
}

impl ZoneLockWorkload {
    /// The name in the command line and in rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PageFault => "page-fault",
            Self::ParallelFree => "parallel-free",
            Self::Purge => "purge",
            Self::Highalloc => "highalloc",
            Self::Order0Thp => "order0-thp",
            Self::Alloc => "alloc",
        }
    }
}

/// Every policy, as a list of the command line.
fn all_policies() -> impl Iterator<Item = &'static str> {
    ZonePolicy::ALL.into_iter().map(ZonePolicy::name)
}

/// Arguments of `bench zone-lock`.
#[derive(Args, Clone, Debug)]
pub struct ZoneLockArgs {
    /// Workloads to run
    #[arg(
        long = "workload",
        value_name = "WORKLOADS",
        value_delimiter = ',',
        value_enum,
        default_value = "page-fault,parallel-free,purge,highalloc,order0-thp,alloc",
        help_heading = "Runs"
    )]
    pub workloads: Vec<ZoneLockWorkload>,

    /// Policies of zones to compare; the first is what the others are compared with
    #[arg(long = "policy", value_name = "POLICIES", value_delimiter = ',', value_parser = zone_policy(), default_values = all_policies(), hide_default_value = true, help_heading = "Runs")]
    pub policies: Vec<ZonePolicy>,

    /// Policies of the lists of used pages, each with each policy of zones, where pages have owners
    #[arg(
        long = "lru",
        value_name = "POLICIES",
        value_delimiter = ',',
        value_parser = lru_policy(),
        default_value = "vanilla,sharded",
        help_heading = "Runs"
    )]
    pub lru_policies: Vec<LruPolicy>,

    /// Numbers of tasks to run with; order0-thp: of each kind [default: one for each CPU here; alloc: also one alone]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = positive_number, help_heading = "Runs")]
    pub tasks: Vec<NonZeroU32>,

    /// What a task is: a thread in one address space, or a process with one of its own
    #[arg(
        long = "mode",
        value_name = "MODES",
        value_delimiter = ',',
        value_parser = task_mode(),
        default_value = "threads",
        help_heading = "Runs"
    )]
    pub modes: Vec<TaskMode>,

    /// How long each run of page-fault, purge and order0-thp works, as in 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = positive_duration, help_heading = "Runs")]
    pub duration: Duration,

    /// Runs of each row without timed locks, of which the median is reported; one with them follows [default: 3; highalloc
    /// and order0-thp: 2]
    #[arg(long, value_name = "N", value_parser = positive_number, help_heading = "Runs")]
    pub repeat: Option<NonZeroU32>,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number, help_heading = "Runs")]
    pub seed: u64,

    /// Lift the limit of about five minutes on 2 CPUs: runs of a second, in both modes, and memory maps of more than 4 GiB
    #[arg(long, help_heading = "Runs")]
    pub full: bool,

    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The yard.
    #[command(flatten)]
    pub yard: YardArgs,
    /// How the result is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How long a run works at least, where there is no limit.
const FULL_DURATION: Duration = Duration::from_secs(1);

impl ZoneLockArgs {
    /// How long a run works.
    #[must_use]
    pub fn duration(&self) -> Duration {
        if self.full { self.duration.max(FULL_DURATION) } else { self.duration }
    }

    /// What is compared, as the workloads' own commands have it.
    #[must_use]
    pub fn comparison(&self) -> ComparisonArgs {
        ComparisonArgs {
            policies: PolicyArgs { zones: self.policies.clone(), lru: self.lru_policies.clone() },
            tasks: self.tasks.clone(),
            modes: if self.full { vec![TaskMode::Threads, TaskMode::Processes] } else { self.modes.clone() },
            repeat: self.repeat,
            seed: self.seed,
            full: self.full,
            machine: self.machine.clone(),
            yard: self.yard,
            output: self.output.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        args: ZoneLockArgs,
    }

    fn read(line: &str) -> Result<ZoneLockArgs, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bare_run_compares_every_policy_in_every_workload() {
        let args = read("").unwrap();
        assert_eq!(args.policies, ZonePolicy::ALL);
        assert_eq!(args.workloads, ZoneLockWorkload::value_variants());
        assert_eq!(args.lru_policies, LruPolicy::ALL);
        assert_eq!(args.modes, [TaskMode::Threads]);
    }

    #[test]
    fn workloads_have_the_same_names_in_the_command_line_and_in_rows() {
        for workload in ZoneLockWorkload::value_variants() {
            assert_eq!(workload.to_possible_value().unwrap().get_name(), workload.name());
        }
    }

    #[test]
    fn without_the_limit_runs_are_longer_and_in_both_modes() {
        let args = read("--full --policy depot,vanilla").unwrap();
        assert_eq!((args.duration(), args.comparison().modes.len()), (FULL_DURATION, 2));
        assert_eq!(args.policies, [ZonePolicy::Depot, ZonePolicy::Vanilla]);
        assert_eq!(read("--full --duration 3s").unwrap().duration(), Duration::from_secs(3));
    }

    #[test]
    fn wrong_values_are_refused_with_what_would_be_right() {
        for (line, says) in [
            ("--policy fast", "possible values: vanilla"),
            ("--workload idle", "possible values: page-fault"),
            ("--lru fast", "possible values: vanilla, sharded"),
            ("--tasks 0", "from 1"),
            ("--repeat 0", "from 1"),
            ("--duration 5", "as in 500ms or 2s"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
