//! `purge`: pages that are freed on other CPUs than they were allocated on.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use frameyard::ByteSize;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::sim::{SimFixture, SimRun};
use frameyard_workloads::timed_run::TaskRun;
use frameyard_workloads::{Setting, TaskMode, purge};

use super::{
    Compared, ComparedRow, Comparison, MEDIANS, Measured, Native, REPEAT, Simulated, Workload, Yards, counts, simulate,
};
use crate::Failure;
use crate::args::values::positive_number;
use crate::args::{ComparisonArgs, DurationArgs, SimRunArgs, VirtualDurationArgs};
use crate::measure::{Spread, median_first};
use crate::output::{Format, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 100 seconds; --quick about 5.

Example:
  frameyard bench purge --tasks 2 --purgers 1 --policy vanilla,bits";

/// Frees pages on other CPUs than they were allocated on
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(in crate::commands) struct PurgeArgs {
    /// Threads that free for all tasks together [default: one for four tasks]; with --mode processes each process has one
    #[arg(long, value_name = "N", value_parser = positive_number)]
    purgers: Option<NonZeroU32>,
    #[command(flatten)]
    duration: DurationArgs,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// The same for simulated machines.
const SIM_HELP: &str = "\
Takes about 30 seconds; --quick about 1.

Example:
  frameyard sim purge --tasks 16 --purgers 4 --mode threads --policy vanilla,bits";

/// Frees pages on other CPUs than they were allocated on
#[derive(Args, Clone, Debug)]
#[command(after_help = SIM_HELP)]
pub(in crate::commands) struct SimPurgeArgs {
    /// Freeing threads, in total for threads [default: one for four tasks]; each process has one of its own
    #[arg(long, value_name = "N", value_parser = positive_number)]
    purgers: Option<NonZeroU32>,
    #[command(flatten)]
    duration: VirtualDurationArgs,
    #[command(flatten)]
    runs: SimRunArgs,
}

/// What the columns mean.
const NOTE: &str =
    "Freed elsewhere: on another CPU than the one that allocated. Purgers have their own CPUs where there are two.";

/// Runs on this machine.
pub(in crate::commands) fn bench(args: &PurgeArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, "bench purge", Yards::OneForAllPolicies, REPEAT)?;
    let (seed, duration) = (args.comparison.compared.seed, args.duration.duration);
    comparison.run(&[Purge { purgers: args.purgers, seed, duration }], format!("{MEDIANS} {NOTE}"))
}

/// Runs on a simulated machine.
pub(in crate::commands) fn sim(args: &SimPurgeArgs) -> Result<(), Failure> {
    let workload = Purge { purgers: args.purgers, seed: args.runs.compared.seed, duration: args.duration.duration };
    simulate(&args.runs, "sim purge", &workload)
}

/// Purgers of a setting: `asked` threads for all tasks together, or one for each process.
pub(in crate::commands) fn purgers(setting: &Setting, asked: Option<NonZeroU32>) -> u32 {
    match setting.mode {
        TaskMode::Threads => asked.map_or_else(|| purge::usual_purgers(setting.tasks.get()), NonZeroU32::get),
        TaskMode::Processes => setting.tasks.get(),
    }
}

struct Purge {
    purgers: Option<NonZeroU32>,
    seed: u64,
    duration: Duration,
}

impl Workload for Purge {
    type Run = TaskRun;

    fn needed(&self, setting: &Setting) -> ByteSize {
        purge::memory_needed(setting.tasks.get(), purgers(setting, self.purgers))
    }
}

impl Compared for Purge {
    fn rows(&self, measured: Measured<TaskRun>) -> Vec<ComparedRow> {
        let columns = measured.columns();
        let Measured { setting, runs, .. } = measured;
        let rates = Spread::of(runs.iter().map(TaskRun::rate)).map(|rates| rates.map(rounded));
        let (run, _) = median_first(runs, TaskRun::rate);
        // Purgers that are tasks follow the tasks that fault.
        let iterations = || run.reports.iter().take(setting.tasks.get() as usize).map(|report| report.iterations);
        let freed: u64 = run.reports.iter().map(|report| report.freed).sum();
        let elsewhere: u64 = run.reports.iter().map(|report| report.freed_elsewhere).sum();
        let freed_elsewhere = (freed > 0).then(|| rounded(elsewhere as f64 / freed as f64));
        let row = columns
            .column("purgers", "purgers", purgers(&setting, self.purgers))
            .data("elapsed_ns", run.reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0))
            .data("iterations_min", iterations().min().unwrap_or(0))
            .data("iterations_max", iterations().max().unwrap_or(0))
            .data("iterations_total", iterations().sum::<u64>())
            .spread(
                "pages_per_s",
                "pages/s",
                Format::number(0),
                rates.map(|rates| Spread { median: rounded(run.rate()), ..rates }),
            )
            .column_as("freed_elsewhere_share", "freed elsewhere %", Format::percent(0), freed_elsewhere)
            .followed_by(counts(&run.counts));
        let group = format!("{}, tasks: {}; pages faulted in each second", setting.mode.name(), setting.tasks);
        vec![ComparedRow { row, group, result: format!("{:.0}", run.rate()) }]
    }
}

impl Native for Purge {
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<TaskRun, Failure> {
        Ok(purge::run(fixture, setting, purgers(setting, self.purgers), self.seed, self.duration)?)
    }
}

impl Simulated for Purge {
    fn cpus(&self, setting: &Setting) -> u64 {
        u64::from(setting.tasks.get()) + u64::from(purgers(setting, self.purgers))
    }

    fn simulate(&self, fixture: &SimFixture<'_>, setting: &Setting) -> Result<SimRun<TaskRun>, Failure> {
        Ok(frameyard_workloads::sim::purge(fixture, setting, purgers(setting, self.purgers), self.seed, self.duration)?)
    }
}
