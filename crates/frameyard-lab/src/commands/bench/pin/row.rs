//! Rows: what was measured of a kind of memory, or what was published. Both have the same keys; `source` distinguishes them.

use std::num::NonZeroU32;

use frameyard::ByteSize;
use frameyard_host::DeviceAlignment;
use frameyard_workloads::pin::{DeviceMaps, PinCase, PinKind, PinRun, PinnedMemory};

use crate::commands::bench::compound_pagemap::{Figure, Series, figures};
use crate::commands::published_table::{MEASURED, PUBLISHED};
use crate::measure::Spread;
use crate::output::{Format, Row, rounded};

/// What a row describes.
#[derive(Default)]
struct Pinned<'a> {
    refs: Option<&'static str>,
    call: Option<&'static str>,
    path: Option<&'static str>,
    memory: Option<&'static str>,
    page_bytes: Option<u64>,
    map_geometry: Option<&'static str>,
    layout: Option<&'static str>,
    map_placement: Option<&'static str>,
    interface: Option<&'static str>,
    bytes: Option<u64>,
    pages_per_call: Option<u64>,
    threads: Option<u32>,
    runs: Option<&'a [PinRun]>,
    /// Where `runs` are of larger pages than 4 KiB: the times of the first kind of 4 KiB pages.
    base: Option<Times>,
    left_out: Option<String>,
    figure: Option<Figure>,
}

/// Median times of taking and releasing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    take_ns: u64,
    release_ns: u64,
}

impl Times {
    /// The times of some runs, if they are of 4 KiB pages.
    pub(super) fn of_small_pages(kind: PinKind, runs: &[PinRun]) -> Option<Self> {
        let median =
            |of: fn(&PinRun) -> u64| Spread::of(runs.iter().map(|run| of(run) as f64)).map(|all| all.median as u64);
        let times = Self { take_ns: median(|run| run.take_ns)?, release_ns: median(|run| run.release_ns)? };
        (kind.page == DeviceAlignment::Base).then_some(times)
    }
}

/// What a measured row is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowOf {
    pub(super) size: ByteSize,
    pub(super) kind: PinKind,
    pub(super) maps: DeviceMaps,
    pub(super) case: PinCase,
    pub(super) threads: NonZeroU32,
}

impl Pinned<'_> {
    fn of_kind(size: ByteSize, kind: PinKind) -> Self {
        Self {
            memory: Some(kind.memory.name()),
            page_bytes: Some(kind.page.size().0),
            map_geometry: Some(kind.map.name()),
            bytes: Some(size.0),
            ..Self::default()
        }
    }

    /// Times are medians over the runs, of the whole size.
    fn row(&self) -> Row {
        let runs = self.runs.unwrap_or_default();
        let spread = |of: &dyn Fn(&PinRun) -> Option<f64>| Spread::of(runs.iter().filter_map(of));
        let [take, release, write] = [
            spread(&|run| Some(run.take_ns as f64)),
            spread(&|run| Some(run.release_ns as f64)),
            spread(&|run| run.array_write_ns.map(|ns| ns as f64)),
        ]
        .map(|times| times.map(|times| times.map(|ns| ns as u64)));
        let ratio = spread(&|run| run.array_write_ns.map(|ns| run.take_ns as f64 / ns.max(1) as f64));
        let times = |own: Option<Spread<u64>>, base: fn(Times) -> u64| {
            Some(rounded(base(self.base?) as f64 / own?.median.max(1) as f64))
        };
        let row = Row::new()
            .data("source", if self.figure.is_some() { PUBLISHED } else { MEASURED })
            .data("refs", self.refs)
            .data("call", self.call)
            .data("path", self.path)
            .column("memory", "memory", self.memory)
            .column_as("page_bytes", "pages", Format::ExactSize, self.page_bytes)
            .column("map_geometry", "map", self.map_geometry)
            .data("layout", self.layout)
            .data("map_placement", self.map_placement)
            .data("interface", self.interface)
            .data("bytes", self.bytes)
            .data("pages_per_call", self.pages_per_call)
            .data("threads", self.threads)
            .data("samples", self.runs.map(<[_]>::len));
        let published = self.figure.as_ref().map(|figure| (figure.value * 1e3) as u64);
        let row = match published {
            Some(ns) => row.data("take_ns", ns).data("take_ns_min", None::<u64>).data("take_ns_max", None::<u64>),
            None => row.spread("take_ns", "take µs", Format::thousands(2), take),
        };
        row.column_as("take_times_as_fast", "faster ×", Format::number(1), times(take, |base| base.take_ns))
            .spread("release_ns", "release µs", Format::thousands(2), release)
            .column_as("release_times_as_fast", "faster ×", Format::number(1), times(release, |base| base.release_ns))
            .column_as("array_write_ns", "array alone µs", Format::thousands(2), write.map(|write| write.median))
            .minor()
            .column_as("take_per_array_write", "ratio", Format::number(2), ratio.map(|ratio| rounded(ratio.median)))
            .minor()
            .column("runs", "runs", runs.last().and_then(|run| run.runs).map(|runs| runs as u64))
            .minor()
            .data("left_out", self.left_out.clone())
            .followed_by(Figure::columns(self.figure.as_ref()))
    }
}

