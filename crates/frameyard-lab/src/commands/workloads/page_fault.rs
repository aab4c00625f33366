//! `page-fault`: the loop of will-it-scale's page_fault1.

mod will_it_scale;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use frameyard::ByteSize;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::page_fault::{Faults, Frames};
use frameyard_workloads::report::Reuse;
use frameyard_workloads::sim::{SimFixture, SimRun};
use frameyard_workloads::timed_run::TaskRun;
use frameyard_workloads::{Setting, page_fault};

use super::{
    Compared, ComparedRow, Comparison, MEDIANS, Measured, Native, REPEAT, Simulated, Workload, Yards, counts, simulate,
};
use crate::Failure;
use crate::args::values::positive_size;
use crate::args::{ComparisonArgs, DurationArgs, SimRunArgs, VirtualDurationArgs};
use crate::measure::{Spread, median_first};
use crate::output::{Format, Plot, PlotArgs, Row, rounded};
use will_it_scale::WillItScale;

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 100 seconds; --quick about 5.

Examples:
  frameyard bench page-fault --quick
  frameyard bench page-fault --tasks 1,2,4 --policy vanilla,bits --lru sharded
  frameyard bench page-fault --will-it-scale page_fault1.csv
  frameyard bench page-fault --tasks 1..8 --plot page_fault1.svg
  frameyard bench page-fault --hot-frames --map 1M --policy vanilla,skip-merge,bits";

/// Maps memory, touches every page, unmaps it, and again
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(in crate::commands) struct PageFaultArgs {
    /// Size of each mapping of a task
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = positive_size)]
    map: ByteSize,
    /// Also count the pages that get a frame which their task freed shortly before. Slows the runs
    #[arg(long)]
    hot_frames: bool,
    /// Also write the columns of will-it-scale to a file; with several policies, one file for each pair, named after it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    will_it_scale: Option<PathBuf>,
    #[command(flatten)]
    plot: PlotArgs,
    #[command(flatten)]
    duration: DurationArgs,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// The same for simulated machines.
const SIM_HELP: &str = "\
Takes about 90 seconds; --quick about 2. The time grows with the CPUs that have tasks.

Examples:
  frameyard sim page-fault --quick
  frameyard sim page-fault --machine skylake-112 --tasks 112 --mode processes --policy vanilla-4.16,bits
  frameyard sim page-fault --tasks 40 --lru vanilla --profile page-fault.folded";

/// Maps memory, touches every page, unmaps it, and repeats
#[derive(Args, Clone, Debug)]
#[command(after_help = SIM_HELP)]
pub(in crate::commands) struct SimPageFaultArgs {
    /// Size of each mapping of a task
    #[arg(long, value_name = "SIZE", default_value = "128M", default_value_if("quick", "true", "16M"), value_parser = positive_size)]
    map: ByteSize,
    #[command(flatten)]
    duration: VirtualDurationArgs,
    #[command(flatten)]
    runs: SimRunArgs,
}

/// What the rows leave out.
const NOTE: &str = "A page is touched by a function call: figures of a kernel's page_fault1 include hardware exceptions and \
    system calls.";

/// will-it-scale's plot: one line for each mode and pair of policies, the pages by the tasks.
const PLOT: Plot = Plot {
    title: "page_fault1: pages touched each second",
    line: &["mode", "zone_policy", "lru_policy"],
    x: ("tasks", "tasks"),
    y: ("pages_per_s", "million pages per second"),
    y_unit: 1e6,
};

/// Runs on this machine.
pub(in crate::commands) fn bench(args: &PageFaultArgs) -> Result<(), Failure> {
    let file = args.will_it_scale.as_deref();
    let results = file.map(|file| WillItScale::create(file, &args.comparison.compared.policies)).transpose()?;
    let comparison = Comparison::new(&args.comparison, "bench page-fault", Yards::OneForAllPolicies, REPEAT)?;
    let frames = if args.hot_frames { Frames::Recorded } else { Frames::Ignored };
    let faults = Faults { map: args.map, frames };
    let workload = PageFault { faults, seed: args.comparison.compared.seed, duration: args.duration.duration };
    let rows = comparison.rows(&[workload])?;
    let plotted: Vec<Row> = rows.iter().map(|row| row.row.clone()).collect();
    let written =
        results.map_or(Ok(()), |results| results.write(&rows)).and_then(|()| PLOT.write_if_asked(&plotted, &args.plot));
    comparison.report(&rows, format!("{MEDIANS} {NOTE}")).print(&args.comparison.output)?;
    written
}

/// Runs on a simulated machine.
pub(in crate::commands) fn sim(args: &SimPageFaultArgs) -> Result<(), Failure> {
    let faults = Faults { map: args.map, frames: Frames::Ignored };
    let workload = PageFault { faults, seed: args.runs.compared.seed, duration: args.duration.duration };
    simulate(&args.runs, "sim page-fault", &workload)
}

