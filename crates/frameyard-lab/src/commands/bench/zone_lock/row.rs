//! Rows: what was measured of a combination, or what was published. Both have the same keys; `source` distinguishes them.
//!
//! Pages are frames that were allocated while the workload was measured; in `parallel-free`, frames that were freed. Throughput
//! and counts are medians of the runs without timed locks. Times, and the frames on per-CPU lists, are of the run with timed
//! locks. Where all runs were timed, all count. Values of refills and drains are of one thread that does the tasks' work.

use std::num::NonZeroU32;
use std::time::Duration;

use frameyard::ByteSize;
use frameyard::locks::LockUse;
use frameyard::policy::ZonePolicy;
use frameyard_vm::LruPolicy;
use frameyard_workloads::TaskMode;
use frameyard_workloads::transfer::{Direction, TransferCounts};

use super::ZoneLockWorkload;
use super::sample::Sample;
use crate::commands::published_table::{MEASURED, PUBLISHED, ZoneLockRecord};
use crate::measure::Spread;
use crate::output::{Format, Row, rounded};

/// What was run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Combination {
    pub(super) workload: ZoneLockWorkload,
    pub(super) policy: ZonePolicy,
    pub(super) mode: TaskMode,
    pub(super) tasks: NonZeroU32,
    pub(super) task_kind: Option<&'static str>,
    pub(super) lru: Option<LruPolicy>,
    pub(super) delay: Option<Duration>,
    pub(super) memory: ByteSize,
}

/// What a row describes, measured or published.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Subject {
    pub(super) workload: String,
    pub(super) policy: String,
    pub(super) mode: Option<&'static str>,
    pub(super) tasks: Option<u32>,
    pub(super) task_kind: Option<&'static str>,
    pub(super) lru: Option<&'static str>,
    pub(super) delay_ns: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) published: Option<ZoneLockRecord>,
    /// The published success rate; measured rows have that of their runs.
    pub(super) high_order_success: Option<f64>,
    /// The published time of a request.
    pub(super) high_order_ns: Option<f64>,
}

/// The row of some runs of a combination.
pub(super) fn measured(of: &Combination, runs: &[Sample]) -> Row {
    let subject = Subject {
        workload: of.workload.name().to_owned(),
        policy: of.policy.name().to_owned(),
        mode: Some(of.mode.name()),
        tasks: Some(of.tasks.get()),
        task_kind: of.task_kind,
        lru: of.lru.map(LruPolicy::name),
        delay_ns: of.delay.map(|delay| delay.as_nanos() as u64),
        memory_bytes: Some(of.memory.0),
        ..Subject::default()
    };
    subject.row(runs)
}

impl Subject {
    /// The row of this and some runs; a published row has no runs.
    pub(super) fn row(&self, runs: &[Sample]) -> Row {
        let (timed, untimed): (Vec<&Sample>, Vec<&Sample>) = runs.iter().partition(|run| run.locks_are_timed);
        let untimed = if untimed.is_empty() { timed.clone() } else { untimed };
        self.setting(untimed.len())
            .followed_by(self.throughput(&untimed))
            .followed_by(locks(&timed, &untimed))
            .followed_by(directions(&timed))
            .followed_by(drains(&untimed))
            .followed_by(self.high_order(runs, &untimed))
            .column("pcp_pages_held", "kept", timed.iter().filter_map(|run| run.held).map(|held| held.most.0).max())
            .minor()
            .data("pcp_pages_held_mean", median_of(&timed, |run| run.held.map(|held| held.mean)).map(rounded))
            .followed_by(self.published())
    }

    fn setting(&self, runs: usize) -> Row {
        let source = if self.published.is_some() { PUBLISHED } else { MEASURED };
        Row::new()
            .data("source", source)
            .data("workload", self.workload.clone())
            .column("policy", "policy", self.policy.clone())
            .data("mode", self.mode)
            .data("tasks", self.tasks)
            .data("task_kind", self.task_kind)
            .column("lru_policy", "LRU", self.lru)
            .data("delay_ns", self.delay_ns)
            .data("memory_bytes", self.memory_bytes)
            .data("runs", self.published.is_none().then_some(runs))
    }

    fn throughput(&self, untimed: &[&Sample]) -> Row {
        let rate = |run: &&Sample| run.rates.iter().find(|(kind, _)| *kind == self.task_kind).map(|(_, rate)| *rate);
        let rates = Spread::of(untimed.iter().filter_map(rate)).map(|rates| rates.map(rounded));
        let get = median_of(untimed, |run| run.get_put_ns.map(|(get, _)| get)).map(rounded);
        let put = median_of(untimed, |run| run.get_put_ns.map(|(_, put)| put)).map(rounded);
        Row::new()
            .data("pages", median_of(untimed, |run| Some(run.pages as f64)))
            .spread("ops_per_s", "M ops/s", Format::millions(3), rates)
            .column_as("get_ns", "get ns", Format::number(1), get)
            .column_as("put_ns", "put ns", Format::number(1), put)
    }

