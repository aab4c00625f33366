//! `order0-thp`: tasks with huge pages beside tasks without, in memory that was full of small pages.

use std::time::Duration;

use clap::Args;
use frameyard::{ByteSize, DefragMode};
use frameyard_workloads::background::BackgroundWork;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::order0_thp::{self, Surroundings, pages_of_task};
use frameyard_workloads::request_times::RequestTimes;
use frameyard_workloads::sim::{SimFixture, SimRun};
use frameyard_workloads::timed_run::TaskRun;
use frameyard_workloads::{MAP_SIZE, Pages, Setting};

use super::{
    Compared, ComparedRow, Comparison, MEDIANS, Measured, Native, REPEAT, Simulated, Workload, Yards, counts, effort,
    simulate,
};
use crate::Failure;
use crate::args::values::{defrag_mode, percentage, positive_size};
use crate::args::{ComparisonArgs, DurationArgs, SimRunArgs, VirtualDurationArgs};
use crate::commands::simulated_machine::machine;
use crate::measure::{Spread, median_first};
use crate::output::{Format, Row, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about two minutes; --quick about 10 seconds.

Example:
  frameyard bench order0-thp --tasks 1 --policy vanilla,bits";

/// Runs tasks with huge pages beside tasks without, in memory that was full of small ones
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(in crate::commands) struct Order0ThpArgs {
    #[command(flatten)]
    around: AroundArgs,
    #[command(flatten)]
    duration: DurationArgs,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// The same for simulated machines.
const SIM_HELP: &str = "\
Takes about four minutes; --quick about 2 seconds.

Example:
  frameyard sim order0-thp --tasks 8 --mode threads --policy vanilla,bits";

/// Runs tasks with huge pages beside tasks without, in memory that was full of small pages
#[derive(Args, Clone, Debug)]
#[command(after_help = SIM_HELP)]
pub(in crate::commands) struct SimOrder0ThpArgs {
    /// Size of each mapping of a task
    #[arg(long, value_name = "SIZE", default_value = "128M", default_value_if("quick", "true", "16M"), value_parser = positive_size)]
    map: ByteSize,
    #[command(flatten)]
    around: AroundArgs,
    #[command(flatten)]
    duration: VirtualDurationArgs,
    #[command(flatten)]
    runs: SimRunArgs,
}

/// The memory beside the tasks.
#[derive(Args, Clone, Copy, Debug)]
struct AroundArgs {
    /// The part of the small pages filled first that stays, at random; up to 50%
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percentage)]
    kept: u8,
    /// Whether the yard keeps a stock of whole free pageblocks
    #[arg(long, value_name = "on|off", default_value = "off", value_parser = defrag_mode())]
    defrag_mode: DefragMode,
    /// Run a background reclaimer and a background compactor for each node
    #[arg(long)]
    background: bool,
}

impl AroundArgs {
    fn surroundings(self) -> Surroundings {
        let background = if self.background { BackgroundWork::OfNodes } else { BackgroundWork::Absent };
        Surroundings { kept_percent: self.kept, defrag: self.defrag_mode, background }
    }
}

/// Runs on this machine.
pub(in crate::commands) fn bench(args: &Order0ThpArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, "bench order0-thp", Yards::OneForEachRun, REPEAT)?;
    let workload = Order0Thp {
        map: MAP_SIZE,
        seed: args.comparison.compared.seed,
        duration: args.duration.duration,
        around: args.around.surroundings(),
        background_cpus: 0,
    };
    comparison.run(&[workload], format!("{MEDIANS} Counts are of both kinds of tasks together."))
}

/// Runs on a simulated machine.
pub(in crate::commands) fn sim(args: &SimOrder0ThpArgs) -> Result<(), Failure> {
    let around = args.around.surroundings();
    let background_cpus = match around.background {
        BackgroundWork::Absent => 0,
        // All CPUs beside the builders of `highalloc` but the requester's.
        BackgroundWork::OfNodes => {
            frameyard_workloads::sim::other_cpus(machine(&args.runs.machine)?.topology.sockets.into()) - 1
        }
    };
    let (seed, duration) = (args.runs.compared.seed, args.duration.duration);
    let workload = Order0Thp { map: args.map, seed, duration, around, background_cpus };
    simulate(&args.runs, "sim order0-thp", &workload)
}

struct Order0Thp {
    map: ByteSize,
    seed: u64,
    duration: Duration,
    around: Surroundings,
    /// CPUs of a simulated machine with background workers.
    background_cpus: u64,
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
        [Pages::Huge, Pages::Small].map(|kind| row(&measured, kind, self.around)).into()
    }
}

impl Native for Order0Thp {
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<TaskRun, Failure> {
        Ok(order0_thp::run(fixture, setting, self.seed, self.duration, self.around)?)
    }
}

impl Simulated for Order0Thp {
    fn cpus(&self, setting: &Setting) -> u64 {
        2 * u64::from(setting.tasks.get()) + self.background_cpus
    }

    fn simulate(&self, fixture: &SimFixture<'_>, setting: &Setting) -> Result<SimRun<TaskRun>, Failure> {
        let Self { map, seed, duration, around, .. } = *self;
        Ok(frameyard_workloads::sim::order0_thp(fixture, setting, seed, map, duration, around)?)
    }
}

fn row(measured: &Measured<TaskRun>, kind: Pages, around: Surroundings) -> ComparedRow {
    let Measured { setting, runs, .. } = measured;
    let is_of_kind = |task: usize| pages_of_task(setting, task) == kind;
    let rate = |run: &TaskRun| run.rate_of(is_of_kind);
    let rates = Spread::of(runs.iter().map(rate)).map(|rates| rates.map(rounded));
    let (run, _) = median_first(runs.clone(), rate);
    let reports = || run.reports.iter().enumerate().filter(|(task, _)| is_of_kind(*task)).map(|(_, report)| report);
    let iterations = || reports().map(|report| report.iterations);
    let thp = |counts: &Row, key: &str| counts.value(key).clone();
    let times = RequestTimes::new(reports().flat_map(|report| report.huge_ns.iter().copied()).collect());
    let timed = times.count() > 0;
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
        .data("kept_share", f64::from(around.kept_percent) / 100.0)
        .data("defrag_mode", around.defrag.name())
        .data("background", around.background == BackgroundWork::OfNodes)
        .data("huge_fault_ns", timed.then(|| rounded(times.mean())))
        .data("huge_fault_ns_p99", timed.then(|| times.percentile(99)))
        .remark("huge pages", Format::Plain, thp(&counted, "thp_fault_alloc"))
        .remark("fallbacks", Format::Plain, thp(&counted, "thp_fault_fallback"))
        .followed_by(effort(&run.counts))
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
