//! `decision-support`: queries that scan tables and use work areas, by the size of per-CPU lists.

use std::time::Duration;

use clap::Args;
use frameyard::ByteSize;
use frameyard::locks::LockUse;
use frameyard::watermarks::PcpSizing;
use frameyard_workloads::Setting;
use frameyard_workloads::counts::Counts;
use frameyard_workloads::decision_support::{self, QueryMix};
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::sim::{SimFixture, SimRun};
use frameyard_workloads::timed_run::TaskRun;

use super::{
    Compared, ComparedRow, Comparison, MEDIANS, Measured, Native, REPEAT, Simulated, Workload, Yards, counts,
    simulate_each,
};
use crate::Failure;
use crate::args::values::{Sizings, positive_size, sizings};
use crate::args::{ComparisonArgs, DurationArgs, SimRunArgs, VirtualDurationArgs};
use crate::measure::{Spread, median_first};
use crate::output::{Format, Row, rounded};

/// Work areas and scans are no larger than this unless the command line says otherwise.
const LARGEST: ByteSize = ByteSize::mib(64);
/// The part of memory that the work areas of all tasks may take.
const SHARE: u64 = 8;

/// Where the shape comes from.
const SOURCE: &str = "\
Discussions of zone and LRU lock contention name decision-support loads of databases, whose work areas go faster
through large per-CPU lists (percpu_pagelist_fraction). The loop has the shape of such a load. It is no published
benchmark, and its results have no published counterpart.";

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 60 seconds; --quick about 3.

Example:
  frameyard bench decision-support --tasks 2 --policy vanilla,bits --pcp-sizing scaled,classic,fraction:8";

/// The same for simulated machines.
const SIM_HELP: &str = "\
Takes minutes; --quick about 2 seconds.

Example:
  frameyard sim decision-support --machine skylake-112 --tasks 112 --mode processes --policy vanilla-4.17 --lru vanilla";

/// What `--pcp-sizing` says on these commands.
const SIZING_HELP: &str = "Sizes of the per-CPU lists to compare: scaled, classic, early, fraction:N or fixed:N";

/// The sizes of what queries use.
#[derive(Args, Clone, Copy, Debug)]
struct QueryArgs {
    /// Largest work area of a query; the smallest is a 64th [default: 64M, or an eighth of --memory for all tasks together]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    work_area: Option<ByteSize>,
    /// Longest scan of a query, and the part of its table that a task caches [default: as --work-area]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    scan: Option<ByteSize>,
}

impl QueryArgs {
    /// The mix for a number of tasks.
    fn mix(self, tasks: u32, memory: Option<ByteSize>, largest: ByteSize) -> QueryMix {
        let share = memory.map_or(largest, |memory| ByteSize(memory.0 / SHARE / u64::from(tasks)));
        let work_area = self.work_area.unwrap_or(share.min(largest));
        QueryMix::new(work_area, self.scan.unwrap_or(work_area))
    }
}

/// Runs queries that scan tables through the page cache and use work areas
#[derive(Args, Clone, Debug)]
#[command(
    after_help = HELP,
    after_long_help = format!("{SOURCE}\n\n{HELP}"),
    mut_arg("pcp_sizing", |arg| arg.value_parser(sizings).value_name("SIZINGS").help(SIZING_HELP).default_value("scaled,fraction:8"))
)]
pub(in crate::commands) struct DecisionSupportArgs {
    #[command(flatten)]
    queries: QueryArgs,
    #[command(flatten)]
    duration: DurationArgs,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// Runs queries that scan tables through the page cache and use work areas
#[derive(Args, Clone, Debug)]
#[command(
    after_help = SIM_HELP,
    after_long_help = format!("{SOURCE}\n\n{SIM_HELP}"),
    mut_arg("pcp_sizing", |arg| arg.value_parser(sizings).value_name("SIZINGS").help(SIZING_HELP).default_value("classic,fraction:8"))
)]
pub(in crate::commands) struct SimDecisionSupportArgs {
    #[command(flatten)]
    queries: QueryArgs,
    #[command(flatten)]
    duration: VirtualDurationArgs,
    #[command(flatten)]
    runs: SimRunArgs,
}

