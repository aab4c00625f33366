//! A row: what was measured of a combination, or what was published. Both have the same keys; `source` tells them apart.

use std::num::NonZeroU32;
use std::time::Duration;

use frameyard::{ByteSize, LockUse, ZonePolicy};
use frameyard_vm::LruPolicy;
use serde::Serialize;

use super::sample::Sample;
use crate::cli::ZoneLockWorkload;
use frameyard_workloads::TaskMode;
use frameyard_workloads::measure::Spread;
use crate::output::rounded;
use frameyard_workloads::transfer::Direction;

/// What rows say of where their values come from.
pub(super) const MEASURED: &str = "measured";
/// As [`MEASURED`].
pub(super) const PUBLISHED: &str = "published";

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

/// A row. Pages are frames handed out while the workload was measured; in `parallel-free`, taken back. Throughput and counts
/// are medians of the runs whose locks were not timed; times, and what CPUs held, are of the one whose locks were; where all
/// were, of all. What is said of refills and drains is of one thread that does what the tasks do.
#[derive(Clone, PartialEq, Serialize, Debug, Default)]
pub(super) struct Row {
    pub(super) source: &'static str,
    pub(super) workload: String,
    pub(super) policy: String,
    pub(super) mode: Option<&'static str>,
    pub(super) tasks: Option<u32>,
    pub(super) task_kind: Option<&'static str>,
    pub(super) lru_policy: Option<&'static str>,
    pub(super) delay_ns: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) runs: Option<usize>,
    pub(super) pages: Option<f64>,
    pub(super) ops_per_s: Option<f64>,
    pub(super) ops_per_s_min: Option<f64>,
    pub(super) ops_per_s_max: Option<f64>,
    pub(super) get_ns: Option<f64>,
    pub(super) put_ns: Option<f64>,
    pub(super) zone_lock_acquisitions_per_1000_pages: Option<f64>,
    pub(super) zone_lock_contended_share: Option<f64>,
    pub(super) zone_lock_hold_ns_per_page: Option<f64>,
    pub(super) zone_lock_wait_ns_per_page: Option<f64>,
    pub(super) lru_lock_acquisitions_per_1000_pages: Option<f64>,
    pub(super) lru_lock_contended_share: Option<f64>,
    pub(super) lru_lock_hold_ns_per_page: Option<f64>,
    pub(super) lru_lock_wait_ns_per_page: Option<f64>,
    pub(super) zone_lock_acquisitions_per_1000_pages_refill: Option<f64>,
    pub(super) zone_lock_acquisitions_per_1000_pages_drain: Option<f64>,
    pub(super) zone_lock_hold_ns_per_page_refill: Option<f64>,
    pub(super) zone_lock_hold_ns_per_page_drain: Option<f64>,
    pub(super) page_lines_under_lock_per_page: Option<f64>,
    pub(super) page_lines_under_lock_per_page_refill: Option<f64>,
    pub(super) page_lines_under_lock_per_page_drain: Option<f64>,
    /// Under a policy that lets drains enter a zone as one cluster: how many drains there were, and which part of them the
    /// published rule takes, entered whole, and was of movable frames.
    pub(super) drains: Option<f64>,
    pub(super) drains_ideal_share: Option<f64>,
    pub(super) drains_whole_share: Option<f64>,
    pub(super) drains_movable_share: Option<f64>,
    pub(super) high_order_success: Option<f64>,
    pub(super) high_order_success_min: Option<f64>,
    pub(super) high_order_success_max: Option<f64>,
    pub(super) high_order_ns: Option<f64>,
    pub(super) pcp_pages_held: Option<u64>,
    pub(super) pcp_pages_held_mean: Option<f64>,
    /// Of a published figure: where, what, in which unit, and how much.
    pub(super) published_machine: Option<String>,
    pub(super) published_metric: Option<String>,
    pub(super) published_unit: Option<String>,
    pub(super) published_value: Option<f64>,
    pub(super) published_note: Option<String>,
}

