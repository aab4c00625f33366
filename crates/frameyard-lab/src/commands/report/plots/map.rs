//! The memory map's bandwidth, and fragmentation over time.

use super::super::chart::{Bars, Chart, Scale, Series, Style};
use super::super::jobs::group;
use super::super::results::{JobRow, Results, number, text};
use super::Plot;
use super::throughput::colour;

/// The sweep of ways to write the map, against the limit.
pub(super) fn bandwidth(results: &Results) -> Plot {
    let bars = results.rows(group::MEMMAP).map(|rows| {
        let is_timed = |row: &&&JobRow| {
            text(row, "source") == "measured"
                && text(row, "init_mode") == "eager"
                && number(row, "limit_bytes_per_s").is_some()
        };
        let timed: Vec<&&JobRow> = rows.iter().filter(is_timed).collect();
        let gigabytes = |row: &JobRow, key: &str| number(row, key).map(|rate| rate / 1e9);
        let name = |row: &&&JobRow| {
            let (how, content) = (text(row, "initialiser"), text(row, "content"));
            format!("{how}, {content}, {} threads", number(row, "threads").unwrap_or_default())
        };
        let length = |row: &&&JobRow| gigabytes(row, "bytes_per_s").unwrap_or_default();
        Bars {
            x: "GB/s",
            names: timed.iter().map(name).collect(),
            parts: vec![("written".to_owned(), timed.iter().map(length).collect())],
            marks: Some(("limit".to_owned(), timed.iter().map(|row| gigabytes(row, "limit_bytes_per_s")).collect())),
        }
    });
    Plot::of_bars(
        "map-bandwidth",
        "Writing the memory map on this machine, against the limit",
        "Bars are the ways to write page structures, with zeroes or with a kernel's content. The mark on a bar is a memset or the same \
        content streamed over the same memory by as many threads, just before.",
        vec![group::MEMMAP],
        bars,
    )
}

/// A line for each policy.
pub(super) fn by_policy(rows: &[&JobRow], x: &str, y: &str) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let (Some(x), Some(y)) = (number(row, x), number(row, y)) else { continue };
        let policy = text(row, "policy");
        match series.iter_mut().find(|of| of.label == policy) {
            Some(of) => of.points.push((x, y)),
            None => series.push(Series {
                label: policy.to_owned(),
                style: Style::Curve,
                points: vec![(x, y)],
                colour: if policy == "vanilla" { 0 } else { colour(policy) },
            }),
        }
    }
    series
}

fn whole_pageblocks(results: &Results, group: &'static str, name: &str, title: &str) -> Plot {
    let chart = results.rows(group).map(|rows| {
        let half: Vec<&JobRow> = rows.into_iter().filter(|row| number(row, "free_percent") == Some(50.0)).collect();
        let series = by_policy(&half, "iteration", "whole_pageblocks_percent");
        Chart { x: "iterations", y: "% of memory in whole free pageblocks", scale: Scale::Linear, series }
    });
    let sentence = "Half of memory is free, at random places. Each iteration frees and allocates a tenth of that. Under bits, \
        pageblocks become whole without moving a page.";
    Plot::of_chart(name, title, sentence, vec![group], chart)
}

pub(super) fn fragmentation_here(results: &Results) -> Plot {
    whole_pageblocks(results, group::FRAG, "fragmentation", "Fragmentation over time, measured here")
}

pub(super) fn fragmentation_simulated(results: &Results) -> Plot {
    whole_pageblocks(results, group::SIM_FRAG, "fragmentation-simulated", "Fragmentation over time, simulated")
}