/// The row of a kind that was not measured.
pub(super) fn left_out(size: ByteSize, kind: PinKind, reason: String) -> Row {
    Pinned { left_out: Some(reason), ..Pinned::of_kind(size, kind) }.row()
}

/// The row of some runs.
pub(super) fn measured(of: RowOf, runs: &[PinRun], base: Option<Times>) -> Row {
    let RowOf { size, kind, maps, case, threads } = of;
    let is_device = kind.memory == PinnedMemory::Device;
    let is_compound_device = is_device && kind.map != DeviceAlignment::Base;
    let pages = size.0 / DeviceAlignment::Base.size().0;
    let pinned = Pinned {
        refs: Some(case.request.refs.name()),
        call: Some(case.request.call.name()),
        path: Some(case.request.path.name()),
        layout: is_compound_device.then(|| maps.layout.name()),
        map_placement: is_device.then(|| maps.placement.name()),
        interface: Some(case.interface.name()),
        pages_per_call: Some(pages.min(case.batch as u64)),
        threads: Some(threads.get()),
        runs: Some(runs),
        base,
        ..Pinned::of_kind(size, kind)
    };
    pinned.row()
}

/// What was published of the same.
pub(super) fn published() -> Vec<Figure> {
    ["get_user_pages_fast_1gib", "pin_user_pages_fast_1gib"].into_iter().flat_map(|metric| figures(&[metric])).collect()
}

/// The row of a published figure.
pub(super) fn of_figure(figure: &Figure) -> Row {
    let pinned = Pinned {
        refs: Some(if figure.series == Series::Before { "per-page" } else { "batched" }),
        call: Some(if figure.metric.starts_with("get") { "get" } else { "pin" }),
        path: Some("fast"),
        memory: Some("device"),
        page_bytes: match figure.series {
            Series::Huge => Some(DeviceAlignment::Huge.size().0),
            Series::Gigantic => Some(DeviceAlignment::Gigantic.size().0),
            // 2 MiB or 1 GiB: which of them was not published.
            Series::Before | Series::After => None,
        },
        map_geometry: figure.series.geometry(),
        interface: Some("array"),
        bytes: Some(1 << 30),
        figure: Some(figure.clone()),
        ..Pinned::default()
    };
    pinned.row()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn published_figures_have_the_keys_of_measured_rows() {
        let rows: Vec<Row> = published().iter().map(of_figure).collect();
        let found: Vec<_> =
            rows.iter().map(|row| (row.text("call"), row.text("map_geometry"), row.number("take_ns"))).collect();
        let expected = [
            ("get", "4K", 75e6),
            ("get", "2M", 5.2e6),
            ("get", "1G", 3.2e6),
            ("pin", "4K", 125e6),
            ("pin", "2M", 5.5e6),
            ("pin", "1G", 3.4e6),
        ];
        assert_eq!(found, expected.map(|(call, map, ns)| (Some(call), Some(map), Some(ns))));
        let measured: Vec<String> = Pinned::default().row().keys().map(str::to_owned).collect();
        for row in &rows {
            assert_eq!((row.text("source"), row.value("release_ns")), (Some(PUBLISHED), &Value::Null));
            assert!(row.keys().eq(measured.iter()));
        }
    }

    #[test]
    fn a_row_is_compared_with_that_of_small_pages() {
        let runs = [PinRun { take_ns: 10, release_ns: 0, array_write_ns: None, runs: None }];
        let base = Some(Times { take_ns: 1000, release_ns: 500 });
        let row = Pinned { runs: Some(&runs), base, ..Pinned::default() }.row();
        assert_eq!((row.number("take_times_as_fast"), row.number("release_times_as_fast")), (Some(100.0), Some(500.0)));
        assert_eq!(Pinned { runs: Some(&runs), ..Pinned::default() }.row().value("take_times_as_fast"), &Value::Null);
    }
}
