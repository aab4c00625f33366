//! Tables of the memory map: its initialisation, and page maps of device memory.

use serde_json::json;

use super::super::jobs::group;
use super::super::results::{JobRow, Results, matches, number, text};
use super::published::{self, Line};
use super::{ComparedRow, ComparedTable, Measured};

const MAP_NOT_MEASURED: &str = "measured here: not comparable, the maps are of machines with 14 to 768 GiB; the plot of map initialisation shows this machine";

/// A prediction of the time of initialising a map.
fn init_row<'r>(rows: &[&'r JobRow], machine: &str, published_ms: f64) -> Option<&'r JobRow> {
    let is_same = |row: &&&JobRow| {
        text(row, "machine") == machine
            && number(row, "published_ns").is_some_and(|ns| (ns / 1e6 - published_ms).abs() < 0.05)
    };
    rows.iter().find(is_same).copied()
}

fn init(rows: &[&JobRow], machine: &str, what: String, published: f64, stdev: Option<f64>) -> ComparedRow {
    let found = init_row(rows, machine, published);
    ComparedRow {
        what,
        unit: "ms",
        machine: machine.to_owned(),
        published,
        published_stdev: stdev,
        measured: None,
        simulated: found.and_then(|row| number(row, "predicted_ns")).map(|ns| ns / 1e6),
        is_fitted: found.is_some_and(|row| row.get("calibrated") == Some(&json!(true))),
    }
}

/// One thread for each node, and one for each CPU.
pub(super) fn deferred_init(results: &Results) -> ComparedTable {
    let mut table = ComparedTable::new(
        "deferred-init",
        "Initialising the memory map by one thread per node and by all CPUs",
        vec![group::CHECK_DEFERRED_INIT],
        results,
    );
    let rows = results.rows(group::CHECK_DEFERRED_INIT).unwrap_or_default();
    for line in published::lines(published::DEFERRED_INIT) {
        let machine = line.text("machine");
        for (name, what) in [("base", "one thread per node"), ("parallel", "all CPUs")] {
            let Some(published) = line.number(&format!("deferred_init_{name}_ms")) else { continue };
            let stdev = line.number(&format!("deferred_init_{name}_stdev"));
            table.rows.push(init(&rows, machine, format!("{machine}, {what}"), published, stdev));
        }
    }
    table.missing.push(MAP_NOT_MEASURED.to_owned());
    table.saying("All CPUs of a node initialise its map 3 to 12 times as fast as one thread.")
}

/// Other numbers of threads.
pub(super) fn deferred_init_threads(results: &Results) -> ComparedTable {
    let mut table = ComparedTable::new(
        "deferred-init-threads",
        "Initialising the memory map, by threads per node",
        vec![group::CHECK_DEFERRED_INIT],
        results,
    );
    let rows = results.rows(group::CHECK_DEFERRED_INIT).unwrap_or_default();
    let row = |line: Line| {
        let what = format!("{}, {} threads per node", line.text("machine"), line.text("threads_per_node"));
        let published = line.number("deferred_init_ms").unwrap_or_default();
        init(&rows, line.text("machine"), what, published, line.number("deferred_init_stdev"))
    };
    table.rows = published::lines(published::DEFERRED_INIT_THREADS).into_iter().map(row).collect();
    table.missing.push(MAP_NOT_MEASURED.to_owned());
    table.saying("Half the threads of a node take most of the gain: beyond them, memory bandwidth limits.")
}

