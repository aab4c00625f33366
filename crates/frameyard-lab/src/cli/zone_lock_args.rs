//! Arguments of `bench zone-lock`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use frameyard::policy::ZonePolicy;

use super::ComparisonArgs;
use super::values::positive_duration;
use frameyard_workloads::TaskMode;

/// A workload that shows the cost of the zone lock.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneLockWorkload {
    /// Mappings are faulted in and unmapped
    PageFault,
    /// Address spaces that hold most of memory exit
    ParallelFree,
    /// Pages are freed on other CPUs than they were allocated on
    Purge,
    /// Huge blocks are allocated in memory full of page cache
    Highalloc,
    /// Tasks with huge pages run beside tasks without
    #[value(name = "order0-thp")]
    Order0Thp,
    /// Single frames are allocated and freed: in bulk, in random order, and one after the other; only threads
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

/// Arguments of `bench zone-lock`. The first policy of zones is what each further one is compared with.
#[derive(Args, Clone, Debug)]
#[command(
    mut_arg("zones", |arg| arg.default_values(all_policies()).default_value_if("quick", "true", "vanilla,depot").hide_default_value(true)),
    mut_arg("lru", |arg| arg.default_value_if("quick", "true", "vanilla")),
    mut_arg("modes", |arg| arg.default_value("threads"))
)]
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

    /// Duration of each run of page-fault, purge and order0-thp, as in 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "250ms", default_value_if("quick", "true", "100ms"), value_parser = positive_duration, help_heading = "Runs")]
    pub duration: Duration,

    /// What is compared.
    #[command(flatten)]
    pub comparison: ComparisonArgs,
}

/// The least duration of a run without limits.
const FULL_DURATION: Duration = Duration::from_secs(1);

impl ZoneLockArgs {
    /// The duration of a run.
    #[must_use]
    pub fn duration(&self) -> Duration {
        if self.comparison.full.full { self.duration.max(FULL_DURATION) } else { self.duration }
    }

    /// The comparison of each workload.
    #[must_use]
    pub fn comparison(&self) -> ComparisonArgs {
        let mut comparison = self.comparison.clone();
        if comparison.full.full {
            comparison.compared.modes = vec![TaskMode::Threads, TaskMode::Processes];
        }
        comparison
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use frameyard_vm::LruPolicy;

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
        assert_eq!(args.comparison.compared.policies.zones, ZonePolicy::ALL);
        assert_eq!(args.workloads, ZoneLockWorkload::value_variants());
        assert_eq!(args.comparison.compared.policies.lru, LruPolicy::ALL);
        assert_eq!(args.comparison.compared.modes, [TaskMode::Threads]);
    }

    #[test]
    fn workloads_have_the_same_names_in_the_command_line_and_in_rows() {
        for workload in ZoneLockWorkload::value_variants() {
            assert_eq!(workload.to_possible_value().unwrap().get_name(), workload.name());
        }
    }

    #[test]
    fn full_runs_are_longer_and_in_both_modes() {
        let args = read("--full --policy depot,vanilla").unwrap();
        assert_eq!((args.duration(), args.comparison().compared.modes.len()), (FULL_DURATION, 2));
        assert_eq!(args.comparison.compared.policies.zones, [ZonePolicy::Depot, ZonePolicy::Vanilla]);
        assert_eq!(read("--full --duration 3s").unwrap().duration(), Duration::from_secs(3));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        for (line, says) in [
            ("--policy fast", "possible values: vanilla"),
            ("--workload idle", "possible values: page-fault"),
            ("--lru fast", "possible values: vanilla, sharded"),
            ("--tasks 0", "as in 4 or 1..40"),
            ("--repeat 0", "from 1"),
            ("--duration 5", "as in 500ms or 2s"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
