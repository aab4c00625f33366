//! The table of 112 faulting CPUs: shares of time spent waiting for the zone lock and the LRU lock, and page faults
//! per second.

use frameyard::platform::{Activity, LockKind};
use frameyard::policy::ZonePolicy;
use frameyard_sim::{Effort, FaultPredictor, FaultRun, Machine, Measured, Mode, Point, RateTable, Role};

use crate::Failure;
use crate::commands::sim::published::{self, BASE, FittedTable, PAGE_FAULTS, THROUGHPUT, ZoneLockLine, distinct};
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// The subject of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metric {
    /// All waits for the zone lock.
    ZoneLock,
    /// Waits for the zone lock within some spans.
    ZoneLockIn(&'static [Activity]),
    /// All waits for LRU locks.
    LruLock,
    /// Throughput relative to the base.
    Throughput,
    /// Page faults per second.
    Rate,
}

impl Metric {
    /// The metric of a name in the table.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "CPU time spinning on the zone lock" | "zone lock contention" => Self::ZoneLock,
            "zone lock contention on the allocation path" => Self::ZoneLockIn(&[Activity::Alloc, Activity::Refill]),
            "zone lock contention on the free path" => Self::ZoneLockIn(&[Activity::Free, Activity::Drain]),
            "LRU lock contention" => Self::LruLock,
            THROUGHPUT => Self::Throughput,
            _ => return None,
        })
    }
}

/// A published value.
#[derive(Clone, PartialEq, Debug)]
struct Value {
    policy: ZonePolicy,
    metric: Metric,
    name: String,
    /// In percent, or faults per second.
    published: f64,
}

/// Predicts and compares.
pub(super) fn compared(machine: &Machine, effort: Effort) -> Result<Report, Failure> {
    let values = values(&published::zone_lock()?);
    let tasks = machine.cpus() as u32;
    let policies = distinct([BASE].into_iter().chain(values.iter().map(|value| value.policy)));
    let bar = progress_bar("predicting", policies.len() as u64);
    let predictor = FaultPredictor::new(effort);
    let run = |policy: &ZonePolicy| {
        let run = predictor.run(machine, &Point { policy: *policy, mode: Mode::Processes, tasks });
        bar.inc(1);
        run.map(|run| (*policy, run)).map_err(Failure::run_time)
    };
    let runs: Vec<(ZonePolicy, FaultRun)> = policies.iter().map(run).collect::<Result<_, _>>()?;
    bar.finish_and_clear();
    let fitted_on = fitted_on(machine);
    let rows = values.iter().filter_map(|value| row(value, &values, tasks, &runs, &fitted_on)).collect();
    let named = if fitted_on.is_empty() { "nothing".to_owned() } else { fitted_on.join("; ") };
    let note = format!(
        "fitted on {named}; differences are percentage points of shares, and percent of rates; naive: no policy changes what was \
         published of {BASE}"
    );
    Ok(Report::new("sim check", rows).of_machine(&machine.name).note(note))
}

/// The published values: shares and differences, then rates.
fn values(rates: &RateTable) -> Vec<Value> {
    let rate = |(point, measured): &(Point, Measured)| Value {
        policy: point.policy,
        metric: Metric::Rate,
        name: "page faults a second".to_owned(),
        published: measured.mean,
    };
    // The rate of the cluster series follows from the base's rate and the published difference, which has its
    // own line.
    let rates = rates.values().iter().filter(|(point, _)| point.policy != ZonePolicy::Cluster).map(rate);
    published::zone_lock_lines(PAGE_FAULTS).filter_map(value).chain(rates).collect()
}

fn value(line: ZoneLockLine) -> Option<Value> {
    let ZoneLockLine { metric: name, policy, value: published } = line;
    Some(Value { policy, metric: Metric::named(&name)?, name, published })
}

/// The rows that the machine's fit used.
fn fitted_on(machine: &Machine) -> Vec<String> {
    let is_this = machine.calibration.table.as_deref() == Some(FittedTable::ZoneLock.name());
    if is_this { machine.calibration.rows.clone() } else { Vec::new() }
}