/// Three ways to write page structures.
pub(super) fn page_zeroing(results: &Results) -> ComparedTable {
    let mut table = ComparedTable::new(
        "page-zeroing-sparc-m7",
        "Three ways to write a page structure, one thread",
        vec![group::CHECK_DEFERRED_INIT, group::MEMMAP],
        results,
    );
    let lines = published::lines(published::PAGE_ZEROING);
    for initialiser in ["two-pass", "memset-per-page", "stores-per-page"] {
        let of = |row: &&Line| row.text("strategy") == initialiser;
        let seconds: f64 = lines.iter().filter(of).filter_map(|line| line.number("seconds")).sum();
        let is_published = [("source", json!("published")), ("initialiser", json!(initialiser))];
        let frames = results.row(group::MEMMAP, &is_published).ok().and_then(|row| number(row, "frames"));
        let keys = [("machine", json!("sparc-m7")), ("initialiser", json!(initialiser))];
        let simulated = results.row(group::CHECK_DEFERRED_INIT, &keys).ok();
        let here = [
            ("source", json!("measured")),
            ("initialiser", json!(initialiser)),
            ("content", json!("kernel")),
            ("init_mode", json!("eager")),
        ];
        let here = results.row(group::MEMMAP, &here).ok();
        let ns_per_page = here.and_then(|row| number(row, "ns_per_page"));
        table.rows.push(ComparedRow {
            what: initialiser.to_owned(),
            unit: "s",
            machine: "sparc-m7".to_owned(),
            published: seconds,
            measured: ns_per_page.zip(frames).map(|(ns, frames)| Measured::one(ns * frames / 1e9)),
            simulated: simulated.and_then(|row| number(row, "predicted_ns")).map(|ns| ns / 1e9),
            is_fitted: simulated.is_some_and(|row| row.get("calibrated") == Some(&json!(true))),
            ..ComparedRow::default()
        });
    }
    table.saying(
        "A memset of 64 bytes for each page is slow there, because it synchronises each time; on x86-64 it is not. Figures \
        measured here are for as many page structures, by all threads of the job.",
    )
}

/// The published columns of compound page maps: name, geometry of the map, layout of the same kind here.
const SERIES: [(&str, &str, &str, &str); 4] = [
    ("before", "base pages", "2M", "full"),
    ("after_2m", "compound pages of 2 MiB", "2M", "deduplicated-two"),
    ("after_1g", "compound pages of 1 GiB", "1G", "deduplicated-two"),
    ("after_unspecified", "compound pages of a size that is not stated", "2M", "deduplicated-two"),
];

/// Device memory mapped as compound pages.
pub(super) fn compound_pagemap(results: &Results) -> ComparedTable {
    let mut table = ComparedTable::new(
        "compound-pagemap",
        "Page maps of device memory with compound pages",
        vec![group::DEVICE_MAP, group::PIN, group::MEMORY_REGION, group::HUGE_POOL],
        results,
    );
    for line in published::lines(published::COMPOUND_PAGEMAP) {
        for (column, pages, geometry, layout) in SERIES {
            let Some(published) = line.number(column) else { continue };
            table.rows.push(ComparedRow {
                what: format!("{}, {pages}", line.text("metric").replace('_', " ")),
                unit: match line.text("unit") {
                    "MiB" => "MiB",
                    "ms" => "ms",
                    "us" => "µs",
                    "pages" => "pages",
                    "rounds in 5 s" => "rounds in 5 s",
                    _ => "",
                },
                machine: "not stated".to_owned(),
                published,
                measured: compound_measured(line.text("metric"), column, geometry, layout, results),
                ..ComparedRow::default()
            });
        }
    }
    table.missing.push("nothing is simulated: the simulator has no device memory".to_owned());
    table.sentence = "Two map pages for each compound page describe its memory: a quarter of the map for 2 MiB, a two-thousandth for \
        1 GiB. A reference for each head instead of each page makes pinning as much cheaper. Figures measured here are scaled to 1 TiB of \
        map and 1 GiB of pins; bringing a map up is of the size in its job. Rounds that register memory are of 1 GiB in pages of 2 MiB here, \
        and of a size that was not published there: compare what a series changes, not the numbers themselves."
        .to_owned();
    table
}