/// What the columns mean.
const NOTE: &str = "A page is read through the page cache, or touched in a work area. Waits are divided by the frames allocated, \
    and so are acquisitions. Queries differ in size: where few ran, compare pages.";

/// Runs on this machine.
pub(in crate::commands) fn bench(args: &DecisionSupportArgs) -> Result<(), Failure> {
    let compared = &args.comparison;
    let comparison = Comparison::new(compared, "bench decision-support", Yards::OneForAllPolicies, REPEAT)?;
    let base = DecisionSupport {
        sizing: PcpSizing::default(),
        queries: args.queries,
        memory: Some(comparison.memory()),
        largest: LARGEST,
        seed: compared.compared.seed,
        duration: args.duration.duration,
    };
    comparison.run(&base.by_sizing(compared.yard.pcp_sizing.as_ref()), format!("{MEDIANS} {NOTE}"))
}

/// Runs on a simulated machine.
pub(in crate::commands) fn sim(args: &SimDecisionSupportArgs) -> Result<(), Failure> {
    let base = DecisionSupport {
        sizing: PcpSizing::default(),
        queries: args.queries,
        memory: args.runs.memory,
        largest: if args.runs.quick.quick { ByteSize::mib(2) } else { ByteSize::mib(16) },
        seed: args.runs.compared.seed,
        duration: args.duration.duration,
    };
    simulate_each(&args.runs, "sim decision-support", &base.by_sizing(Some(&args.runs.pcp_sizing)))
}

#[derive(Clone, Copy)]
struct DecisionSupport {
    sizing: PcpSizing,
    queries: QueryArgs,
    /// Memory of the machine, if it does not follow from the tasks.
    memory: Option<ByteSize>,
    /// Bound of the usual work area.
    largest: ByteSize,
    seed: u64,
    duration: Duration,
}

impl DecisionSupport {
    /// The workload with each sizing.
    fn by_sizing(self, sizings: Option<&Sizings>) -> Vec<Self> {
        let sizings = sizings.map_or(&[][..], Sizings::all);
        sizings.iter().map(|&sizing| Self { sizing, ..self }).collect()
    }

    fn mix(&self, setting: &Setting) -> QueryMix {
        self.queries.mix(setting.tasks.get(), self.memory, self.largest)
    }
}

impl Workload for DecisionSupport {
    type Run = TaskRun;

    fn needed(&self, setting: &Setting) -> ByteSize {
        decision_support::memory_needed(setting.tasks.get(), self.mix(setting))
    }
}

impl Compared for DecisionSupport {
    fn rows(&self, measured: Measured<TaskRun>) -> Vec<ComparedRow> {
        let columns = measured.columns();
        let Measured { setting, runs, .. } = measured;
        let rates = Spread::of(runs.iter().map(TaskRun::rate)).map(|rates| rates.map(rounded));
        let (run, _) = median_first(runs, TaskRun::rate);
        let mix = self.mix(&setting);
        let row = columns
            .column("pcp_sizing", "list sizing", self.sizing.to_string())
            .data("work_area_bytes", mix.work_area().0)
            .data("scan_bytes", mix.scan().0)
            .data("elapsed_ns", run.reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0))
            .column("queries_per_s", "queries/s", rounded(run.rounds_per_s()))
            .spread(
                "pages_per_s",
                "pages/s",
                Format::number(0),
                rates.map(|rates| Spread { median: rounded(run.rate()), ..rates }),
            )
            .column_as("page_ns", "ns/page", Format::number(0), rounded(run.reports.len() as f64 * 1e9 / run.rate()))
            .data("queries", run.reports.iter().map(|report| report.rounds).sum::<u64>())
            .data("iterations_total", run.reports.iter().map(|report| report.iterations).sum::<u64>())
            .followed_by(locks(&run.counts))
            .followed_by(counts(&run.counts));
        let (mode, tasks, sizing) = (setting.mode.name(), setting.tasks, self.sizing);
        let group = format!("{mode}, tasks: {tasks}, list sizing: {sizing}; pages each second");
        vec![ComparedRow { row, group, result: format!("{:.0}", run.rate()) }]
    }
}