    fn high_order(&self, runs: &[Sample], untimed: &[&Sample]) -> Row {
        let success = Spread::of(runs.iter().filter_map(|run| run.high_order.map(|high| high.success)));
        let success = success.map(|success| success.map(fine));
        let ns = median_of(untimed, |run| run.high_order.map(|high| high.ns)).map(rounded);
        let median = success.map(|success| success.median).or(self.high_order_success);
        Row::new()
            .column_as("high_order_success", "success %", Format::percent(1), median)
            .data("high_order_success_min", success.map(|success| success.min))
            .data("high_order_success_max", success.map(|success| success.max))
            .column_as("high_order_ns", "request ms", Format::millions(3), ns.or(self.high_order_ns))
    }

    fn published(&self) -> Row {
        let text = |of: fn(&ZoneLockRecord) -> &String| self.published.as_ref().map(|record| of(record).clone());
        Row::new()
            .data("published_machine", text(|record| &record.machine))
            .data("published_metric", text(|record| &record.metric))
            .data("published_unit", text(|record| &record.unit))
            .data("published_value", self.published.as_ref().map(|record| record.value))
            .data("published_note", self.published.as_ref().and_then(|record| record.note.clone()))
    }
}

/// Both locks.
fn locks(timed: &[&Sample], untimed: &[&Sample]) -> Row {
    let lock = |name: &str, headings: [&'static str; 3], lock: fn(&Sample) -> Option<LockUse>| {
        let taken = median_of(untimed, |run| per_1000_pages(lock(run)?, run.pages)).map(fine);
        let contended = median_of(untimed, |run| per_page(lock(run)?.contended, lock(run)?.acquisitions)).map(fine);
        let held = median_of(timed, |run| per_page(lock(run)?.hold_ns, run.pages)).map(fine);
        let waited = median_of(timed, |run| per_page(lock(run)?.wait_ns, run.pages)).map(fine);
        let [taken_heading, held_heading, waited_heading] = headings;
        Row::new()
            .column_as(format!("{name}_acquisitions_per_1000_pages"), taken_heading, Format::number(2), taken)
            .data(format!("{name}_contended_share"), contended)
            .column_as(format!("{name}_hold_ns_per_page"), held_heading, Format::number(1), held)
            .minor()
            .column_as(format!("{name}_wait_ns_per_page"), waited_heading, Format::number(1), waited)
            .minor()
    };
    let zone = lock("zone_lock", ["zone taken", "held", "waited"], |run| Some(run.zone_lock));
    zone.followed_by(lock("lru_lock", ["LRU taken", "LRU held", "LRU waited"], |run| run.lru_lock))
}

/// What is known of refills and of drains.
fn directions(timed: &[&Sample]) -> Row {
    let of = |value: &dyn Fn(&TransferCounts) -> Option<f64>| {
        median(timed.iter().flat_map(|run| &run.transfers).filter_map(value)).map(fine)
    };
    let refill = |value: fn(&Direction) -> Option<f64>| of(&|counts| value(&counts.refill));
    let drain = |value: fn(&Direction) -> Option<f64>| of(&|counts| value(&counts.drain));
    let taken: fn(&Direction) -> Option<f64> = |of| per_1000_pages(of.zone_lock, of.pages);
    let held: fn(&Direction) -> Option<f64> = |of| per_page(of.zone_lock.hold_ns, of.pages);
    let lines: fn(&Direction) -> Option<f64> = |of| per_page(of.lines_under_lock?, of.pages);
    // Each page is refilled once and drained once.
    let both = of(&|counts| {
        let lines = counts.refill.lines_under_lock? + counts.drain.lines_under_lock?;
        per_page(lines, counts.refill.pages + counts.drain.pages)
    });
    Row::new()
        .data("zone_lock_acquisitions_per_1000_pages_refill", refill(taken))
        .data("zone_lock_acquisitions_per_1000_pages_drain", drain(taken))
        .column_as("zone_lock_hold_ns_per_page_refill", "refill held", Format::number(1), refill(held))
        .minor()
        .column_as("zone_lock_hold_ns_per_page_drain", "drain held", Format::number(1), drain(held))
        .minor()
        .data("page_lines_under_lock_per_page", both)
        .column_as("page_lines_under_lock_per_page_refill", "refill lines", Format::number(2), refill(lines))
        .minor()
        .column_as("page_lines_under_lock_per_page_drain", "drain lines", Format::number(2), drain(lines))
        .minor()
}

/// Under a policy that lets a drain enter a zone as one cluster: the number of drains, and which part of them the published
/// rule takes, entered whole, and was of movable frames.
fn drains(untimed: &[&Sample]) -> Row {
    let share = |of: fn(&Sample) -> u64| median_of(untimed, |run| per_page(of(run), run.drains.all)).map(fine);
    let drains = median_of(untimed, |run| Some(run.drains.all as f64)).filter(|drains| *drains > 0.0);
    Row::new()
        .data("drains", drains)
        .data("drains_ideal_share", share(|run| run.drains.full_batches))
        .data("drains_whole_share", share(|run| run.drains.spliced))
        .data("drains_movable_share", share(|run| run.drains.movable))
}

