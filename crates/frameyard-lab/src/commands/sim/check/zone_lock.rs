//! The table of shares of time spent waiting for the zone lock and the LRU lock: `page-fault` with a task on every CPU.

use std::io::{self, Write};

use frameyard::{LockKind, Span, ZonePolicy};
use frameyard_sim::{Effort, FaultPredictor, FaultRun, Machine, Mode, Point};
use frameyard_vm::LruPolicy;
use serde::Serialize;

use crate::Failure;
use crate::commands::bench::published_table::cells;
use crate::output::{self, Outcome, RowError, Rows, Table};

/// The table: its header says what its columns are.
const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/zone-lock.csv"));
/// The experiment that is predicted.
const EXPERIMENT: &str = "page-fault";
/// What throughput is compared with.
const BASE: ZonePolicy = ZonePolicy::Vanilla;

/// What a row is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metric {
    /// All waiting for the zone lock.
    ZoneLock,
    /// Waiting for the zone lock within some spans.
    ZoneLockIn(&'static [Span]),
    /// All waiting for the locks of LRU lists.
    LruLock,
    /// How much more is done than under the base.
    Throughput,
}

/// A published share.
#[derive(Clone, PartialEq, Debug)]
struct Share {
    policy: ZonePolicy,
    metric: Metric,
    name: String,
    /// In percent.
    published: f64,
}

/// Predictions beside what was published.
pub(super) struct Compared {
    machine: String,
    rows: Vec<Row>,
}

/// A row of the outcome.
#[derive(Serialize)]
struct Row {
    policy: &'static str,
    tasks: u32,
    metric: String,
    published_pct: f64,
    predicted_pct: Option<f64>,
    difference_points: Option<f64>,
}

/// Predicts, and compares.
pub(super) fn compared(machine: &Machine, effort: Effort) -> Result<Compared, Failure> {
    let shares: Vec<Share> = TABLE.lines().skip(1).filter_map(share).collect();
    let tasks = machine.cpus() as u32;
    let mut policies: Vec<ZonePolicy> = vec![BASE];
    for share in &shares {
        if !policies.contains(&share.policy) {
            policies.push(share.policy);
        }
    }
    let bar = output::progress_bar("predicting", policies.len() as u64);
    let predictor = FaultPredictor { effort, lru: LruPolicy::Vanilla };
    let run = |policy: &ZonePolicy| {
        let run = predictor.run(machine, &Point { policy: *policy, mode: Mode::Processes, tasks });
        bar.inc(1);
        run.map(|run| (*policy, run)).map_err(Failure::run_time)
    };
    let runs: Vec<(ZonePolicy, FaultRun)> = policies.iter().map(run).collect::<Result<_, _>>()?;
    bar.finish_and_clear();
    let rows = shares.into_iter().map(|share| {
        let predicted = predicted(&share, &runs).map(|pct| (pct * 100.0).round() / 100.0);
        Row {
            policy: share.policy.name(),
            tasks,
            metric: share.name,
            published_pct: share.published,
            predicted_pct: predicted,
            difference_points: predicted.map(|pct| ((pct - share.published) * 100.0).round() / 100.0),
        }
    });
    Ok(Compared { machine: machine.name.clone(), rows: rows.collect() })
}

/// A line of the table, if it is of the experiment.
fn share(line: &str) -> Option<Share> {
    let [experiment, _machine, name, _unit, policy, value, _note] = cells(line)?;
    let metric = match name.as_str() {
        "CPU time spinning on the zone lock" | "zone lock contention" => Metric::ZoneLock,
        "zone lock contention on the allocation path" => Metric::ZoneLockIn(&[Span::Alloc, Span::Refill]),
        "zone lock contention on the free path" => Metric::ZoneLockIn(&[Span::Free, Span::Drain]),
        "LRU lock contention" => Metric::LruLock,
        "throughput against vanilla" => Metric::Throughput,
        _ => return None,
    };
    let (policy, published) = (policy.parse().ok()?, value.parse().ok()?);
    (experiment == EXPERIMENT).then_some(Share { policy, metric, name, published })
}

/// What was predicted of it, in percent.
fn predicted(share: &Share, runs: &[(ZonePolicy, FaultRun)]) -> Option<f64> {
    let of = |policy: ZonePolicy| runs.iter().find(|(known, _)| *known == policy).map(|(_, run)| run);
    let run = of(share.policy)?;
    let predicted = match share.metric {
        Metric::ZoneLock => run.waiting_share(LockKind::Zone),
        Metric::ZoneLockIn(spans) => run.waiting_share_within(spans, LockKind::Zone),
        Metric::LruLock => run.waiting_share(LockKind::Lru),
        Metric::Throughput => run.rate / of(BASE)?.rate - 1.0,
    };
    Some(predicted * 100.0)
}

impl Outcome for Compared {
    fn command(&self) -> &'static str {
        "sim check"
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.machine)
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        Table::of(&self.rows().map_err(io::Error::other)?).write(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_experiment_is_understood() {
        let lines = TABLE.lines().filter(|line| line.starts_with("page-fault,")).count();
        let shares: Vec<Share> = TABLE.lines().skip(1).filter_map(share).collect();
        assert_eq!((shares.len(), lines), (11, 11));
        let of = |policy, metric| shares.iter().find(|share| share.policy == policy && share.metric == metric).unwrap();
        assert_eq!(of(ZonePolicy::Vanilla, Metric::ZoneLock).published, 80.0);
        assert_eq!(of(ZonePolicy::Cluster, Metric::LruLock).published, 82.0);
        assert_eq!(of(ZonePolicy::SkipMerge, Metric::Throughput).published, -1.0);
    }
}
