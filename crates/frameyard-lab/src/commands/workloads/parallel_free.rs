//! `parallel-free`: the exit of address spaces that hold most of memory.

use clap::Args;
use frameyard::ByteSize;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::highalloc::HUGE;
use frameyard_workloads::parallel_free::{self, FreeRun};
use frameyard_workloads::sim::{SimFixture, SimRun};
use frameyard_workloads::{Pages, Setting};

use super::{
    Compared, ComparedRow, Comparison, MEDIANS, Measured, Native, REPEAT, Simulated, Workload, Yards, counts, simulate,
};
use crate::Failure;
use crate::args::{ComparisonArgs, SimRunArgs};
use crate::measure::{Spread, median_first};
use crate::output::{Format, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 90 seconds; --quick about 10.

Examples:
  frameyard bench parallel-free --memory 2G --tasks 2 --mode threads
  frameyard bench parallel-free --huge --policy vanilla,bits";

/// Exits address spaces that hold most of memory
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(in crate::commands) struct ParallelFreeArgs {
    #[command(flatten)]
    mapping: MappingArgs,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// What the spaces map.
#[derive(Args, Clone, Copy, Debug)]
struct MappingArgs {
    /// Map huge pages (2 MiB), so that the exit frees blocks of order 9
    #[arg(long)]
    huge: bool,
}

impl MappingArgs {
    fn pages(self) -> Pages {
        if self.huge { Pages::Huge } else { Pages::Small }
    }
}

/// The same for simulated machines.
const SIM_HELP: &str = "\
Takes about 30 seconds; --quick about 2.

Examples:
  frameyard sim parallel-free --machine skylake-112 --tasks 16,64 --mode threads
  frameyard sim parallel-free --huge --machine skylake-4s --memory 64G --tasks 1,64 --mode threads --lru vanilla";

/// Tears down address spaces that hold most of memory
#[derive(Args, Clone, Debug)]
#[command(after_help = SIM_HELP)]
pub(in crate::commands) struct SimParallelFreeArgs {
    #[command(flatten)]
    mapping: MappingArgs,
    #[command(flatten)]
    runs: SimRunArgs,
}

/// Runs on this machine.
pub(in crate::commands) fn bench(args: &ParallelFreeArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, "bench parallel-free", Yards::OneForAllPolicies, REPEAT)?;
    if args.mapping.huge {
        comparison.check_order(HUGE)?;
    }
    comparison.run(&[ParallelFree { seed: args.comparison.compared.seed, pages: args.mapping.pages() }], MEDIANS)
}

/// Runs on a simulated machine.
pub(in crate::commands) fn sim(args: &SimParallelFreeArgs) -> Result<(), Failure> {
    simulate(
        &args.runs,
        "sim parallel-free",
        &ParallelFree { seed: args.runs.compared.seed, pages: args.mapping.pages() },
    )
}

struct ParallelFree {
    seed: u64,
    pages: Pages,
}

impl Workload for ParallelFree {
    type Run = FreeRun;

    fn needed(&self, setting: &Setting) -> ByteSize {
        parallel_free::memory_needed(setting.tasks.get())
    }
}

impl Compared for ParallelFree {
    /// Tasks are workers of one exit, or processes that exit at once.
    fn rows(&self, measured: Measured<FreeRun>) -> Vec<ComparedRow> {
        let columns = measured.columns();
        let Measured { setting, runs, .. } = measured;
        let time = |run: &FreeRun| run.exit_ns as f64;
        let times = Spread::of(runs.iter().map(time)).map(|times| times.map(|ns| ns as u64));
        let (run, _) = median_first(runs, time);
        let row = columns
            .data("pages", run.pages.0)
            .column("huge_pages", "huge pages", run.huge)
            .minor()
            .column_as("mapped_bytes", "mapped", Format::Size, run.pages.0 * ByteSize::kib(4).0)
            .spread(
                "exit_ns",
                "exit ms",
                Format::millions(1),
                times.map(|times| Spread { median: run.exit_ns, ..times }),
            )
            .column_as(
                "pages_per_s",
                "pages/s",
                Format::number(0),
                rounded(run.pages.0 as f64 * 1e9 / run.exit_ns.max(1) as f64),
            )
            .followed_by(counts(&run.counts));
        let group = format!("{}, workers: {}; time of the exit", setting.mode.name(), setting.tasks);
        vec![ComparedRow { row, group, result: format!("{:.1} ms", time(&run) / 1e6) }]
    }
}

impl Native for ParallelFree {
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<FreeRun, Failure> {
        Ok(parallel_free::run(fixture, setting, self.seed, self.pages)?)
    }
}

impl Simulated for ParallelFree {
    fn simulate(&self, fixture: &SimFixture<'_>, setting: &Setting) -> Result<SimRun<FreeRun>, Failure> {
        Ok(frameyard_workloads::sim::parallel_free(fixture, setting, self.seed, self.pages)?)
    }
}
