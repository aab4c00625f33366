//! `bench memmap` and `bench pcp-reset` as a user meets them.

use crate::program::{assert_refused, frameyard, json, stdout};
use serde_json::Value;

const KEYS: [&str; 17] = [
    "source",
    "machine",
    "initialiser",
    "content",
    "init_mode",
    "granularity",
    "threads",
    "frames",
    "map_bytes",
    "init_ns",
    "ns_per_page",
    "bytes_per_s",
    "fault_ns",
    "memset_bytes_per_s",
    "limit_bytes_per_s",
    "limit_fraction",
    "first_alloc_ns",
];
const SMALL: [&str; 9] = ["bench", "memmap", "--map-size", "64M", "--frames", "2^20", "--repeat", "2", "--threads"];

fn results(options: &[&'static str]) -> Value {
    json(&[&SMALL[..], &["1"], options, &["--json"]].concat())
}

fn rows(results: &Value) -> &[Value] {
    let rows = results["rows"].as_array().unwrap();
    for row in rows {
        assert_eq!(row.as_object().unwrap().keys().collect::<Vec<_>>(), KEYS);
    }
    rows
}

fn is_measured(row: &Value, key: &str) -> bool {
    match &row[key] {
        Value::Null => false,
        value => {
            assert!(value.as_f64().unwrap() > 0.0, "{key} is not measured and yet a number: {row}");
            true
        }
    }
}

#[test]
fn every_combination_is_a_row_and_what_is_not_measured_is_null() {
    let results = results(&[]);
    // Nine of initialiser and content in each mode, cut in two ways where there is something to cut.
    let (all, fragmented) = (rows(&results), rows(&results["fragmented"]));
    let (all, published) = all.split_at(all.len() - 3);
    assert!(published.iter().all(|row| row["source"] == "published" && row["machine"] == "sparc-m7"), "{published:?}");
    assert!(all.iter().all(|row| row["source"] == "measured"));
    assert_eq!((all.len(), fragmented.len()), (9 * 5, 2));
    for row in all.iter().chain(fragmented) {
        let is_lazy = row["init_mode"] == "lazy";
        for key in ["init_ns", "ns_per_page", "bytes_per_s", "fault_ns"] {
            assert_eq!(is_measured(row, key), !is_lazy, "{key}: {row}");
        }
        for key in ["memset_bytes_per_s", "limit_bytes_per_s", "limit_fraction"] {
            assert_eq!(is_measured(row, key), !is_lazy && row["initialiser"] != "none", "{key}: {row}");
        }
        assert!(is_measured(row, "first_alloc_ns") && is_measured(row, "threads"));
        assert_eq!((&row["frames"], &row["map_bytes"]), (&(1 << 20).into(), &(64 << 20).into()));
    }
    let granularities: Vec<&Value> = fragmented.iter().map(|row| &row["granularity"]).collect();
    assert_eq!(granularities, ["ranges", "sections"]);
    assert_eq!((&results["holes"], &results["fragmented"]["holes"]), (&0.into(), &4096.into()));
}

#[test]
fn chosen_axes_give_their_rows_alone() {
    let options = ["--initialiser", "stream,two-pass", "--content", "kernel", "--init", "eager", "--holes", "100"];
    let results = results(&[&options[..], &["--granularity", "sections"]].concat());
    let rows = rows(&results);
    let named: Vec<&Value> = rows.iter().map(|row| &row["initialiser"]).collect();
    assert_eq!(named, ["stream", "two-pass", "two-pass"]);
    assert_eq!((&rows[1]["source"], &rows[2]["source"]), (&"measured".into(), &"published".into()));
    let rows = &rows[..2];
    assert!(rows.iter().all(|row| row["content"] == "kernel" && row["init_mode"] == "eager"));
    assert!(results["holes"] == 100 && results["fragmented"].is_null());
}

#[test]
fn the_table_has_a_line_for_each_row() {
    let line = [&SMALL[..], &["1", "--init", "eager,lazy", "--initialiser", "none", "--content", "zero"]].concat();
    let output = frameyard(&line);
    let text = stdout(&output);
    assert_eq!(text.lines().filter(|line| line.starts_with("none ")).count(), 3, "{text}");
    assert!(text.starts_with("initialiser ") && text.contains("first alloc") && text.contains("64 MiB"), "{text}");
}

#[test]
fn impossible_sweeps_are_refused() {
    assert_refused(&["bench", "memmap", "--map-size", "16G"], 2, "--full");
    assert_refused(&["bench", "memmap", "--map-size", "1M"], 2, "multiples of");
    assert_refused(&["bench", "memmap", "--threads", "0"], 2, "from 1");
    assert_refused(&["bench", "memmap", "--threads", "99999"], 2, "numbers from 1 to");
    assert_refused(&["bench", "memmap", "--holes", "some"], 2, "a whole number from 0 to");
    assert_refused(&["bench", "memmap", "--frames", "5"], 2, "multiples of");
    assert_refused(&["bench", "memmap", "--initialiser", "none", "--content", "kernel"], 2, "no row is left");
    assert_refused(&["bench", "pcp-reset", "--zone-size", "100M"], 2, "multiples of a section");
    assert_refused(&["bench", "pcp-reset", "--zone-size", "128M"], 2, "at least");
}

#[test]
fn lock_acquisitions_are_counted_alike_every_time() {
    let line = ["bench", "pcp-reset", "--zone-size", "1G", "--cpus", "1,3", "--pages", "500", "--json"];
    let first = json(&line);
    let rows = first["rows"].as_array().unwrap();
    let keys: Vec<&String> = rows[0].as_object().unwrap().keys().collect();
    let promised = [
        "pcp_reset",
        "cpus",
        "zone_bytes",
        "batch",
        "high",
        "pages",
        "lock_acquisitions",
        "lock_acquisitions_per_1000_pages",
    ];
    assert_eq!(keys, promised);
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[2]["pages"], 500 * 3 * 2);
    assert!(rows.iter().all(|row| row["lock_acquisitions"].as_u64().unwrap() > 0));
    assert_eq!(json(&line)["rows"], first["rows"]);
}

#[test]
fn lists_sized_again_visit_the_zone_less_often() {
    let line = ["bench", "pcp-reset", "--zone-size", "2G", "--cpus", "2", "--json"];
    let object = json(&line);
    let per_page = |reset: &str| {
        let row = object["rows"].as_array().unwrap().iter().find(|row| row["pcp_reset"] == reset).unwrap();
        (row["batch"].as_u64().unwrap(), row["lock_acquisitions_per_1000_pages"].as_f64().unwrap())
    };
    let ((small, often), (large, seldom)) = (per_page("off"), per_page("on"));
    assert_eq!((small, large), (7, 63));
    assert!(often > 4.0 * seldom, "{often} {seldom}");
}

#[test]
fn the_larger_the_zone_the_more_the_reset_saves() {
    let object = json(&["bench", "pcp-reset", "--zone-size", "256M,512M,1G", "--cpus", "2", "--json"]);
    let rows = object["rows"].as_array().unwrap();
    let per_page = |row: &Value| row["lock_acquisitions_per_1000_pages"].as_f64().unwrap();
    let saved: Vec<f64> = rows.chunks(2).map(|pair| per_page(&pair[0]) / per_page(&pair[1])).collect();
    assert_eq!(saved.len(), 3);
    assert!(saved[0] > 2.0 && saved.is_sorted_by(|small, large| 1.5 * small < *large), "{saved:?}");
}
