//! What was published of the same workloads on other machines.

use super::row::{PUBLISHED, Row};
use crate::cli::ZoneLockWorkload;
use crate::commands::published_table::{ZONE_LOCK, cells};

/// The metric whose values are success rates, in percent.
const SUCCESS: &str = "success rate";
/// The metric whose values are times of a request, in nanoseconds.
const REQUEST_TIME: &str = "mean time of one order-9 allocation";
/// What experiments are called that are about drains and no workload here.
const DRAINS: &str = "drains ";

/// The rows of some workloads, and those that are about none.
pub(super) fn rows(workloads: &[ZoneLockWorkload]) -> Vec<Row> {
    let all = ZONE_LOCK.lines().skip(1).filter_map(row);
    let is_wanted = |row: &Row| {
        row.workload.starts_with(DRAINS) || workloads.iter().any(|workload| workload.name() == row.workload)
    };
    all.filter(is_wanted).collect()
}

/// A line of the table as a row.
fn row(line: &str) -> Option<Row> {
    let [experiment, machine, metric, unit, policy, value, note] = cells(line)?;
    let value: f64 = value.parse().ok()?;
    let (workload, delay_ns) = match experiment.strip_prefix("highalloc delay ") {
        Some(delay) => ("highalloc", delay.strip_suffix(" ms")?.parse::<u64>().ok().map(|ms| ms * 1_000_000)),
        None => (experiment.as_str(), None),
    };
    let task_kind = match metric.as_str() {
        "score of the order-0 tasks" => Some("small"),
        "score of the huge-page tasks" => Some("huge"),
        _ => None,
    };
    Some(Row {
        source: PUBLISHED,
        workload: workload.to_owned(),
        policy,
        task_kind,
        delay_ns,
        high_order_success: (metric == SUCCESS).then_some(value / 100.0),
        high_order_ns: (metric == REQUEST_TIME).then_some(value),
        published_machine: Some(machine),
        published_metric: Some(metric),
        published_unit: Some(unit),
        published_value: Some(value),
        published_note: (!note.is_empty()).then_some(note),
        ..Row::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use frameyard::policy::ZonePolicy;

    #[test]
    fn every_line_of_the_table_is_a_row_of_a_policy_that_there_is() {
        let rows = rows(ZoneLockWorkload::value_variants());
        assert_eq!(rows.len(), ZONE_LOCK.lines().count() - 1);
        for row in &rows {
            assert!(row.policy.parse::<ZonePolicy>().is_ok(), "{row:?}");
            assert!(row.source == PUBLISHED && row.mode.is_none() && row.ops_per_s.is_none(), "{row:?}");
        }
    }

    #[test]
    fn values_keep_their_metric_and_where_they_mean_the_same_they_have_our_key_too() {
        let rows = rows(&[ZoneLockWorkload::Highalloc]);
        let find = |policy: &str, delay: u64, metric: &str| {
            let is_it = |row: &&Row| {
                row.policy == policy && row.delay_ns == Some(delay) && row.published_metric.as_deref() == Some(metric)
            };
            rows.iter().find(is_it).unwrap()
        };
        let row = find("cluster-bulk", 1_000_000, SUCCESS);
        assert_eq!((row.high_order_success, row.published_value, row.high_order_ns), (Some(0.59), Some(59.0), None));
        assert_eq!(find("vanilla", 100_000_000, REQUEST_TIME).high_order_ns, Some(3_959_270.0));
        assert!(rows.iter().all(|row| row.workload == "highalloc" || row.workload.starts_with(DRAINS)));
    }

    #[test]
    fn a_cell_in_quotes_may_have_commas() {
        let row = row("page-fault,x,zone lock contention,pct,cluster,0,\"eliminated, with skip-merge\"").unwrap();
        assert_eq!(row.published_note.as_deref(), Some("eliminated, with skip-merge"));
        assert!(super::row("too,few").is_none());
    }
}
