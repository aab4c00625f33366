//! The table of time spent waiting for the zone lock and the LRU lock during the exit of one process with 512 GiB.
//!
//! The published kernel hands 1 GiB of pages at a time to workers of a queue; its author sets 64 workers. Here 64
//! workers tear the space down together. Process and machine are smaller by the same factor.

use std::num::{NonZeroU32, NonZeroUsize};

use frameyard::ByteSize;
use frameyard::platform::LockKind;
use frameyard::policy::ZonePolicy;
use frameyard_sim::{ExitRun, Machine, ParallelExit};

use crate::Failure;
use crate::commands::sim::published::{ZoneLockLine, distinct, zone_lock_lines};
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// The predicted experiment.
const EXPERIMENT: &str = "parallel-free";
/// The table's names of the locks.
const LOCKS: [(&str, LockKind); 2] =
    [("zone lock contention", LockKind::Zone), ("LRU lock contention", LockKind::LruShard)];

/// A published share.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Share {
    policy: ZonePolicy,
    lock: LockKind,
    /// In percent.
    published: f64,
}

/// Predicts and compares.
pub(super) fn compared(machine: &Machine, memory: ByteSize, workers: NonZeroU32) -> Result<Report, Failure> {
    if workers.get() as usize > machine.cpus() {
        let (name, cpus) = (&machine.name, machine.cpus());
        return Err(Failure::input(format!(
            "{workers} workers are more than the {cpus} CPUs of {name}: request fewer"
        )));
    }
    let shares = shares();
    let policies = distinct(shares.iter().map(|share| share.policy));
    let as_usize = NonZeroUsize::try_from(workers).map_err(Failure::run_time)?;
    let bar = progress_bar("predicting", policies.len() as u64);
    let exit = ParallelExit::scaled(machine, memory, as_usize);
    let mut rows = Vec::new();
    for policy in policies {
        let run = exit.run(machine, policy).map_err(Failure::run_time)?;
        rows.extend(LOCKS.map(|lock| row(policy, workers, lock, &run, &shares)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Report::new("sim check", rows).of_machine(&machine.name))
}

/// The published shares.
fn shares() -> Vec<Share> {
    let share = |ZoneLockLine { metric, policy, value }| {
        let (_, lock) = LOCKS.into_iter().find(|(name, _)| *name == metric)?;
        Some(Share { policy, lock, published: value })
    };
    zone_lock_lines(EXPERIMENT).filter_map(share).collect()
}

/// The published share of the first policy less that of `policy`: what one expects of a policy that changes nothing.
fn naive(policy: ZonePolicy, lock: LockKind, shares: &[Share]) -> Option<f64> {
    let of = |policy| shares.iter().find(|share| share.policy == policy && share.lock == lock);
    let base = shares.first()?.policy;
    (policy != base).then_some(of(base)?.published - of(policy)?.published)
}

fn row(
    policy: ZonePolicy,
    workers: NonZeroU32,
    lock: (&'static str, LockKind),
    run: &ExitRun,
    shares: &[Share],
) -> Row {
    let published = shares.iter().find(|share| share.policy == policy && share.lock == lock.1);
    let published_pct = published.map(|share| share.published);
    let predicted_pct = rounded(run.waiting_share(lock.1) * 100.0);
    Row::new()
        .column("policy", "policy", policy.name())
        .column("workers", "workers", workers.get())
        .column("metric", "metric", lock.0)
        .column_as("published_pct", "published %", Format::number(1), published_pct)
        .column_as("predicted_pct", "predicted %", Format::number(1), predicted_pct)
        .column_as(
            "difference_points",
            "difference",
            Format::number(1),
            published_pct.map(|published| rounded(predicted_pct - published)),
        )
        .column_as("naive_difference_points", "naive", Format::number(1), naive(policy, lock.1, shares))
        .column_as("exit_ns", "exit ms", Format::millions(1), run.time.0 / 1000)
        .minor()
        .column_as("exit_ns_per_page", "ns/page", Format::number(1), rounded(run.time.as_ns() / run.pages.0 as f64))
        .minor()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::published_table::zone_lock;

    #[test]
    fn every_line_of_the_experiment_is_read() {
        let lines = zone_lock().filter(|record| record.experiment == "parallel-free").count();
        let shares = shares();
        assert_eq!((shares.len(), lines), (6, 6));
        let share = |policy, lock, published| assert!(shares.contains(&Share { policy, lock, published }), "{policy}");
        share(ZonePolicy::Vanilla417, LockKind::Zone, 90.0);
        share(ZonePolicy::SkipMerge, LockKind::LruShard, 90.0);
        share(ZonePolicy::Cluster, LockKind::Zone, 25.0);
        use ZonePolicy::{Cluster, ClusterBulk, SkipMerge, Vanilla417};
        assert_eq!(distinct(shares.iter().map(|share| share.policy)), [Vanilla417, SkipMerge, Cluster, ClusterBulk]);
    }

    #[test]
    fn unpublished_rows_have_only_a_prediction() {
        let machine = Machine::built_in("skylake-4s").unwrap();
        let compared = compared(&machine, ByteSize::mib(256), NonZeroU32::new(2).unwrap()).unwrap();
        let row = |at: usize| {
            let row = &compared.rows()[at];
            let texts = ["policy", "metric"].map(|key| row.text(key).unwrap());
            (texts, row.number("published_pct"), row.number("difference_points").is_some())
        };
        assert_eq!(row(0), (["vanilla-4.17", "zone lock contention"], Some(90.0), true));
        assert_eq!(row(5), (["cluster", "LRU lock contention"], None, false));
        let naive = |at: usize| compared.rows()[at].number("naive_difference_points");
        assert_eq!([0, 2, 4, 5].map(naive), [None, Some(90.0), Some(65.0), None]);
        assert!(compared.rows().iter().all(|row| row.number("exit_ns_per_page") > Some(0.0)));
    }

    #[test]
    fn more_workers_than_cpus_are_refused() {
        let machine = Machine::built_in("broadwell-40").unwrap();
        let refused = compared(&machine, ByteSize::mib(256), NonZeroU32::new(41).unwrap()).err().unwrap();
        assert_eq!(refused.to_string(), "41 workers are more than the 40 CPUs of broadwell-40: request fewer");
    }
}
