//! `bench kernbench`: jobs of a build, each a process that computes between its first uses of pages.
//!
//! The columns are those of `bench page-fault`; what is mapped is what a job uses.

use std::num::NonZeroU32;

use super::comparison::{Comparison, Row, Yards};
use super::page_fault::{Values, row, write_rows};
use crate::Failure;
use crate::cli::KernbenchArgs;
use frameyard_workloads::Setting;
use frameyard_workloads::kernbench::{self, Job};

/// The name of the command.
const NAME: &str = "bench kernbench";
/// Runs of a row, unless asked for otherwise.
const REPEAT: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// Runs every combination of mode, number of tasks and policies.
pub(super) fn run(args: &KernbenchArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, NAME, Yards::OneForAllPolicies, REPEAT)?;
    let build: Job = args.build.into();
    let needed = |setting: &Setting| kernbench::memory_needed(setting.tasks.get(), build);
    let (seed, duration) = (args.comparison.seed, args.duration.duration);
    let compared =
        comparison.measure(1, needed, |fixture, setting, _| Ok(kernbench::run(fixture, setting, seed, build, duration)?))?;
    let rows: Vec<Row<Values>> = compared.into_iter().map(|(_, compared)| row(compared, build.memory())).collect();
    let Job { pages, compute, kernel_work, .. } = build;
    let note = format!(
        "Medians (least–most) of the runs; the other columns are those of the median run. Each job has an address space of its\n\
         own and uses {pages} pages; {compute} cycles of computing and {kernel_work} of other work go with each, as multiplications."
    );
    comparison.print(&rows, write_rows, &note)
}
