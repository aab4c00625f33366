//! Arguments of `bench kernbench` and `sim kernbench`.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum, ValueHint};
use frameyard::ByteSize;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard_vm::LruPolicy;

use frameyard_workloads::kernbench::Job;

use super::values::{positive_number, positive_size, whole_number};
use super::{ComparisonArgs, DurationArgs, OutputArgs, PolicyArgs, VirtualDurationArgs};

/// By which memory per-CPU lists are sized.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListsSized {
    /// By the memory of early boot: one section of each zone
    Early,
    /// By all memory, once all of it is initialised
    Final,
}

impl ListsSized {
    /// The name on command lines and in rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Final => "final",
        }
    }
}

/// What a job of a build is.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Jobs")]
pub struct BuildArgs {
    /// Pages that the process of a job uses
    #[arg(long, value_name = "N", default_value = "1024", value_parser = positive_number)]
    pub pages: NonZeroU32,

    /// Mappings that hold its pages
    #[arg(long, value_name = "N", default_value = "8", value_parser = positive_number)]
    pub mappings: NonZeroU32,

    /// Cycles of computing for each page
    #[arg(long, value_name = "CYCLES", default_value = "74000", value_parser = whole_number)]
    pub compute: u64,

    /// Cycles of other kernel work for each page: creating processes, reading and writing files
    #[arg(long, value_name = "CYCLES", default_value_t = Job::KERNEL_WORK, value_parser = whole_number)]
    pub kernel_work: u64,
}

impl From<BuildArgs> for Job {
    fn from(args: BuildArgs) -> Self {
        let BuildArgs { pages, mappings, compute, kernel_work } = args;
        Self { pages: pages.get(), mappings: mappings.get(), compute, kernel_work }
    }
}

/// Arguments of `bench kernbench`.
#[derive(Args, Clone, Debug)]
pub struct KernbenchArgs {
    /// What a job is.
    #[command(flatten)]
    pub build: BuildArgs,
    /// How long.
    #[command(flatten)]
    pub duration: DurationArgs,
    /// What is compared.
    #[command(flatten)]
    pub comparison: ComparisonArgs,
}

/// Arguments of `sim kernbench`.
#[derive(Args, Clone, Debug)]
#[command(
    mut_arg("zones", |arg| arg.default_value(ZonePolicy::Vanilla.name())),
    mut_arg("lru", |arg| arg.default_value(LruPolicy::Vanilla.name()))
)]
pub struct SimKernbenchArgs {
    /// A built-in simulated machine, or a file that describes one (TOML)
    #[arg(long, value_name = "NAME|FILE", default_value = "epyc2-256", value_hint = ValueHint::AnyPath)]
    pub machine: String,

    /// CPUs of each zone, both threads of its cores [default: all CPUs of a socket]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = positive_number)]
    pub zone_cpus: Vec<NonZeroU32>,

    /// Sizes of zones, whole sections of 128M [default: 4G, or what the jobs need]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = positive_size)]
    pub zone_size: Vec<ByteSize>,

    /// By which memory per-CPU lists are sized
    #[arg(long, value_name = "WHEN", value_delimiter = ',', value_enum, default_value = "early,final")]
    pub lists: Vec<ListsSized>,

    /// Size of the per-CPU lists: scaled, classic, early, fraction:N or fixed:N; classic is what kernels up to 5.13 had, early up to 4.18
    #[arg(long, value_name = "SIZING", default_value = "classic")]
    pub pcp_sizing: PcpSizing,

    /// Which policies.
    #[command(flatten)]
    pub policies: PolicyArgs,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    pub seed: u64,

    /// What a job is.
    #[command(flatten)]
    pub build: BuildArgs,
    /// How long.
    #[command(flatten)]
    pub duration: VirtualDurationArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}
