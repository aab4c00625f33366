//! Rows: what was measured of a device, or what was published. Both have the same keys; `source` distinguishes them.

use super::sweep::{Case, Group};
use crate::commands::bench::compound_pagemap::{Figure, Series, figures};
use crate::commands::published_table::{MEASURED, PUBLISHED};
use crate::measure::Spread;
use crate::output::{Format, Row, rounded};
use frameyard::devices::MapLayout;
use frameyard_workloads::device_map::DeviceMapRun;

/// What is known of a device, measured or published.
#[derive(Default)]
struct Device<'a> {
    yard: Option<&'static str>,
    size_bytes: Option<u64>,
    geometry: Option<&'static str>,
    layout: Option<&'static str>,
    runs: Option<&'a [DeviceMapRun]>,
    threads: Option<usize>,
    pieces: Option<u64>,
    map_bytes_equation: Option<u64>,
    bring_up_ns: Option<u64>,
    left_out: Option<String>,
    figure: Option<Figure>,
}

impl Device<'_> {
    /// Times are medians over the runs; sizes are those of the last run.
    fn row(&self) -> Row {
        let runs = self.runs.unwrap_or_default();
        let spread =
            |of: fn(&DeviceMapRun) -> f64| Spread::of(runs.iter().map(of)).map(|spread| spread.map(|ns| ns as u64));
        let (bring_up, fault) = (spread(|run| run.bring_up_ns as f64), spread(|run| run.host_fault_ns as f64));
        let ratio = Spread::of(runs.iter().map(|run| run.bring_up_ns as f64 / run.host_fault_ns.max(1) as f64));
        let last = runs.last();
        let row = Row::new()
            .data("source", if self.figure.is_some() { PUBLISHED } else { MEASURED })
            .column("yard", "yard", self.yard)
            .column_as("size_bytes", "size", Format::Size, self.size_bytes)
            .column("geometry", "pages", self.geometry)
            .column("layout", "layout", self.layout)
            .data("runs", self.runs.map(<[_]>::len))
            .data("threads", last.and(self.threads))
            .column("pieces", "pieces", last.and(self.pieces))
            .minor()
            .column("structures", "structures", last.map(|run| run.structures))
            .minor()
            .column_as("map_bytes_resident", "resident", Format::Size, last.map(|run| run.resident.0))
            .column_as("map_bytes_equation", "by equation", Format::Size, self.map_bytes_equation)
            .minor()
            .column_as("page_table_bytes", "page tables", Format::Size, last.map(|run| run.page_tables.0))
            .minor()
            .column("mappings", "mappings", last.map(|run| run.mappings))
            .minor();
        let row = match self.bring_up_ns {
            Some(ns) => {
                row.data("bring_up_ns", ns).data("bring_up_ns_min", None::<u64>).data("bring_up_ns_max", None::<u64>)
            }
            None => row.spread("bring_up_ns", "bring-up ms", Format::millions(2), bring_up),
        };
        row.spread("host_fault_ns", "host alone ms", Format::millions(2), fault)
            .minor()
            .column_as("bring_up_per_host_fault", "ratio", Format::number(2), ratio.map(|ratio| rounded(ratio.median)))
            .column_as(
                "remove_ns",
                "remove ms",
                Format::millions(2),
                spread(|run| run.remove_ns as f64).map(|ns| ns.median),
            )
            .minor()
            .data("left_out", self.left_out.clone())
            .followed_by(Figure::columns(self.figure.as_ref()))
    }
}

/// The row of some runs.
pub(super) fn measured(case: &Case, of: &Group, runs: &[DeviceMapRun], threads: usize) -> Row {
    let device = Device {
        yard: Some(of.yard.name()),
        size_bytes: Some(case.shape.size.0),
        geometry: Some(of.geometry.name()),
        layout: Some(case.shape.layout.name()),
        runs: Some(runs),
        threads: Some(threads),
        pieces: Some(case.pieces.get()),
        map_bytes_equation: Some(case.shape.map_bytes().0),
        left_out: case.left_out.clone(),
        ..Device::default()
    };
    device.row()
}

/// What was published of the same.
pub(super) fn published() -> Vec<Figure> {
    figures(&["memory_map", "namespace_bootstrap"])
}

/// The row of a published figure.
pub(super) fn of_figure(figure: &Figure) -> Row {
    let layout = match figure.series {
        Series::Before => MapLayout::Full.name(),
        Series::Huge | Series::Gigantic | Series::After => MapLayout::DeduplicatedTwo.name(),
    };
    let is = |metric: &str| figure.metric == metric;
    let device = Device {
        size_bytes: is("memory_map_per_tib").then_some(1 << 40),
        geometry: figure.series.geometry(),
        layout: Some(layout),
        map_bytes_equation: is("memory_map_per_tib").then_some((figure.value * f64::from(1 << 20)) as u64),
        bring_up_ns: is("namespace_bootstrap").then_some((figure.value * 1e6) as u64),
        figure: Some(figure.clone()),
        ..Device::default()
    };
    device.row()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn published_figures_have_the_keys_of_measured_rows() {
        let rows: Vec<Row> = published().iter().map(of_figure).collect();
        let map: Vec<Option<f64>> = rows.iter().map(|row| row.number("map_bytes_equation")).collect();
        assert_eq!(map[..3], [Some((16u64 << 30) as f64), Some((4u64 << 30) as f64), Some(f64::from(8 << 20))]);
        let bring_up: Vec<f64> = rows.iter().filter_map(|row| row.number("bring_up_ns")).collect();
        assert_eq!(bring_up, [750e6, 190e6, 1e6]);
        let measured: Vec<String> = Device::default().row().keys().map(str::to_owned).collect();
        for row in &rows {
            assert_eq!((row.text("source"), row.value("map_bytes_resident")), (Some(PUBLISHED), &Value::Null));
            assert!(row.keys().eq(measured.iter()));
        }
    }
}
