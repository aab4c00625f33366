//! The simulated machine and the compared policies.

use clap::{Args, ValueEnum, ValueHint};
use frameyard::ByteSize;
use frameyard::policy::ZonePolicy;
use frameyard_sim::ListAccess;

use super::values::{Sizings, one_sizing, positive_size};
use super::{ComparedArgs, OutputArgs, QuickArgs};
use crate::output::OutputFile;

/// The simulated machine and the compared policies.
#[derive(Args, Clone, Debug)]
#[command(
    next_help_heading = "Runs",
    mut_arg("modes", |arg| arg.default_value_if("quick", "true", "threads")),
    mut_arg("lru", |arg| arg.default_value_if("quick", "true", "vanilla"))
)]
pub(crate) struct SimRunArgs {
    /// A built-in machine with costs (see `frameyard machines`), or a file that describes one (TOML)
    #[arg(long, value_name = "NAME|FILE", default_value = "broadwell-40", value_hint = ValueHint::AnyPath)]
    pub(crate) machine: String,

    /// Memory of the machine, all nodes together [default: enough for the tasks]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    pub(crate) memory: Option<ByteSize>,

    #[command(flatten)]
    pub(crate) compared: ComparedArgs,

    /// Size of the per-CPU lists: scaled, classic, early, fraction:N or fixed:N; kernels up to 5.13 had classic, up
    /// to 4.18 early
    #[arg(long, value_name = "SIZING", value_parser = one_sizing, default_value = "classic")]
    pub(crate) pcp_sizing: Sizings,

    /// How CPUs use their own lists
    #[arg(long, value_name = "ACCESS", value_enum, default_value = "by-policy")]
    pub(crate) list_access: ListAccessArg,

    /// Also write a profile of virtual time as folded stacks for flame graphs; several rows get one file each, named
    /// after the row
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<OutputFile>,

    #[command(flatten)]
    pub(crate) quick: QuickArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How simulated CPUs use their own lists.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListAccessArg {
    /// In restartable sequences under bits; under locks with all other policies, which stand for kernels
    ByPolicy,
    /// Under the lock of the lists
    Locks,
    /// In restartable sequences
    #[value(name = "sections")]
    Sequences,
}

impl ListAccessArg {
    /// The access in a yard with that policy.
    pub(crate) fn of(self, policy: ZonePolicy) -> ListAccess {
        match self {
            Self::ByPolicy => ListAccess::of_policy(policy),
            Self::Locks => ListAccess::Locks,
            Self::Sequences => ListAccess::Sequences,
        }
    }
}
