//! A row: what was measured of a device, or what was published. Both have the same keys; `source` tells them apart.

use serde::Serialize;

use super::sweep::{Case, Group};
use frameyard_workloads::device_map::YardSharing;
use crate::commands::bench::compound_pagemap::{Figure, MEASURED, PUBLISHED, Series, figures};
use frameyard_workloads::measure::Spread;
use crate::output::rounded;
use frameyard_workloads::device_map::DeviceMapRun;

/// A row. Times are medians over the runs; sizes are of the last one. `None` is not measured.
#[derive(Clone, PartialEq, Serialize, Debug, Default)]
pub(super) struct Row {
    pub(super) source: &'static str,
    pub(super) yard: Option<&'static str>,
    pub(super) size_bytes: Option<u64>,
    pub(super) geometry: Option<&'static str>,
    pub(super) layout: Option<&'static str>,
    pub(super) runs: Option<usize>,
    pub(super) threads: Option<usize>,
    pub(super) structures: Option<u64>,
    /// Proportional size, after every tail was read through the map's addresses.
    pub(super) map_bytes_resident: Option<u64>,
    pub(super) map_bytes_equation: Option<u64>,
    pub(super) page_table_bytes: Option<u64>,
    pub(super) mappings: Option<u64>,
    pub(super) bring_up_ns: Option<u64>,
    pub(super) bring_up_ns_min: Option<u64>,
    pub(super) bring_up_ns_max: Option<u64>,
    pub(super) remove_ns: Option<u64>,
    /// What the host takes to provide the same pages, with a byte of each written and nothing else.
    pub(super) host_fault_ns: Option<u64>,
    pub(super) host_fault_ns_min: Option<u64>,
    pub(super) host_fault_ns_max: Option<u64>,
    /// Bring-up against that, in each run.
    pub(super) bring_up_per_host_fault: Option<f64>,
    pub(super) left_out: Option<String>,
    pub(super) published_metric: Option<String>,
    pub(super) published_unit: Option<String>,
    pub(super) published_value: Option<f64>,
    pub(super) published_note: Option<String>,
}

impl Row {
    pub(super) fn measured(case: &Case, of: &Group, runs: &[DeviceMapRun], threads: usize) -> Self {
        let spread = |of: fn(&DeviceMapRun) -> f64| Spread::of(runs.iter().map(of));
        let bring_up = spread(|run| run.bring_up_ns as f64);
        let fault = spread(|run| run.host_fault_ns as f64);
        let last = runs.last();
        Self {
            source: MEASURED,
            yard: Some(match of.yard {
                YardSharing::Private => "private",
                YardSharing::Shared => "shared",
            }),
            size_bytes: Some(case.shape.size.0),
            geometry: Some(of.geometry.name()),
            layout: Some(case.shape.layout.name()),
            runs: Some(runs.len()),
            threads: last.map(|_| threads),
            structures: last.map(|run| run.device.structures),
            map_bytes_resident: last.map(|run| run.resident.0),
            map_bytes_equation: Some(case.shape.map_bytes().0),
            page_table_bytes: last.map(|run| run.page_tables.0),
            mappings: last.map(|run| run.mappings),
            bring_up_ns: bring_up.map(|spread| spread.median as u64),
            bring_up_ns_min: bring_up.map(|spread| spread.min as u64),
            bring_up_ns_max: bring_up.map(|spread| spread.max as u64),
            remove_ns: spread(|run| run.remove_ns as f64).map(|spread| spread.median as u64),
            host_fault_ns: fault.map(|spread| spread.median as u64),
            host_fault_ns_min: fault.map(|spread| spread.min as u64),
            host_fault_ns_max: fault.map(|spread| spread.max as u64),
            bring_up_per_host_fault: spread(|run| run.bring_up_ns as f64 / run.host_fault_ns.max(1) as f64)
                .map(|spread| rounded(spread.median)),
            left_out: case.left_out.clone(),
            ..Self::default()
        }
    }
}

/// What was published of the same.
pub(super) fn published() -> Vec<Row> {
    figures(&["memory_map", "namespace_bootstrap"]).into_iter().map(row).collect()
}

fn row(figure: Figure) -> Row {
    let layout = match figure.series {
        Series::Before => "full",
        // Two map pages of each compound page were kept.
        Series::Huge | Series::Gigantic | Series::After => "shared-tails",
    };
    let is = |metric: &str| figure.metric == metric;
    Row {
        source: PUBLISHED,
        size_bytes: is("memory_map_per_tib").then_some(1 << 40),
        geometry: figure.series.geometry(),
        layout: Some(layout),
        map_bytes_equation: is("memory_map_per_tib").then_some((figure.value * f64::from(1 << 20)) as u64),
        bring_up_ns: is("namespace_bootstrap").then_some((figure.value * 1e6) as u64),
        published_metric: Some(figure.metric),
        published_unit: Some(figure.unit),
        published_value: Some(figure.value),
        published_note: figure.note,
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_have_our_keys_where_they_mean_the_same() {
        let rows = published();
        let map: Vec<Option<u64>> = rows.iter().map(|row| row.map_bytes_equation).collect();
        assert_eq!(map[..3], [Some(16 << 30), Some(4 << 30), Some(8 << 20)]);
        let bring_up: Vec<u64> = rows.iter().filter_map(|row| row.bring_up_ns).collect();
        assert_eq!(bring_up, [750_000_000, 190_000_000, 1_000_000]);
        assert!(rows.iter().all(|row| row.source == PUBLISHED && row.map_bytes_resident.is_none()));
    }
}
