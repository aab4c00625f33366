//! A row: what was measured of a kind of memory, or what was published. Both have the same keys; `source` tells them apart.

use frameyard::{ByteSize, MapLayout};
use frameyard_host::DeviceAlignment;
use serde::Serialize;

use crate::commands::bench::compound_pagemap::{Figure, MEASURED, PUBLISHED, Series, figures};
use frameyard_workloads::measure::Spread;
use crate::output::rounded;
use frameyard_workloads::pin::{PinCase, PinKind, PinRun, PinnedMemory};

/// A row. Times are medians over the runs, of the whole size.
#[derive(Clone, PartialEq, Serialize, Debug, Default)]
pub(super) struct Row {
    pub(super) source: &'static str,
    pub(super) refs: Option<&'static str>,
    pub(super) call: Option<&'static str>,
    pub(super) path: Option<&'static str>,
    pub(super) memory: Option<&'static str>,
    pub(super) page_bytes: Option<u64>,
    pub(super) map_geometry: Option<&'static str>,
    pub(super) layout: Option<&'static str>,
    pub(super) interface: Option<&'static str>,
    pub(super) bytes: Option<u64>,
    pub(super) pages_per_call: Option<u64>,
    pub(super) samples: Option<usize>,
    pub(super) take_ns: Option<u64>,
    pub(super) take_ns_min: Option<u64>,
    pub(super) take_ns_max: Option<u64>,
    pub(super) release_ns: Option<u64>,
    pub(super) release_ns_min: Option<u64>,
    pub(super) release_ns_max: Option<u64>,
    /// Writing as many frame numbers into the same array, and nothing else.
    pub(super) array_write_ns: Option<u64>,
    /// Taking against that, in each run.
    pub(super) take_per_array_write: Option<f64>,
    /// Runs of frames that were given to the caller.
    pub(super) runs: Option<u64>,
    /// How many times as fast as the first kind of 4 KiB pages in the same run: taking, and giving back.
    pub(super) take_times_as_fast: Option<f64>,
    pub(super) release_times_as_fast: Option<f64>,
    pub(super) left_out: Option<String>,
    pub(super) published_metric: Option<String>,
    pub(super) published_unit: Option<String>,
    pub(super) published_value: Option<f64>,
    pub(super) published_note: Option<String>,
}

/// What a measured row is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowOf {
    pub(super) size: ByteSize,
    pub(super) kind: PinKind,
    pub(super) layout: MapLayout,
    pub(super) case: PinCase,
}

impl Row {
    fn of_kind(size: ByteSize, kind: PinKind) -> Self {
        Self {
            source: MEASURED,
            memory: Some(kind.memory.name()),
            page_bytes: Some(kind.page.size().0),
            map_geometry: Some(kind.map.name()),
            bytes: Some(size.0),
            ..Self::default()
        }
    }

    pub(super) fn left_out(size: ByteSize, kind: PinKind, reason: String) -> Self {
        Self { left_out: Some(reason), ..Self::of_kind(size, kind) }
    }

    pub(super) fn measured(of: RowOf, runs: &[PinRun]) -> Self {
        let RowOf { size, kind, layout, case } = of;
        let spread = |of: &dyn Fn(&PinRun) -> Option<f64>| Spread::of(runs.iter().filter_map(of));
        let take = spread(&|run| Some(run.take_ns as f64));
        let release = spread(&|run| Some(run.release_ns as f64));
        let write = spread(&|run| run.array_write_ns.map(|ns| ns as f64));
        let ratio = spread(&|run| run.array_write_ns.map(|ns| run.take_ns as f64 / ns.max(1) as f64));
        let is_compound_device = kind.memory == PinnedMemory::Device && kind.map != DeviceAlignment::Base;
        let pages = size.0 / DeviceAlignment::Base.size().0;
        Self {
            refs: Some(case.request.refs.name()),
            call: Some(case.request.call.name()),
            path: Some(case.request.path.name()),
            layout: is_compound_device.then(|| layout.name()),
            interface: Some(case.interface.name()),
            pages_per_call: Some(pages.min(case.batch as u64)),
            samples: Some(runs.len()),
            take_ns: take.map(|spread| spread.median as u64),
            take_ns_min: take.map(|spread| spread.min as u64),
            take_ns_max: take.map(|spread| spread.max as u64),
            release_ns: release.map(|spread| spread.median as u64),
            release_ns_min: release.map(|spread| spread.min as u64),
            release_ns_max: release.map(|spread| spread.max as u64),
            array_write_ns: write.map(|spread| spread.median as u64),
            take_per_array_write: ratio.map(|spread| rounded(spread.median)),
            runs: runs.last().and_then(|run| run.runs).map(|runs| runs as u64),
            ..Self::of_kind(size, kind)
        }
    }

    /// The same, compared with the row of 4 KiB pages.
    pub(super) fn against(self, base: Option<&Self>) -> Self {
        let times = |own: Option<u64>, of: fn(&Self) -> Option<u64>| {
            Some(rounded(base.and_then(of)? as f64 / own?.max(1) as f64))
        };
        Self {
            take_times_as_fast: times(self.take_ns, |row| row.take_ns),
            release_times_as_fast: times(self.release_ns, |row| row.release_ns),
            ..self
        }
    }
}

/// What was published of the same.
pub(super) fn published() -> Vec<Row> {
    const METRICS: [(&str, &str); 2] = [("get_user_pages_fast_1gib", "get"), ("pin_user_pages_fast_1gib", "pin")];
    METRICS
        .into_iter()
        .flat_map(|(metric, call)| figures(&[metric]).into_iter().map(move |figure| row(call, figure)))
        .collect()
}

fn row(call: &'static str, figure: Figure) -> Row {
    let batched = figure.series != Series::Before;
    Row {
        source: PUBLISHED,
        refs: Some(if batched { "batched" } else { "per-page" }),
        call: Some(call),
        path: Some("fast"),
        memory: Some("device"),
        page_bytes: match figure.series {
            Series::Huge => Some(DeviceAlignment::Huge.size().0),
            Series::Gigantic => Some(DeviceAlignment::Gigantic.size().0),
            // 2 MiB or 1 GiB: it is not said which.
            Series::Before | Series::After => None,
        },
        map_geometry: figure.series.geometry(),
        interface: Some("array"),
        bytes: Some(1 << 30),
        take_ns: Some((figure.value * 1e3) as u64),
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
        let found: Vec<_> =
            rows.iter().map(|row| (row.call.unwrap(), row.map_geometry.unwrap(), row.take_ns.unwrap())).collect();
        let expected = [
            ("get", "4K", 75_000_000),
            ("get", "2M", 5_200_000),
            ("get", "1G", 3_200_000),
            ("pin", "4K", 125_000_000),
            ("pin", "2M", 5_500_000),
            ("pin", "1G", 3_400_000),
        ];
        assert_eq!(found, expected);
        assert!(rows.iter().all(|row| row.source == PUBLISHED && row.release_ns.is_none()));
    }

    #[test]
    fn a_row_is_compared_with_that_of_small_pages() {
        let base = Row { take_ns: Some(1000), release_ns: Some(500), ..Row::default() };
        let row = Row { take_ns: Some(10), release_ns: Some(0), ..Row::default() };
        let row = row.against(Some(&base));
        assert_eq!((row.take_times_as_fast, row.release_times_as_fast), (Some(100.0), Some(500.0)));
        assert_eq!(Row::default().against(None).take_times_as_fast, None);
    }
}
