//! What each step of the cluster series did.

use serde_json::{Value, json};

use super::super::jobs::group;
use super::super::results::{Results, number};
use super::published::{self, Line};
use super::{ComparedRow, ComparedTable, Measured};

/// The table, experiment by experiment.
pub(super) fn table(results: &Results) -> ComparedTable {
    let groups = vec![
        group::CHECK_ZONE_LOCK,
        group::CHECK_PARALLEL_FREE,
        group::CHECK_HIGHALLOC,
        group::CHECK_ORDER0_THP,
        group::HIGHALLOC,
        group::ORDER0_THP,
    ];
    let mut table = ComparedTable::new(
        "zone-lock",
        "Zone lock and LRU lock, with each step of the cluster series",
        groups,
        results,
    );
    table.rows = published::lines(published::ZONE_LOCK).iter().map(|line| row(line, results)).collect();
    table.missing.push(
        "drains of a desktop: of a system in use, which no job repeats; `frameyard trace stat` counts them in recordings".to_owned(),
    );
    table.missing.push("shares of lock time measured here: two CPUs do not saturate a lock".to_owned());
    table.saying(
        "Published contention of the zone lock falls from 80 % to almost nothing, and moves to the LRU lock. Quick simulations \
        run too short for the lock to saturate, so that their shares are far lower.",
    )
}

fn row(line: &Line, results: &Results) -> ComparedRow {
    let (experiment, policy) = (line.text("experiment"), line.text("policy"));
    let simulated = simulated(experiment, line, results);
    let is_fitted = simulated.as_ref().is_some_and(|row| row.get("role") == Some(&json!("calibrated")));
    ComparedRow {
        what: format!("{experiment}: {}, {policy}", line.text("metric")),
        unit: match line.text("unit") {
            "pct" => "%",
            "ns" => "ns",
            "faults" => "faults",
            _ => "",
        },
        machine: line.text("machine").to_owned(),
        published: line.number("value").unwrap_or_default(),
        published_stdev: None,
        measured: measured(experiment, line, results),
        simulated: simulated.and_then(|row| {
            ["predicted", "predicted_pct", "predicted_per_s"].into_iter().find_map(|key| number(row, key))
        }),
        is_fitted,
    }
}

/// The row of a simulation with the same metric and policy.
fn simulated<'r>(experiment: &str, line: &Line, results: &'r Results) -> Option<&'r serde_json::Map<String, Value>> {
    let (metric, policy) = (json!(line.text("metric")), json!(line.text("policy")));
    let found = match experiment {
        "page-fault" => results.row(group::CHECK_ZONE_LOCK, &[("metric", metric), ("policy", policy)]),
        "parallel-free" => results.row(group::CHECK_PARALLEL_FREE, &[("metric", metric), ("policy", policy)]),
        "order0-thp" => {
            results.row(group::CHECK_ORDER0_THP, &[("task_kind", json!(task_kind(line))), ("policy", policy)])
        }
        _ => {
            let delay = json!(delay_ns(experiment)?);
            results.row(group::CHECK_HIGHALLOC, &[("metric", metric), ("policy", policy), ("delay_ns", delay)])
        }
    };
    found.ok()
}

/// The counterpart on this machine.
fn measured(experiment: &str, line: &Line, results: &Results) -> Option<Measured> {
    let policy = json!(line.text("policy"));
    if experiment == "order0-thp" {
        let keys = [("task_kind", json!(task_kind(line))), ("zone_policy", policy)];
        return Measured::of(results.row(group::ORDER0_THP, &keys).ok()?, "pages_per_s", 1.0);
    }
    let keys = [("delay_ns", json!(delay_ns(experiment)?)), ("zone_policy", policy)];
    let row = results.row(group::HIGHALLOC, &keys).ok()?;
    match line.text("metric") {
        "success rate" => Measured::of(row, "high_order_success", 100.0),
        _ => Measured::of(row, "high_order_ns", 1.0),
    }
}

fn task_kind(line: &Line) -> &'static str {
    if line.text("metric").contains("huge") { "huge" } else { "small" }
}

fn delay_ns(experiment: &str) -> Option<u64> {
    match experiment.strip_prefix("highalloc delay ")? {
        "100 ms" => Some(100_000_000),
        "1 ms" => Some(1_000_000),
        _ => None,
    }
}