fn compound_measured(metric: &str, column: &str, geometry: &str, layout: &str, results: &Results) -> Option<Measured> {
    const GIB: f64 = (1u64 << 30) as f64;
    let map = || {
        let keys = [("source", json!("measured")), ("geometry", json!(geometry)), ("layout", json!(layout))];
        results.row(group::DEVICE_MAP, &keys).ok()
    };
    let call = match metric {
        "memory_map_per_tib" => {
            let row = map()?;
            let part = number(row, "map_bytes_equation")? / number(row, "size_bytes")?;
            return Some(Measured::one((part * f64::from(1u32 << 20) * 1e3).round() / 1e3));
        }
        "namespace_bootstrap" => return Measured::of(map()?, "bring_up_ns", 1e-6),
        "get_user_pages_fast_1gib" => "get",
        "pin_user_pages_fast_1gib" => "pin",
        "mr_register_rounds_device_dax" => return rounds("device", column, results),
        "mr_register_rounds_hugetlb" => return rounds("pool", column, results),
        "hugetlb_map_pages_saved_per_page" => {
            let keys = [("source", json!("measured")), ("geometry", json!(geometry)), ("before", json!("written"))];
            let row = results.row(group::HUGE_POOL, &keys).ok().filter(|_| column != "before")?;
            return Measured::of(row, "map_pages_saved", 1.0);
        }
        _ => return None,
    };
    let (map_geometry, refs) = if column == "before" { ("4K", "per-page") } else { (geometry, "batched") };
    let page: u64 = if geometry == "1G" { 1 << 30 } else { 2 << 20 };
    let keys = [
        ("source", json!("measured")),
        ("memory", json!("device")),
        ("map_geometry", json!(map_geometry)),
        ("page_bytes", json!(page)),
        ("refs", json!(refs)),
        ("call", json!(call)),
        ("path", json!("fast")),
        ("interface", json!("array")),
    ];
    let rows = results.rows(group::PIN).ok()?;
    let row = rows.into_iter().find(|row| matches(row, &keys) && number(row, "take_ns").is_some())?;
    Measured::of(row, "take_ns", GIB / number(row, "bytes")? / 1e3)
}

/// Rounds in 5 seconds that register and release memory. A pool has huge pages before the series, too, and takes them in batches.
fn rounds(memory: &str, column: &str, results: &Results) -> Option<Measured> {
    let is_before = column == "before";
    let map = if is_before && memory == "device" { "4K" } else { "2M" };
    let refs = |is_batched| if is_batched { "batched" } else { "per-page" };
    let keys = [
        ("source", json!("measured")),
        ("registrar", json!("yard")),
        ("memory", json!(memory)),
        ("page_bytes", json!(2 << 20)),
        ("map_geometry", json!(map)),
        ("take_refs", json!(refs(!is_before || memory == "pool"))),
        ("release_refs", json!(refs(!is_before))),
    ];
    Measured::of(results.row(group::MEMORY_REGION, &keys).ok()?, "rounds_in_5_s", 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::super::job::{Job, JobKind};
    use super::super::super::stored::Stored;
    use super::*;
    use crate::output::HostFacts;

    fn stored(group: &str, rows: &serde_json::Value) -> Stored {
        let host = HostFacts { cpu: None, cpus: None, memory_bytes: None, kernel: None };
        let printed = json!({ "rows": rows }).as_object().unwrap().clone();
        Stored::new(&Job::new(group, JobKind::Native, "bench"), host, 1.0, Ok(printed))
    }

    #[test]
    fn registered_regions_and_pools_stand_beside_their_published_figures() {
        let row = |memory: &str, map: &str, take: &str, release: &str, rounds: f64| {
            json!({"source": "measured", "registrar": "yard", "memory": memory, "page_bytes": 2 << 20, "map_geometry": map,
                "take_refs": take, "release_refs": release, "rounds_in_5_s": rounds})
        };
        let rows = [
            row("device", "4K", "per-page", "per-page", 1.0),
            row("device", "2M", "per-page", "per-page", 99.0),
            row("device", "2M", "batched", "batched", 2.0),
            row("pool", "2M", "batched", "per-page", 3.0),
            row("pool", "2M", "batched", "batched", 4.0),
        ];
        let saved = |geometry: &str, before: &str, saved: f64| json!({"source": "measured", "geometry": geometry, "before": before, "map_pages_saved": saved});
        let pools = [saved("2M", "fresh", 99.0), saved("2M", "written", 7.0), saved("1G", "written", 4095.0)];
        let results =
            Results::new(vec![stored(group::MEMORY_REGION, &json!(rows)), stored(group::HUGE_POOL, &json!(pools))]);
        let table = compound_pagemap(&results);
        let of = |metric: &str| -> Vec<(f64, Option<f64>)> {
            let rows = table.rows.iter().filter(|row| row.what.starts_with(metric));
            rows.map(|row| (row.published, row.measured.map(|measured| measured.median))).collect()
        };
        assert_eq!(of("mr register rounds device dax"), [(159.0, Some(1.0)), (305.0, Some(2.0))]);
        assert_eq!(of("mr register rounds hugetlb"), [(466.0, Some(3.0)), (1073.0, Some(4.0))]);
        assert_eq!(of("hugetlb map pages saved"), [(0.0, None), (7.0, Some(7.0)), (4095.0, Some(4095.0))]);
    }
}
