//! What was published of the same workloads on other machines.

use super::ZoneLockWorkload;
use super::row::Subject;
use crate::commands::published_table::{ZoneLockRecord, zone_lock};
use crate::output::Row;

/// The metric whose values are success rates, in percent.
const SUCCESS: &str = "success rate";
/// The metric whose values are times of a request, in nanoseconds.
const REQUEST_TIME: &str = "mean time of one order-9 allocation";
/// How the names of experiments about drains begin. They match no workload here.
pub(super) const DRAINS: &str = "drains ";

/// The rows of some workloads, and the rows about drains.
pub(super) fn rows(workloads: &[ZoneLockWorkload]) -> Vec<Row> {
    let is_wanted = |subject: &Subject| {
        subject.workload.starts_with(DRAINS) || workloads.iter().any(|workload| workload.name() == subject.workload)
    };
    zone_lock().filter_map(subject).filter(is_wanted).map(|subject| subject.row(&[])).collect()
}

fn subject(record: ZoneLockRecord) -> Option<Subject> {
    let (workload, delay_ns) = match record.experiment.strip_prefix("highalloc delay ") {
        Some(delay) => ("highalloc", Some(delay.strip_suffix(" ms")?.parse::<u64>().ok()? * 1_000_000)),
        None => (record.experiment.as_str(), None),
    };
    let task_kind = match record.metric.as_str() {
        "score of the order-0 tasks" => Some("small"),
        "score of the huge-page tasks" => Some("huge"),
        _ => None,
    };
    Some(Subject {
        workload: workload.to_owned(),
        policy: record.policy.clone(),
        task_kind,
        delay_ns,
        high_order_success: (record.metric == SUCCESS).then_some(record.value / 100.0),
        high_order_ns: (record.metric == REQUEST_TIME).then_some(record.value),
        published: Some(record),
        ..Subject::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::published_table::PUBLISHED;
    use clap::ValueEnum;
    use frameyard::policy::ZonePolicy;
    use serde_json::Value;

    #[test]
    fn every_line_of_the_table_is_a_row_of_a_known_policy() {
        let rows = rows(ZoneLockWorkload::value_variants());
        assert_eq!(rows.len(), zone_lock().count());
        for row in &rows {
            assert!(row.text("policy").unwrap().parse::<ZonePolicy>().is_ok(), "{row:?}");
            assert_eq!((row.text("source"), row.value("mode")), (Some(PUBLISHED), &Value::Null));
            assert!(row.value("ops_per_s").is_null() && row.value("runs").is_null(), "{row:?}");
        }
    }

    #[test]
    fn values_keep_their_metric_and_have_the_key_of_the_same_measured_value() {
        let rows = rows(&[ZoneLockWorkload::Highalloc]);
        let find = |policy: &str, delay: f64, metric: &str| {
            let is_it = |row: &&Row| {
                let found = (row.text("policy"), row.number("delay_ns"), row.text("published_metric"));
                found == (Some(policy), Some(delay), Some(metric))
            };
            rows.iter().find(is_it).unwrap()
        };
        let row = find("cluster-bulk", 1e6, SUCCESS);
        let values = ["high_order_success", "published_value", "high_order_ns"].map(|key| row.number(key));
        assert_eq!(values, [Some(0.59), Some(59.0), None]);
        assert_eq!(find("vanilla-4.17", 1e8, REQUEST_TIME).number("high_order_ns"), Some(3_959_270.0));
        let is_wanted =
            |row: &Row| row.text("workload").is_some_and(|name| name == "highalloc" || name.starts_with(DRAINS));
        assert!(rows.iter().all(is_wanted));
    }
}