/// Waits for each frame, frames for each acquisition, and memory on per-CPU lists.
fn locks(counts: &Counts) -> Row {
    let waits = |lock: LockUse| {
        let each = counts.locks_are_timed.then(|| per(lock.wait_ns, counts.pages_allocated)).flatten();
        each.map(|ns| (ns * 1e3).round() / 1e3)
    };
    let frames = |lock: LockUse| per(counts.pages_allocated, lock.acquisitions).map(rounded);
    let (zone, lru, digits) = (counts.zone_lock, counts.lru_lock, Format::number(2));
    Row::new()
        .column_as("zone_lock_wait_ns_per_page", "zone wait ns/page", digits, waits(zone))
        .column_as("lru_lock_wait_ns_per_page", "LRU wait ns/page", digits, waits(lru))
        .column("allocated_per_zone_lock", "pages per zone lock", frames(zone))
        .column("allocated_per_lru_lock", "pages per LRU lock", frames(lru))
        .column_as("per_cpu_lists_bytes", "on per-CPU lists", Format::Size, counts.pages_on_lists * ByteSize::kib(4).0)
}

fn per(amount: u64, each: u64) -> Option<f64> {
    (each > 0).then(|| amount as f64 / each as f64)
}

impl Native for DecisionSupport {
    /// Sizes the lists and drains them, so that runs begin alike.
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<TaskRun, Failure> {
        let yard = fixture.vm.yard();
        yard.lists().resize(self.sizing);
        yard.drain_all();
        Ok(decision_support::run(fixture, setting, self.seed, self.mix(setting), self.duration)?)
    }
}

impl Simulated for DecisionSupport {
    fn sizing(&self) -> Option<PcpSizing> {
        Some(self.sizing)
    }

    fn simulate(&self, fixture: &SimFixture<'_>, setting: &Setting) -> Result<SimRun<TaskRun>, Failure> {
        let mix = self.mix(setting);
        Ok(frameyard_workloads::sim::decision_support(fixture, setting, self.seed, mix, self.duration)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{assert_refused, read};

    fn mix(line: &str, tasks: u32, memory: Option<ByteSize>) -> (ByteSize, ByteSize) {
        let mix = read::<QueryArgs>(line).unwrap().mix(tasks, memory, LARGEST);
        (mix.work_area(), mix.scan())
    }

    #[test]
    fn all_work_areas_take_an_eighth_of_memory_at_most() {
        assert_eq!(mix("", 2, None), (LARGEST, LARGEST));
        assert_eq!(mix("", 2, Some(ByteSize::gib(4))), (LARGEST, LARGEST));
        assert_eq!(mix("", 4, Some(ByteSize::gib(1))), (ByteSize::mib(32), ByteSize::mib(32)));
        let one = |size| mix(&format!("--work-area 1M --scan {size}"), 4, Some(ByteSize::gib(1)));
        assert_eq!(one("5000"), (ByteSize::mib(1), ByteSize::kib(4)));
        assert_eq!(mix("--work-area 1M", 4, None), (ByteSize::mib(1), ByteSize::mib(1)));
    }

    #[test]
    fn several_sizings_are_compared_and_a_bad_one_is_refused() {
        let args: DecisionSupportArgs = read("--pcp-sizing scaled,classic,fraction:8").unwrap();
        let sizings: Vec<String> =
            args.comparison.yard.pcp_sizing.unwrap().all().iter().map(PcpSizing::to_string).collect();
        assert_eq!(sizings, ["scaled", "classic", "fraction:8"]);
        let args: SimDecisionSupportArgs = read("").unwrap();
        assert_eq!(args.runs.pcp_sizing.all().len(), 2);
        assert_refused::<DecisionSupportArgs>(&[
            ("--pcp-sizing scaled,fraction:2", "fraction:8 or more"),
            ("--pcp-sizing scaled,", "write scaled, classic"),
            ("--work-area 0", "more than nothing"),
        ]);
        assert_refused::<super::super::purge::PurgeArgs>(&[("--pcp-sizing scaled,classic", "write scaled, classic")]);
    }
}
