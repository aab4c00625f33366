//! `kernbench`: jobs of a build. Each job is a process that computes between its first uses of pages.
//!
//! The columns are those of [`page_fault`](super::page_fault); the mapped size is the memory of a job.

use std::time::Duration;

use frameyard::ByteSize;

use super::{Compared, ComparedRow, Comparison, MEDIANS, Measured, Native, REPEAT, Workload, Yards, page_fault};
use crate::Failure;
use crate::cli::KernbenchArgs;
use frameyard_workloads::Setting;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::kernbench::{self, Job};
use frameyard_workloads::timed_run::TaskRun;

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