/// To a ten-thousandth: shares, and counts of few in a thousand.
fn fine(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn spread(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
    Spread::of(values)
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// A count for each page, where there were pages.
fn per_page(count: u64, pages: u64) -> Option<f64> {
    (pages > 0).then(|| count as f64 / pages as f64)
}

fn per_1000_pages(lock: LockUse, pages: u64) -> Option<f64> {
    per_page(lock.acquisitions, pages).map(|each| each * 1000.0)
}

fn contended_share(lock: LockUse) -> Option<f64> {
    per_page(lock.contended, lock.acquisitions)
}

impl Row {
    /// What some runs of a combination gave.
    pub(super) fn measured(of: &Combination, runs: &[Sample]) -> Self {
        let (timed, untimed): (Vec<&Sample>, Vec<&Sample>) = runs.iter().partition(|run| run.locks_are_timed);
        let untimed = if untimed.is_empty() { timed.clone() } else { untimed };
        let rate = |run: &&Sample| run.rates.iter().find(|(kind, _)| *kind == of.task_kind).map(|(_, rate)| *rate);
        let rates = spread(untimed.iter().filter_map(rate));
        let of_untimed = |value: fn(&Sample) -> Option<f64>| median(untimed.iter().filter_map(|run| value(run)));
        let of_timed = |value: fn(&Sample) -> Option<f64>| median(timed.iter().filter_map(|run| value(run)));
        let success = spread(runs.iter().filter_map(|run| run.high_order.map(|high| high.success)));
        let row = Self {
            source: MEASURED,
            workload: of.workload.name().to_owned(),
            policy: of.policy.name().to_owned(),
            mode: Some(match of.mode {
                TaskMode::Threads => "threads",
                TaskMode::Processes => "processes",
            }),
            tasks: Some(of.tasks.get()),
            task_kind: of.task_kind,
            lru_policy: of.lru.map(LruPolicy::name),
            delay_ns: of.delay.map(|delay| delay.as_nanos() as u64),
            memory_bytes: Some(of.memory.0),
            runs: Some(untimed.len()),
            pages: of_untimed(|run| Some(run.pages as f64)),
            ops_per_s: rates.map(|rates| rounded(rates.median)),
            ops_per_s_min: rates.map(|rates| rounded(rates.min)),
            ops_per_s_max: rates.map(|rates| rounded(rates.max)),
            get_ns: of_untimed(|run| run.get_put_ns.map(|(get, _)| get)).map(rounded),
            put_ns: of_untimed(|run| run.get_put_ns.map(|(_, put)| put)).map(rounded),
            zone_lock_acquisitions_per_1000_pages: of_untimed(|run| per_1000_pages(run.zone_lock, run.pages)).map(fine),
            zone_lock_contended_share: of_untimed(|run| contended_share(run.zone_lock)).map(fine),
            zone_lock_hold_ns_per_page: of_timed(|run| per_page(run.zone_lock.hold_ns, run.pages)).map(fine),
            zone_lock_wait_ns_per_page: of_timed(|run| per_page(run.zone_lock.wait_ns, run.pages)).map(fine),
            lru_lock_acquisitions_per_1000_pages: of_untimed(|run| per_1000_pages(run.lru_lock?, run.pages)).map(fine),
            lru_lock_contended_share: of_untimed(|run| contended_share(run.lru_lock?)).map(fine),
            lru_lock_hold_ns_per_page: of_timed(|run| per_page(run.lru_lock?.hold_ns, run.pages)).map(fine),
            lru_lock_wait_ns_per_page: of_timed(|run| per_page(run.lru_lock?.wait_ns, run.pages)).map(fine),
            drains: of_untimed(|run| Some(run.drains.all.drains as f64)).filter(|drains| *drains > 0.0),
            drains_ideal_share: of_untimed(|run| per_page(run.drains.all.ideal, run.drains.all.drains)).map(fine),
            drains_whole_share: of_untimed(|run| per_page(run.drains.all.whole, run.drains.all.drains)).map(fine),
            drains_movable_share: of_untimed(|run| per_page(run.drains.movable, run.drains.all.drains)).map(fine),
            high_order_success: success.map(|success| fine(success.median)),
            high_order_success_min: success.map(|success| fine(success.min)),
            high_order_success_max: success.map(|success| fine(success.max)),
            high_order_ns: of_untimed(|run| run.high_order.map(|high| high.ns)).map(rounded),
            pcp_pages_held: timed.iter().filter_map(|run| run.held).map(|held| held.most.0).max(),
            pcp_pages_held_mean: of_timed(|run| run.held.map(|held| held.mean)).map(rounded),
            ..Self::default()
        };
        row.with_directions(&timed)
    }

    /// What is known of each direction.
    fn with_directions(self, timed: &[&Sample]) -> Self {
        let crossings = || timed.iter().flat_map(|run| &run.crossings);
        let refill = |value: fn(&Direction) -> Option<f64>| {
            median(crossings().filter_map(|crossing| value(&crossing.refill))).map(fine)
        };
        let drain = |value: fn(&Direction) -> Option<f64>| {
            median(crossings().filter_map(|crossing| value(&crossing.drain))).map(fine)
        };
        let taken: fn(&Direction) -> Option<f64> = |way| per_1000_pages(way.zone_lock, way.pages);
        let held: fn(&Direction) -> Option<f64> = |way| per_page(way.zone_lock.hold_ns, way.pages);
        let lines: fn(&Direction) -> Option<f64> = |way| per_page(way.lines_under_lock?, way.pages);
        let both = crossings().filter_map(|crossing| {
            // Each page crosses twice.
            let lines = crossing.refill.lines_under_lock? + crossing.drain.lines_under_lock?;
            per_page(lines, crossing.refill.pages + crossing.drain.pages)
        });
        Self {
            zone_lock_acquisitions_per_1000_pages_refill: refill(taken),
            zone_lock_acquisitions_per_1000_pages_drain: drain(taken),
            zone_lock_hold_ns_per_page_refill: refill(held),
            zone_lock_hold_ns_per_page_drain: drain(held),
            page_lines_under_lock_per_page: median(both).map(fine),
            page_lines_under_lock_per_page_refill: refill(lines),
            page_lines_under_lock_per_page_drain: drain(lines),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frameyard_workloads::counts::Drains;
    use frameyard_workloads::transfer::TransferCounts;
    use frameyard::ClusterDrains;

    fn combination() -> Combination {
        Combination {
            workload: ZoneLockWorkload::PageFault,
            policy: ZonePolicy::Depot,
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
        let row = Row::measured(&combination(), &[sample(30.0, 10), sample(10.0, 30), sample(20.0, 20), timed]);
        assert_eq!((row.ops_per_s, row.ops_per_s_min, row.ops_per_s_max), (Some(20.0), Some(10.0), Some(30.0)));
        assert_eq!((row.runs, row.zone_lock_acquisitions_per_1000_pages), (Some(3), Some(20.0)));
        assert_eq!((row.zone_lock_hold_ns_per_page, row.zone_lock_wait_ns_per_page), (Some(2.0), Some(0.5)));
    }

    #[test]
    fn where_locks_were_timed_in_all_runs_all_count() {
        let timed = |rate| Sample { locks_are_timed: true, ..sample(rate, 10) };
        let row = Row::measured(&combination(), &[timed(1.0), timed(3.0)]);
        assert_eq!((row.runs, row.ops_per_s, row.zone_lock_hold_ns_per_page), (Some(2), Some(2.0), Some(2.0)));
    }

    #[test]
    fn what_was_not_measured_is_nothing() {
        let row = Row::measured(&combination(), &[sample(30.0, 10)]);
        assert_eq!((row.zone_lock_hold_ns_per_page, row.pcp_pages_held), (None, None));
        assert_eq!((row.lru_lock_acquisitions_per_1000_pages, row.high_order_success), (None, None));
        let idle = Row::measured(&combination(), &[Sample { pages: 0, ..sample(0.0, 0) }]);
        assert_eq!(idle.zone_lock_acquisitions_per_1000_pages, None);
    }

    #[test]
    fn shares_of_drains_are_those_of_each_run_and_nothing_where_none_enters_whole() {
        let drains = |drains, ideal, whole| ClusterDrains { drains, ideal, whole };
        let run = |all, movable| Sample { drains: Drains { all, movable }, ..sample(1.0, 1) };
        let runs = [run(drains(100, 62, 90), 99), run(drains(200, 100, 200), 200), run(drains(10, 9, 9), 5)];
        let row = Row::measured(&combination(), &runs);
        assert_eq!((row.drains, row.drains_ideal_share, row.drains_whole_share), (Some(100.0), Some(0.62), Some(0.9)));
        assert_eq!(row.drains_movable_share, Some(0.99));
        let none = Row::measured(&combination(), &[sample(1.0, 1)]);
        assert_eq!((none.drains, none.drains_ideal_share, none.drains_whole_share), (None, None, None));
    }

    #[test]
    fn lines_are_of_each_page_that_crossed_in_one_direction_or_the_other() {
        let way = |lines| Direction { pages: 100, zone_lock: LockUse::default(), lines_under_lock: Some(lines) };
        let crossings = vec![TransferCounts { refill: way(10), drain: way(100) }; 3];
        let timed = Sample { locks_are_timed: true, crossings, ..sample(1.0, 1) };
        let row = Row::measured(&combination(), &[timed]);
        let lines = [row.page_lines_under_lock_per_page_refill, row.page_lines_under_lock_per_page_drain];
        assert_eq!((lines, row.page_lines_under_lock_per_page), ([Some(0.1), Some(1.0)], Some(0.55)));
    }
}
