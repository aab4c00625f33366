//! `page-fault`: the loop of will-it-scale's page_fault1.

mod will_it_scale;

use std::time::Duration;

use frameyard::ByteSize;

use super::{
    Compared, ComparedRow, Comparison, MEDIANS, Measured, Native, REPEAT, Simulated, Workload, Yards, counts, simulate,
};
use crate::Failure;
use crate::cli::{PageFaultArgs, SimPageFaultArgs};
use crate::measure::{Spread, median_first};
use crate::output::{Format, rounded};
use frameyard_workloads::MAP_SIZE;
use frameyard_workloads::Setting;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::page_fault;
use frameyard_workloads::simulated::{self, SimFixture, SimRun};
use frameyard_workloads::timed_run::TaskRun;

use will_it_scale::WillItScale;

/// What the rows leave out.
const NOTE: &str = "A page is touched by a function call: figures of a kernel's page_fault1 include hardware exceptions and \
    system calls.";

/// Runs on this machine.
pub(in crate::commands) fn bench(args: &PageFaultArgs) -> Result<(), Failure> {
    let file = args.will_it_scale.as_deref();
    let results = file.map(|file| WillItScale::create(file, &args.comparison.compared.policies)).transpose()?;
    let comparison = Comparison::new(&args.comparison, "bench page-fault", Yards::OneForAllPolicies, REPEAT)?;
    let workload = PageFault { map: MAP_SIZE, seed: args.comparison.compared.seed, duration: args.duration.duration };
    let rows = comparison.rows(&[workload])?;
    let written = results.map_or(Ok(()), |results| results.write(&rows));
    comparison.report(&rows, format!("{MEDIANS} {NOTE}")).print(&args.comparison.output)?;
    written
}

/// Runs on a simulated machine.
pub(in crate::commands) fn sim(args: &SimPageFaultArgs) -> Result<(), Failure> {
    let workload = PageFault { map: args.map, seed: args.runs.compared.seed, duration: args.duration.duration };
    simulate(&args.runs, "sim page-fault", &workload)
}

struct PageFault {
    map: ByteSize,
    seed: u64,
    duration: Duration,
}

impl Workload for PageFault {
    type Run = TaskRun;

    fn needed(&self, setting: &Setting) -> ByteSize {
        page_fault::memory_needed(setting.tasks.get(), self.map)
    }
}

impl Compared for PageFault {
    fn rows(&self, measured: Measured<TaskRun>) -> Vec<ComparedRow> {
        vec![row(measured, self.map)]
    }
}

impl Native for PageFault {
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<TaskRun, Failure> {
        Ok(page_fault::run(fixture, setting, self.seed, self.duration)?)
    }
}

impl Simulated for PageFault {
    fn simulate(&self, fixture: &SimFixture<'_>, setting: &Setting) -> Result<SimRun<TaskRun>, Failure> {
        Ok(simulated::page_fault(fixture, setting, self.seed, self.map, self.duration)?)
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
