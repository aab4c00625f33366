//! Arguments of the workloads that compare policies.

use std::num::NonZeroU32;

use clap::Args;
use frameyard::policy::ZonePolicy;
use frameyard_vm::LruPolicy;
use frameyard_workloads::TaskMode;

use super::values::{lru_policy, positive_number, task_mode, whole_number, zone_policy};
use super::{FullArgs, MachineArgs, OutputArgs, QuickArgs, TaskRange, YardArgs};

/// Policies. Each pair is run.
#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyArgs {
    /// Policies of zones to compare
    #[arg(long = "policy", value_name = "POLICIES", value_delimiter = ',', value_parser = zone_policy(), default_value = ZonePolicy::default().name())]
    pub(crate) zones: Vec<ZonePolicy>,

    /// Policies of LRU lists to compare, each with each policy of zones
    #[arg(
        long = "lru",
        value_name = "POLICIES",
        value_delimiter = ',',
        value_parser = lru_policy(),
        default_value = "vanilla,sharded"
    )]
    pub(crate) lru: Vec<LruPolicy>,
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
pub(crate) struct ComparedArgs {
    #[command(flatten)]
    pub(crate) policies: PolicyArgs,

    /// Numbers of tasks, single or as a range, as in 1,2,4 or 1..40 [default: 1,2,4,… up to the CPUs of the machine]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) tasks: Vec<TaskRange>,

    /// What a task is: a thread in a common address space, or a process with its own
    #[arg(long = "mode", value_name = "MODES", value_delimiter = ',', value_parser = task_mode(), default_value = "threads,processes")]
    pub(crate) modes: Vec<TaskMode>,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    pub(crate) seed: u64,
}

impl ComparedArgs {
    /// The numbers of tasks that the command line names.
    #[must_use]
    pub(crate) fn tasks(&self) -> Vec<NonZeroU32> {
        self.tasks.iter().flat_map(|range| range.numbers()).collect()
    }
}

/// What is compared on this machine, and how often it is run.
#[derive(Args, Clone, Debug)]
#[command(
    next_help_heading = "Runs",
    mut_arg("modes", |arg| arg.default_value_if("quick", "true", "threads"))
)]
pub(crate) struct ComparisonArgs {
    #[command(flatten)]
    pub(crate) compared: ComparedArgs,

    /// Runs of each row, of which the median is reported [default: 3; highalloc: 1]
    #[arg(long, value_name = "N", value_parser = positive_number, default_value_if("quick", "true", "1"))]
    pub(crate) repeat: Option<NonZeroU32>,

    #[command(flatten)]
    pub(crate) quick: QuickArgs,
    #[command(flatten)]
    pub(crate) full: FullArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) yard: YardArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
