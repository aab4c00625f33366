//! Published tables for fits and comparisons.

use std::num::NonZeroUsize;
use std::thread;

use clap::ValueEnum;
use frameyard::policy::ZonePolicy;
use frameyard_sim::{Machine, Measured, Mode, Point, Predictor, PredictorPool, RateTable};
use serde::Deserialize;

use crate::Failure;
use crate::commands::published_table::{ZoneLockRecord, records, zone_lock as zone_lock_table};

/// A published table for fits.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FittedTable {
    /// Page faults per second of 1 to 40 tasks, processes and threads, on three kernels
    PageFault,
    /// Page faults per second of all CPUs of two sockets: two stock kernels, and the cluster series
    ZoneLock,
    /// Times of initialising memory maps
    DeferredInit,
}

impl FittedTable {
    /// The name on command lines and in machines' files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PageFault => "page-fault",
            Self::ZoneLock => "zone-lock",
            Self::DeferredInit => "deferred-init",
        }
    }

    /// The built-in machine of the table.
    pub(super) fn machine(self) -> &'static str {
        match self {
            Self::PageFault => "broadwell-40",
            Self::ZoneLock => LARGE,
            Self::DeferredInit => "haswell-2699v3",
        }
    }
}

/// The tables; their headers name the columns.
const PAGE_FAULT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/page_fault1-broadwell-40cpu.csv"));
const PAGE_FAULT_88: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/page_fault1-broadwell-88cpu.csv"));
const FULL_LOAD: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/page_fault1-full-load.csv"));

/// The kernel below the cluster series. It picks pages and prefetches the buddies of single pages before it takes the lock: a
/// reviewer asks why prefetching does not help, and the author answers that it covers the first of many merges.
pub(super) const BASE: ZonePolicy = ZonePolicy::Vanilla417;
/// The kernel before, which does both under the lock.
const BEFORE: ZonePolicy = ZonePolicy::Vanilla416;

/// The machine of [`zone_lock`].
const LARGE: &str = "skylake-112";

/// Page faults per second by tasks, policy and mode.
pub(super) fn page_fault() -> Result<RateTable, Failure> {
    RateTable::parse(PAGE_FAULT).map_err(Failure::run_time)
}

/// The same of `broadwell-88`, for two of its kernels.
pub(super) fn page_fault_88() -> Result<RateTable, Failure> {
    RateTable::parse(PAGE_FAULT_88).map_err(Failure::run_time)
}

/// Page faults per second of 112 processes: two stock kernels, and the cluster series, published as a gain over the later one.
pub(super) fn zone_lock() -> Result<RateTable, Failure> {
    let damaged = || Failure::run_time("the published table of full loads lacks a line");
    let [base, before] = [BASE, BEFORE].map(full_load);
    let (base, before) = base.zip(before).ok_or_else(damaged)?;
    let gain =
        zone_lock_lines(PAGE_FAULTS).find(|line| line.policy == ZonePolicy::Cluster && line.metric == THROUGHPUT);
    let with_clusters = base * (1.0 + gain.ok_or_else(damaged)?.value / 100.0);
    let rates = [(BASE, base), (BEFORE, before), (ZonePolicy::Cluster, with_clusters)];
    let tasks = Machine::built_in(LARGE).map_or(0, |machine| machine.cpus() as u32);
    Ok(RateTable::of(rates.map(|(policy, rate)| (Point { policy, mode: Mode::Processes, tasks }, rate))))
}

/// Page faults per second of all CPUs of the zone-lock table's machine under a policy.
fn full_load(policy: ZonePolicy) -> Option<f64> {
    /// A line of the table.
    #[derive(Deserialize)]
    struct Record {
        machine: String,
        policy: Option<String>,
        processes_pgf_per_s: f64,
    }
    let is_it = |record: &Record| record.machine == LARGE && record.policy.as_deref() == Some(policy.name());
    records(FULL_LOAD).find(is_it).map(|record| record.processes_pgf_per_s)
}

/// The metric of the zone-lock table for throughput relative to the base, in percent.
pub(super) const THROUGHPUT: &str = "throughput against vanilla";

/// The experiment of the zone-lock table with a process on each CPU.
pub(super) const PAGE_FAULTS: &str = "page-fault";

/// A line of the zone-lock table.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ZoneLockLine {
    pub(super) metric: String,
    pub(super) policy: ZonePolicy,
    /// In percent, or nanoseconds.
    pub(super) value: f64,
}

/// The lines of the zone-lock table about an experiment.
pub(super) fn zone_lock_lines(experiment: &str) -> impl Iterator<Item = ZoneLockLine> {
    zone_lock_table().filter_map(move |record| {
        let ZoneLockRecord { experiment: of, metric, policy, value, .. } = record;
        (of == experiment).then_some(ZoneLockLine { metric, policy: policy.parse().ok()?, value })
    })
}

/// Each value once, in the order of its first place.
pub(super) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    values.into_iter().fold(Vec::new(), |mut distinct, value| {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
        distinct
    })
}

/// The published value of a named row, on a machine that is large enough.
///
/// # Errors
///
/// [`Failure::Input`] where the table lacks the row, or the machine has fewer CPUs than tasks.
pub(super) fn value(table: &RateTable, point: &Point, machine: &Machine) -> Result<Measured, Failure> {
    let Point { policy, mode, tasks } = point;
    let measured = table.at(point).ok_or_else(|| {
        Failure::input(format!(
            "{policy}/{mode}/{tasks}: not in the table: page-fault has 1 to 40 tasks of vanilla-4.16, cluster-bulk and big-pcp, \
             page-fault-88 has 1 to 8, 11, 22 to 88 tasks of vanilla-4.16 and cluster-bulk, \
             zone-lock has 112 processes of vanilla-4.16, vanilla-4.17 and cluster"
        ))
    })?;
    if *tasks as usize > machine.cpus() {
        let (name, cpus) = (&machine.name, machine.cpus());
        return Err(Failure::input(format!(
            "{policy}/{mode}/{tasks}: {name} has {cpus} CPUs, and each task needs one"
        )));
    }
    Ok(measured)
}

/// Predictors on all of the host's CPUs.
pub(super) fn predictors<P: Predictor + Clone + Send>(predictor: P) -> PredictorPool<P> {
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    PredictorPool::new(threads, predictor)
}

#[cfg(test)]
mod tests {
    use frameyard::policy::ZonePolicy;
    use frameyard_sim::Mode;

    use super::*;

    #[test]
    fn the_table_has_240_values_of_three_kernels() {
        let table = page_fault().unwrap();
        assert_eq!(table.values().len(), 240);
        for policy in [ZonePolicy::Vanilla416, ZonePolicy::ClusterBulk, ZonePolicy::BigPcp] {
            for (mode, tasks) in Mode::ALL.into_iter().flat_map(|mode| (1..=40).map(move |tasks| (mode, tasks))) {
                assert!(table.at(&Point { policy, mode, tasks }).is_some(), "{policy} {mode} {tasks}");
            }
        }
        let last = Point { policy: ZonePolicy::BigPcp, mode: Mode::Threads, tasks: 40 };
        assert_eq!(table.at(&last), Some(Measured { mean: 2_868_986.0, stdev: 52_724.0 }));
    }
}
