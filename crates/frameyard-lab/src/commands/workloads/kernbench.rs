//! `kernbench`: jobs of a build. Each job is a process that computes between its first uses of pages.
//!
//! The columns are those of [`page_fault`](super::page_fault); the mapped size is the memory of a job.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use frameyard::ByteSize;
use frameyard_workloads::Setting;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::kernbench::{self, Job};
use frameyard_workloads::timed_run::TaskRun;

use super::{Compared, ComparedRow, Comparison, MEDIANS, Measured, Native, REPEAT, Workload, Yards, page_fault};
use crate::Failure;
use crate::args::values::{positive_number, whole_number};
use crate::args::{ComparisonArgs, DurationArgs};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 100 seconds; --quick about 5.

Example:
  frameyard bench kernbench --tasks 2 --policy vanilla,bits --compute 20000";

/// Runs jobs of a build: processes that compute between their first uses of pages
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(in crate::commands) struct KernbenchArgs {
    #[command(flatten)]
    build: BuildArgs,
    #[command(flatten)]
    duration: DurationArgs,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// What a job of a build is.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Jobs")]
pub(in crate::commands) struct BuildArgs {
    /// Pages that the process of a job uses
    #[arg(long, value_name = "N", default_value = "1024", value_parser = positive_number)]
    pages: NonZeroU32,

    /// Mappings that hold its pages
    #[arg(long, value_name = "N", default_value = "8", value_parser = positive_number)]
    mappings: NonZeroU32,

    /// Cycles of computing for each page
    #[arg(long, value_name = "CYCLES", default_value_t = Job::COMPUTE, value_parser = whole_number)]
    compute: u64,

    /// Cycles of other kernel work for each page: creating processes, reading and writing files
    #[arg(long, value_name = "CYCLES", default_value_t = Job::KERNEL_WORK, value_parser = whole_number)]
    kernel_work: u64,
}

impl From<BuildArgs> for Job {
    fn from(args: BuildArgs) -> Self {
        let BuildArgs { pages, mappings, compute, kernel_work } = args;
        Self { pages: pages.get(), mappings: mappings.get(), compute, kernel_work }
    }
}

/// Runs on this machine.
pub(in crate::commands) fn bench(args: &KernbenchArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, "bench kernbench", Yards::OneForAllPolicies, REPEAT)?;
    let build: Job = args.build.into();
    let Job { pages, compute, kernel_work, .. } = build;
    let note = format!(
        "{MEDIANS} Each job has its own address space and uses {pages} pages. For each page it multiplies for {compute} cycles of computing and {kernel_work} of other work."
    );
    comparison.run(&[Kernbench { build, seed: args.comparison.compared.seed, duration: args.duration.duration }], note)
}

struct Kernbench {
    build: Job,
    seed: u64,
    duration: Duration,
}

impl Workload for Kernbench {
    type Run = TaskRun;

    fn needed(&self, setting: &Setting) -> ByteSize {
        kernbench::memory_needed(setting.tasks.get(), self.build)
    }
}

impl Compared for Kernbench {
    fn rows(&self, measured: Measured<TaskRun>) -> Vec<ComparedRow> {
        vec![page_fault::row(measured, self.build.memory())]
    }
}

impl Native for Kernbench {
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<TaskRun, Failure> {
        Ok(kernbench::run(fixture, setting, self.seed, self.build, self.duration)?)
    }
}