/// A share or a count per thousand, to a ten-thousandth.
fn fine(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

fn median_of(runs: &[&Sample], value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    median(runs.iter().filter_map(|run| value(run)))
}

/// A count for each page; `None` without pages.
fn per_page(count: u64, pages: u64) -> Option<f64> {
    (pages > 0).then(|| count as f64 / pages as f64)
}

fn per_1000_pages(lock: LockUse, pages: u64) -> Option<f64> {
    per_page(lock.acquisitions, pages).map(|each| each * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frameyard_workloads::counts::Drains;

    fn combination() -> Combination {
        Combination {
            workload: ZoneLockWorkload::PageFault,
            policy: ZonePolicy::Bits,
            mode: TaskMode::Threads,
            tasks: NonZeroU32::MIN,
            task_kind: None,
            lru: Some(LruPolicy::Vanilla),
            delay: None,
            memory: ByteSize::gib(1),
        }
    }

    fn sample(rate: f64, acquisitions: u64) -> Sample {
        let zone_lock = LockUse { acquisitions, contended: 1, wait_ns: 500, hold_ns: 2000 };
        Sample { rates: vec![(None, rate)], pages: 1000, zone_lock, ..Sample::default() }
    }

    #[test]
    fn throughput_and_times_come_from_different_runs() {
        let timed = Sample { locks_are_timed: true, ..sample(1.0, 99) };
        let row = measured(&combination(), &[sample(30.0, 10), sample(10.0, 30), sample(20.0, 20), timed]);
        assert_eq!(
            (row.number("ops_per_s"), row.number("ops_per_s_min"), row.number("ops_per_s_max")),
            (Some(20.0), Some(10.0), Some(30.0))
        );
        assert_eq!((row.number("runs"), row.number("zone_lock_acquisitions_per_1000_pages")), (Some(3.0), Some(20.0)));
        assert_eq!(
            (row.number("zone_lock_hold_ns_per_page"), row.number("zone_lock_wait_ns_per_page")),
            (Some(2.0), Some(0.5))
        );
    }

    #[test]
    fn if_all_runs_were_timed_all_count() {
        let timed = |rate| Sample { locks_are_timed: true, ..sample(rate, 10) };
        let row = measured(&combination(), &[timed(1.0), timed(3.0)]);
        assert_eq!(
            (row.number("runs"), row.number("ops_per_s"), row.number("zone_lock_hold_ns_per_page")),
            (Some(2.0), Some(2.0), Some(2.0))
        );
    }

    #[test]
    fn what_was_not_measured_is_null() {
        let row = measured(&combination(), &[sample(30.0, 10)]);
        assert_eq!((row.number("zone_lock_hold_ns_per_page"), row.number("pcp_pages_held")), (None, None));
        assert_eq!(
            (row.number("lru_lock_acquisitions_per_1000_pages"), row.number("high_order_success")),
            (None, None)
        );
        let idle = measured(&combination(), &[Sample { pages: 0, ..sample(0.0, 0) }]);
        assert_eq!(idle.number("zone_lock_acquisitions_per_1000_pages"), None);
    }

    #[test]
    fn shares_of_drains_are_medians_and_null_without_drains() {
        let run = |[all, movable, full_batches, spliced]: [u64; 4]| Sample {
            drains: Drains { all, movable, full_batches, spliced, ..Drains::default() },
            ..sample(1.0, 1)
        };
        let runs = [run([100, 99, 62, 90]), run([200, 200, 100, 200]), run([10, 5, 9, 9])];
        let row = measured(&combination(), &runs);
        assert_eq!(
            (row.number("drains"), row.number("drains_ideal_share"), row.number("drains_whole_share")),
            (Some(100.0), Some(0.62), Some(0.9))
        );
        assert_eq!(row.number("drains_movable_share"), Some(0.99));
        let none = measured(&combination(), &[sample(1.0, 1)]);
        assert_eq!(
            (none.number("drains"), none.number("drains_ideal_share"), none.number("drains_whole_share")),
            (None, None, None)
        );
    }

    #[test]
    fn lines_are_counted_for_each_page_of_refills_and_drains() {
        let way = |lines| Direction { pages: 100, zone_lock: LockUse::default(), lines_under_lock: Some(lines) };
        let transfers = vec![TransferCounts { refill: way(10), drain: way(100) }; 3];
        let timed = Sample { locks_are_timed: true, transfers, ..sample(1.0, 1) };
        let row = measured(&combination(), &[timed]);
        let lines =
            [row.number("page_lines_under_lock_per_page_refill"), row.number("page_lines_under_lock_per_page_drain")];
        assert_eq!((lines, row.number("page_lines_under_lock_per_page")), ([Some(0.1), Some(1.0)], Some(0.55)));
    }
}
