//! `order0-thp`: tasks with huge pages beside tasks without, in memory that was full of small pages.

use std::time::Duration;

use clap::Args;
use frameyard::ByteSize;
use frameyard_sim_workloads::{SimFixture, SimRun};
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::order0_thp::{self, pages_of_task};
use frameyard_workloads::timed_run::TaskRun;
use frameyard_workloads::{MAP_SIZE, Pages, Setting};

use super::{
    Compared, ComparedRow, Comparison, MEDIANS, Measured, Native, REPEAT, Simulated, Workload, Yards, counts, simulate,
};
use crate::Failure;
use crate::args::values::positive_size;
use crate::args::{ComparisonArgs, DurationArgs, SimRunArgs, VirtualDurationArgs};
use crate::measure::{Spread, median_first};
use crate::output::{Format, Row, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about two minutes; --quick about 10 seconds.

Example:
  frameyard bench order0-thp --tasks 1 --policy vanilla,depot";

/// Runs tasks with huge pages beside tasks without, in memory that was full of small ones
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(in crate::commands) struct Order0ThpArgs {
    #[command(flatten)]
    duration: DurationArgs,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// The same for simulated machines.
const SIM_HELP: &str = "\
Takes about four minutes; --quick about 2 seconds.

Example:
  frameyard sim order0-thp --tasks 8 --mode threads --policy vanilla,depot";

/// Runs tasks with huge pages beside tasks without, in memory that was full of small pages
#[derive(Args, Clone, Debug)]
#[command(after_help = SIM_HELP)]
pub(in crate::commands) struct SimOrder0ThpArgs {
    /// Size of each mapping of a task
    #[arg(long, value_name = "SIZE", default_value = "128M", default_value_if("quick", "true", "16M"), value_parser = positive_size)]
    map: ByteSize,
    #[command(flatten)]
    duration: VirtualDurationArgs,
    #[command(flatten)]
    runs: SimRunArgs,
}

/// Runs on this machine.
pub(in crate::commands) fn bench(args: &Order0ThpArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, "bench order0-thp", Yards::OneForEachRun, REPEAT)?;
    let workload = Order0Thp { map: MAP_SIZE, seed: args.comparison.compared.seed, duration: args.duration.duration };
    comparison.run(&[workload], format!("{MEDIANS} Counts are of both kinds of tasks together."))
}

/// Runs on a simulated machine.
pub(in crate::commands) fn sim(args: &SimOrder0ThpArgs) -> Result<(), Failure> {
    let workload = Order0Thp { map: args.map, seed: args.runs.compared.seed, duration: args.duration.duration };
    simulate(&args.runs, "sim order0-thp", &workload)
}

struct Order0Thp {
    map: ByteSize,
    seed: u64,
    duration: Duration,
}

impl Workload for Order0Thp {
    type Run = TaskRun;

    fn needed(&self, setting: &Setting) -> ByteSize {
        order0_thp::memory_needed(setting.tasks.get(), self.map)
    }
}

impl Compared for Order0Thp {
    /// A row for each kind of tasks. What was counted is of both kinds, which run together.
    fn rows(&self, measured: Measured<TaskRun>) -> Vec<ComparedRow> {
        [Pages::Huge, Pages::Small].map(|kind| row(&measured, kind)).into()
    }
}

impl Native for Order0Thp {
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<TaskRun, Failure> {
        Ok(order0_thp::run(fixture, setting, self.seed, self.duration)?)
    }
}

impl Simulated for Order0Thp {
    fn cpus(&self, setting: &Setting) -> u64 {
        2 * u64::from(setting.tasks.get())
    }

    fn simulate(&self, fixture: &SimFixture<'_>, setting: &Setting) -> Result<SimRun<TaskRun>, Failure> {
        Ok(frameyard_sim_workloads::order0_thp(fixture, setting, self.seed, self.map, self.duration)?)
    }
}

fn row(measured: &Measured<TaskRun>, kind: Pages) -> ComparedRow {
    let Measured { setting, runs, .. } = measured;
    let is_of_kind = |task: usize| pages_of_task(setting, task) == kind;
    let rate = |run: &TaskRun| run.rate_of(is_of_kind);
    let rates = Spread::of(runs.iter().map(rate)).map(|rates| rates.map(rounded));
    let (run, _) = median_first(runs.clone(), rate);
    let reports = || run.reports.iter().enumerate().filter(|(task, _)| is_of_kind(*task)).map(|(_, report)| report);
    let iterations = || reports().map(|report| report.iterations);
    let thp = |counts: &Row, key: &str| counts.value(key).clone();
    let counted = counts(&run.counts);
    let row = measured
        .columns()
        .column("task_kind", "kind", kind.name())
        .data("elapsed_ns", reports().map(|report| report.elapsed_ns).max().unwrap_or(0))
        .data("iterations_min", iterations().min().unwrap_or(0))
        .data("iterations_max", iterations().max().unwrap_or(0))
        .data("iterations_total", iterations().sum::<u64>())
        .spread(
            "pages_per_s",
            "pages/s",
            Format::number(0),
            rates.map(|rates| Spread { median: rounded(rate(&run)), ..rates }),
        )
        .remark("huge pages", Format::Plain, thp(&counted, "thp_fault_alloc"))
        .remark("fallbacks", Format::Plain, thp(&counted, "thp_fault_fallback"))
        .followed_by(counted);
    ComparedRow {
        row,
        group: format!(
            "{}, tasks of each kind: {}; pages touched each second by those with {} pages",
            setting.mode.name(),
            setting.tasks,
            kind.name()
        ),
        result: format!("{:.0}", rate(&run)),
    }
}