/// What one would expect of a policy that changes nothing: the published value of the base.
fn naive(value: &Value, values: &[Value]) -> Option<f64> {
    if value.policy == BASE {
        return None;
    }
    if value.metric == Metric::Throughput {
        return Some(0.0);
    }
    values.iter().find(|other| other.policy == BASE && other.metric == value.metric).map(|base| base.published)
}

fn row(
    value: &Value,
    values: &[Value],
    tasks: u32,
    runs: &[(ZonePolicy, FaultRun)],
    fitted_on: &[String],
) -> Option<Row> {
    let Value { policy, metric, ref name, published } = *value;
    let of = |policy: ZonePolicy| runs.iter().find(|(known, _)| *known == policy).map(|(_, run)| run);
    let run = of(policy)?;
    let percent = |share: f64| rounded(share * 100.0);
    let (unit, predicted) = match metric {
        Metric::ZoneLock => ("%", percent(run.waiting_share(LockKind::Zone))),
        Metric::ZoneLockIn(spans) => ("%", percent(run.waiting_share_within(spans, LockKind::Zone))),
        Metric::LruLock => ("%", percent(run.waiting_share(LockKind::LruShard))),
        Metric::Throughput => ("%", percent(run.rate / of(BASE)?.rate - 1.0)),
        Metric::Rate => ("1/s", run.rate.round()),
    };
    let from_published = |value: f64| match metric {
        Metric::Rate => percent(value / published - 1.0),
        _ => rounded(value - published),
    };
    let is_rate = matches!(metric, Metric::Throughput | Metric::Rate);
    let is_fitted = is_rate && fitted_on.iter().any(|rows| rows.split('/').next() == Some(policy.name()));
    let role = if is_fitted { Role::Calibrated } else { Role::Predicted }.name();
    let number = Format::number(usize::from(!matches!(metric, Metric::Rate)));
    let row = Row::new()
        .column("policy", "policy", policy.name())
        .column("tasks", "tasks", tasks)
        .column("metric", "metric", name.clone())
        .column("unit", "unit", unit)
        .column_as("published", "published", number, published)
        .column_as("predicted", "predicted", number, predicted)
        .column_as("difference", "difference", Format::number(1).signed(), from_published(predicted))
        .column_as("naive_difference", "naive", Format::number(1).signed(), naive(value, values).map(from_published))
        .column("role", "row", role);
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_about_page_faults_is_read() {
        let values = values(&published::zone_lock().unwrap());
        let (rates, shares): (Vec<Value>, Vec<Value>) =
            values.into_iter().partition(|value| value.metric == Metric::Rate);
        assert_eq!((shares.len(), published::zone_lock_lines(PAGE_FAULTS).count()), (11, 11));
        let of = |policy, metric| shares.iter().find(|value| value.policy == policy && value.metric == metric).unwrap();
        assert_eq!(of(BASE, Metric::ZoneLock).published, 80.0);
        assert_eq!(of(ZonePolicy::Cluster, Metric::LruLock).published, 82.0);
        assert_eq!(of(ZonePolicy::SkipMerge, Metric::Throughput).published, -1.0);
        let rates: Vec<(ZonePolicy, f64)> = rates.iter().map(|value| (value.policy, value.published)).collect();
        assert_eq!(rates, [(BASE, 8_544_477.0), (ZonePolicy::Vanilla416, 7_971_818.0)]);
    }

    #[test]
    fn the_naive_expectation_is_the_value_of_the_base() {
        let values = values(&published::zone_lock().unwrap());
        let of = |policy, metric| {
            let value = values.iter().find(|value| value.policy == policy && value.metric == metric).unwrap();
            naive(value, &values)
        };
        assert_eq!(of(BASE, Metric::LruLock), None);
        assert_eq!(of(ZonePolicy::Cluster, Metric::LruLock), Some(5.0));
        assert_eq!(of(ZonePolicy::SkipMerge, Metric::Throughput), Some(0.0));
        assert_eq!(of(ZonePolicy::Vanilla416, Metric::Rate), Some(8_544_477.0));
    }
}
