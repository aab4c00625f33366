//! Throughput against tasks, and where the time goes at the locks.

use super::super::chart::{Bars, Chart, Scale, Series, Style};
use super::super::jobs::group;
use super::super::results::{JobRow, Results, number, text};
use super::super::tables;
use super::Plot;

/// Policies in order of their colours.
const POLICIES: [&str; 5] = ["vanilla-4.16", "cluster-bulk", "bits", "big-pcp", "vanilla-4.17"];

pub(super) fn colour(policy: &str) -> usize {
    POLICIES.iter().position(|known| *known == policy).unwrap_or(POLICIES.len())
}

/// Simulated curves of a machine, one for each pair of policies.
fn curves(rows: &[&JobRow]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let (zone, lru) = (text(row, "zone_policy"), text(row, "lru_policy"));
        let (Some(tasks), Some(rate)) = (number(row, "tasks"), number(row, "pages_per_s")) else { continue };
        let label =
            if lru == "vanilla" { format!("{zone}, simulated") } else { format!("{zone} and {lru} LRU, simulated") };
        let known = series.iter().position(|of| of.label == label).unwrap_or_else(|| {
            let colour = colour(zone) + if lru == "vanilla" { 0 } else { 5 };
            series.push(Series { label, style: Style::Curve, points: Vec::new(), colour });
            series.len() - 1
        });
        series[known].points.push((tasks, rate / 1e6));
    }
    for of in &mut series {
        of.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    series
}

/// The published points of a table for processes, as in `vanilla-4.16, 40 processes`, and those measured here.
fn points(results: &Results, table: &str) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    let Some(table) = tables::all(results).into_iter().find(|of| of.name == table) else { return series };
    let mut add = |label: String, style, colour, point| match series.iter_mut().find(|of| of.label == label) {
        Some(of) => of.points.push(point),
        None => series.push(Series { label, style, points: vec![point], colour }),
    };
    for row in &table.rows {
        let Some((policy, tasks)) = row.what.split_once(", ") else { continue };
        let Some(tasks) = tasks.strip_suffix(" processes").and_then(|tasks| tasks.parse::<f64>().ok()) else {
            continue;
        };
        add(format!("{policy}, published (×)"), Style::Crosses, colour(policy), (tasks, row.published / 1e6));
        if let Some(measured) = row.measured {
            add(format!("{policy}, measured here (●)"), Style::Dots, colour(policy), (tasks, measured.median / 1e6));
        }
    }
    series
}

/// 40 CPUs.
pub(super) fn broadwell(results: &Results) -> Plot {
    let chart = results.rows(group::SIM_BROADWELL).map(|rows| {
        let mut series = curves(&rows);
        series.extend(points(results, "page_fault1-broadwell-40cpu"));
        Chart { x: "tasks (processes)", y: "million pages per second", scale: Scale::Linear, series }
    });
    Plot::of_chart(
        "throughput-broadwell-40",
        "Page faults by tasks: simulated 40 CPUs, published points, this machine",
        "Each process maps memory, touches every page and unmaps it. Crosses are published values of a kernel, dots are measured on \
        this machine, without hardware exceptions; lines are simulated.",
        vec![group::SIM_BROADWELL, group::PAGE_FAULT],
        chart,
    )
}

/// 112 CPUs.
pub(super) fn skylake(results: &Results) -> Plot {
    let chart = results.rows(group::SIM_SKYLAKE).map(|rows| {
        let mut series = curves(&rows);
        let full_load = tables::all(results).into_iter().find(|table| table.name == "page_fault1-full-load");
        for row in full_load.iter().flat_map(|table| &table.rows).filter(|row| row.machine == "skylake-112") {
            let policy = row.what.split(" (").next().unwrap_or_default();
            if row.what.contains(" (") {
                let points = vec![(112.0, row.published / 1e6)];
                let label = format!("{policy}, published (×)");
                series.push(Series { label, style: Style::Crosses, points, colour: colour(policy) });
            }
        }
        Chart { x: "tasks (processes)", y: "million pages per second", scale: Scale::Linear, series }
    });
    Plot::of_chart(
        "throughput-skylake-112",
        "Page faults by tasks: simulated 112 CPUs, published points",
        "With every CPU faulting, the policy of the LRU lists decides: behind their one lock, no policy of the zone helps.",
        vec![group::SIM_SKYLAKE],
        chart,
    )
}

/// Shares of lock waiting by policy.
pub(super) fn lock_shares(results: &Results) -> Plot {
    let bars = results.rows(group::SIM_SKYLAKE).map(|rows| {
        let most = rows.iter().filter_map(|row| number(row, "tasks")).fold(0.0, f64::max);
        let rows: Vec<&&JobRow> = rows.iter().filter(|row| number(row, "tasks") == Some(most)).collect();
        let name = |row: &&&JobRow| format!("{}, {}", text(row, "zone_policy"), text(row, "lru_policy"));
        let percent = |row: &JobRow, key: &str| number(row, key).unwrap_or_default() * 100.0;
        let part = |label: &str, keys: &[&str]| {
            let length = |row: &&&JobRow| keys.iter().map(|key| percent(row, key)).sum();
            (label.to_owned(), rows.iter().map(length).collect())
        };
        Bars {
            x: "% of the CPUs' time",
            names: rows.iter().map(name).collect(),
            parts: vec![
                part("zone lock", &["zone_lock_share"]),
                part("LRU lock", &["lru_lock_share"]),
                part("map and page-table locks", &["map_lock_share", "page_table_lock_share"]),
                part("other locks", &["per_cpu_lock_share", "lru_batch_lock_share"]),
            ],
            marks: None,
        }
    });
    Plot::of_bars(
        "lock-share",
        "Time spent waiting for locks, all 112 simulated CPUs faulting",
        "By policy of the zone and of the LRU lists. The remaining time is work and cache misses.",
        vec![group::SIM_SKYLAKE],
        bars,
    )
}