struct PageFault {
    faults: Faults,
    seed: u64,
    duration: Duration,
}

impl Workload for PageFault {
    type Run = TaskRun;

    fn needed(&self, setting: &Setting) -> ByteSize {
        page_fault::memory_needed(setting.tasks.get(), self.faults.map)
    }
}

impl Compared for PageFault {
    fn rows(&self, measured: Measured<TaskRun>) -> Vec<ComparedRow> {
        if self.faults.frames == Frames::Ignored {
            return vec![row(measured, self.faults.map)];
        }
        let hot = hot_frames(&measured.runs);
        let ComparedRow { row, group, result } = row(measured, self.faults.map);
        vec![ComparedRow { row: row.followed_by(hot), group, result }]
    }
}

impl Native for PageFault {
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<TaskRun, Failure> {
        Ok(page_fault::run(fixture, setting, self.seed, self.faults, self.duration)?)
    }
}

impl Simulated for PageFault {
    fn simulate(&self, fixture: &SimFixture<'_>, setting: &Setting) -> Result<SimRun<TaskRun>, Failure> {
        Ok(frameyard_workloads::sim::page_fault(fixture, setting, self.seed, self.faults.map, self.duration)?)
    }
}

/// The row of a combination. An iteration is a page of 4 KiB touched.
pub(super) fn row(measured: Measured<TaskRun>, map: ByteSize) -> ComparedRow {
    let columns = measured.columns();
    let Measured { setting, runs, .. } = measured;
    let rates = Spread::of(runs.iter().map(TaskRun::rate)).map(|rates| rates.map(rounded));
    let (run, _) = median_first(runs, TaskRun::rate);
    let iterations = || run.reports.iter().map(|report| report.iterations);
    let row = columns
        .data("map_bytes", map.0)
        .data("elapsed_ns", run.reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0))
        .spread(
            "pages_per_s",
            "pages/s",
            Format::number(0),
            rates.map(|rates| Spread { median: rounded(run.rate()), ..rates }),
        )
        .column_as("page_ns", "ns/page", Format::number(0), rounded(run.reports.len() as f64 * 1e9 / run.rate()))
        .column("iterations_min", "fewest", iterations().min().unwrap_or(0))
        .minor()
        .column("iterations_max", "most", iterations().max().unwrap_or(0))
        .minor()
        .column("iterations_total", "total", iterations().sum::<u64>())
        .minor()
        .data("idle_share", run.idle)
        .followed_by(counts(&run.counts));
    ComparedRow {
        row,
        group: format!("{}, tasks: {}; pages touched each second", setting.mode.name(), setting.tasks),
        result: format!("{:.0}", run.rate()),
    }
}

/// The faults of all runs that got a frame which their task freed shortly before.
fn hot_frames(runs: &[TaskRun]) -> Row {
    let reports = runs.iter().flat_map(|run| &run.reports);
    let reuse = reports.fold(Reuse::default(), |sum, report| sum.and(report.reuse));
    let share = |part| reuse.share(part).map(|share| (share * 1e4).round() / 1e4);
    Row::new()
        .data("recorded_faults", reuse.faults)
        .column_as("hot_share", "hot %", Format::percent(1), share(reuse.hot))
        .column_as("hottest_share", "hottest %", Format::percent(1), share(reuse.hottest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::assert_refused;
    use frameyard::policy::ZonePolicy;
    use frameyard_vm::LruPolicy;
    use std::num::NonZeroU32;

    use frameyard_workloads::TaskMode;

    fn read(line: &str) -> Result<SimPageFaultArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn a_simulation_has_the_defaults_of_the_benchmark() {
        let args = read("").unwrap();
        assert_eq!(args.runs.machine, "broadwell-40");
        assert_eq!(args.runs.compared.policies.lru, LruPolicy::ALL);
        assert_eq!(args.runs.compared.policies.zones, [ZonePolicy::default()]);
        assert_eq!(args.runs.compared.modes, [TaskMode::Threads, TaskMode::Processes]);
        assert_eq!((args.map, args.duration.duration), (ByteSize::mib(128), Duration::from_millis(100)));
    }

    #[test]
    fn numbers_of_tasks_are_numbers_and_ranges() {
        let args = read("--tasks 1..3,8").unwrap();
        let numbers: Vec<u32> = args.runs.compared.tasks().into_iter().map(NonZeroU32::get).collect();
        assert_eq!(numbers, [1, 2, 3, 8]);
    }

    #[test]
    fn wrong_values_are_refused_with_the_expected_form() {
        assert_refused::<SimPageFaultArgs>(&[
            ("--tasks 0", "as in 4 or 1..40"),
            ("--tasks 3..2", "as in 4 or 1..40"),
            ("--tasks 1..", "as in 4 or 1..40"),
            ("--policy fast", "possible values: vanilla"),
            ("--map 0", "more than nothing"),
        ]);
    }
}
