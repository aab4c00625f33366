//! Arguments of `stress`.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use frameyard::policy::ZonePolicy;

use super::values::{positive_duration, positive_number, task_mode, whole_number};
use super::{MachineArgs, OutputArgs, YardArgs};
use frameyard_workloads::TaskMode;

/// The policies of zones of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StressPolicy {
    /// One policy.
    One(ZonePolicy),
    /// Every policy, one run for each.
    All,
    /// Every policy in one run, switched at random.
    Switching,
}

impl fmt::Display for StressPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(policy) => f.write_str(policy.name()),
            Self::All => f.write_str("all"),
            Self::Switching => f.write_str("switching"),
        }
    }
}

/// Reads a policy, `all` or `switching`.
fn stress_policy() -> impl TypedValueParser<Value = StressPolicy> {
    let names = ["switching", "all"].into_iter().chain(ZonePolicy::ALL.iter().map(|policy| policy.name()));
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        "switching" => Ok(StressPolicy::Switching),
        "all" => Ok(StressPolicy::All),
        name => ZonePolicy::from_str(name).map(StressPolicy::One),
    })
}

/// A number of operations: digits, with `k`, `M` or `G` for 10³, 10⁶ and 10⁹.
fn operations(text: &str) -> Result<NonZeroU64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).and_then(NonZeroU64::new);
    // The count cannot overflow while tasks begin the last operations.
    number.filter(|number| number.get() <= 1 << 60).ok_or_else(|| {
        "write a whole number from 1 to 2^60, or one with k, M or G behind it, as in 500k or 1G".to_owned()
    })
}

/// Arguments of `stress`.
#[derive(Args, Clone, Debug)]
pub struct StressArgs {
    /// Tasks that allocate and free [default: the CPUs here]
    #[arg(long, value_name = "N", value_parser = positive_number, help_heading = "Runs")]
    pub tasks: Option<NonZeroU32>,

    /// Allocations and frees of all tasks together, under each policy; as in 500k or 1G
    #[arg(long, value_name = "N", default_value = "20M", value_parser = operations, help_heading = "Runs")]
    pub ops: NonZeroU64,

    /// A policy of zones, all of them in turn, or switching at random
    #[arg(long, value_name = "POLICY", value_parser = stress_policy(), default_value_t = StressPolicy::Switching, help_heading = "Runs")]
    pub policy: StressPolicy,

    /// What a task is: a thread, or a process that shares the yard
    #[arg(long, value_parser = task_mode(), default_value = "threads", help_heading = "Runs")]
    pub mode: TaskMode,

    /// Seed of the random choices; the interleaving of tasks differs in any case
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number, help_heading = "Runs")]
    pub seed: u64,

    /// Time between two validations of the yard, as in 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = positive_duration, help_heading = "Runs")]
    pub interval: Duration,

    /// The machine: 512M of memory by default.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The yard.
    #[command(flatten)]
    pub yard: YardArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        args: StressArgs,
    }

    fn read(line: &str) -> Result<StressArgs, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bare_run_switches_policies_between_threads() {
        let args = read("").unwrap();
        assert_eq!((args.policy, args.mode), (StressPolicy::Switching, TaskMode::Threads));
        assert_eq!((args.ops.get(), args.tasks), (20_000_000, None));
    }

    #[test]
    fn operations_may_be_written_in_thousands() {
        for (text, ops) in [("7", 7), ("500k", 500_000), ("3M", 3_000_000), ("1G", 1_000_000_000)] {
            assert_eq!(operations(text), Ok(NonZeroU64::new(ops).unwrap()));
        }
        for text in ["", "0", "k", "-1", "1.5G", "1e9", "99999999999G"] {
            assert!(operations(text).unwrap_err().contains("as in 500k or 1G"), "{text}");
        }
    }

    #[test]
    fn every_policy_can_be_chosen_by_its_name() {
        for policy in ZonePolicy::ALL {
            assert_eq!(read(&format!("--policy {policy}")).unwrap().policy, StressPolicy::One(policy));
        }
        assert_eq!(read("--policy all").unwrap().policy, StressPolicy::All);
        assert!(read("--policy fast").unwrap_err().contains("possible values: switching, all, vanilla"));
    }
}
