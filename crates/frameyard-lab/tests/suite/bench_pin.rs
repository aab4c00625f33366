//! `bench pin`, `bench memory-region` and `bench huge-pool` as a user meets them: small and short.

use crate::program::{assert_refused, frameyard, json, stdout};
use serde_json::Value;

/// Keys that each row has, measured or published.
const KEYS: [&str; 11] = [
    "source",
    "refs",
    "call",
    "path",
    "memory",
    "page_bytes",
    "map_geometry",
    "interface",
    "bytes",
    "take_ns",
    "release_ns",
];

fn rows(line: &str) -> (Vec<Value>, Vec<Value>) {
    let line = format!("bench {line} --json");
    let object = json(&line.split_whitespace().collect::<Vec<_>>());
    object["rows"].as_array().unwrap().iter().cloned().partition(|row| row["source"] == "measured")
}

fn is_positive(row: &Value, key: &str) -> bool {
    row[key].as_f64().is_some_and(|value| value > 0.0)
}

#[test]
fn every_combination_of_call_path_refs_and_interface_is_a_row_of_each_kind() {
    let (measured, published) = rows("pin --size 16M --repeat 1");
    assert!(measured.iter().chain(&published).all(|row| KEYS.iter().all(|key| row.get(key).is_some())));
    let (taken, left_out): (Vec<&Value>, Vec<&Value>) = measured.iter().partition(|row| row["left_out"].is_null());
    // Mappings of 1 GiB are larger than that.
    assert_eq!((taken.len(), left_out.len()), (6 * 16, 3));
    for row in taken {
        assert!(is_positive(row, "take_ns") && is_positive(row, "release_ns"), "{row}");
        let is_array = row["interface"] == "array";
        assert_eq!((is_positive(row, "array_write_ns"), is_positive(row, "runs")), (is_array, !is_array), "{row}");
        let is_compound_device = row["memory"] == "device" && row["map_geometry"] != "4K";
        assert_eq!(row["layout"].as_str(), is_compound_device.then_some("deduplicated"), "{row}");
        // A row that was preempted for long may round to 0.
        assert!(row["take_times_as_fast"].as_f64().is_some_and(|times| times >= 0.0), "{row}");
    }
    for row in left_out {
        assert!(row["left_out"].as_str().unwrap().contains("no multiple of 1G") && row["take_ns"].is_null(), "{row}");
    }
    assert_eq!(published.len(), 6);
    assert!(published.iter().all(|row| is_positive(row, "published_value") && row["release_ns"].is_null()));
}

#[test]
fn a_gibibyte_of_a_device_is_one_run_in_every_layout() {
    for layout in ["full", "deduplicated", "deduplicated-two", "folded"] {
        let (measured, _) = rows(&format!(
            "pin --size 1G --memory device --page-size 2M,1G --interface runs --refs batched --path fast-only --call pin \
             --layout {layout} --repeat 1"
        ));
        let kinds: Vec<(u64, &str)> = measured
            .iter()
            .map(|row| (row["page_bytes"].as_u64().unwrap(), row["map_geometry"].as_str().unwrap()))
            .collect();
        assert_eq!(kinds, [(2 << 20, "4K"), (1 << 30, "4K"), (2 << 20, "2M"), (1 << 30, "1G")]);
        assert!(measured.iter().all(|row| row["runs"] == 1 && row["take_times_as_fast"].is_null()), "{measured:?}");
    }
}

#[test]
fn page_structures_on_the_device_and_several_threads_leave_the_runs_the_same() {
    let line =
        "pin --size 1G --memory device --interface runs --refs batched --path fast --call pin --repeat 2 --threads 3";
    for map in ["mem", "dev"] {
        let (measured, _) = rows(&format!("{line} --map {map}"));
        assert_eq!(measured.len(), 5);
        for row in &measured {
            assert_eq!((&row["map_placement"], &row["threads"]), (&Value::from(map), &Value::from(3)), "{row}");
            // Two runs of each thread. Every thread takes all pages: the frames are consecutive, so they are one run.
            assert_eq!((&row["samples"], &row["runs"]), (&Value::from(6), &Value::from(1)), "{row}");
        }
    }
}

#[test]
fn calls_can_take_a_few_pages_each_and_fault_them_in() {
    let line =
        "pin --size 8M --batch 100 --no-touch --longterm --memory anonymous,huge --call pin --path fast --repeat 1";
    let (measured, _) = rows(line);
    assert_eq!(measured.len(), 8);
    assert!(measured.iter().all(|row| row["pages_per_call"] == 100 && is_positive(row, "take_ns")), "{measured:?}");
    // Without faults there is nothing to take.
    let line = "bench pin --size 8M --no-touch --path fast-only --memory device --page-size 4K --repeat 1";
    assert_refused(&line.split_whitespace().collect::<Vec<_>>(), 1, "allow the slow path");
}

#[test]
fn regions_are_registered_with_references_counted_in_three_ways() {
    let (measured, published) = rows("memory-region --size 8M --duration 5ms");
    let yard: Vec<&Value> =
        measured.iter().filter(|row| row["registrar"] == "yard" && row["left_out"].is_null()).collect();
    assert_eq!(yard.len(), 6 * 3);
    for row in &yard {
        assert!(is_positive(row, "rounds") && is_positive(row, "round_ns") && is_positive(row, "runs"), "{row}");
    }
    let refs = |row: &Value| [&row["take_refs"], &row["release_refs"]].map(|name| name.as_str().unwrap().to_owned());
    let ways: Vec<[String; 2]> = yard[..3].iter().map(|row| refs(row)).collect();
    assert_eq!(ways, [["per-page", "per-page"], ["batched", "per-page"], ["batched", "batched"]]);
    let host: Vec<&Value> = measured.iter().filter(|row| row["registrar"] == "io_uring").collect();
    assert_eq!(host.iter().map(|row| &row["memory"]).collect::<Vec<_>>(), ["anonymous", "huge", "hugetlb"]);
    // A host that does not do it says why.
    assert!(host.iter().all(|row| is_positive(row, "rounds") != row["left_out"].is_string()), "{host:?}");
    let rounds: Vec<u64> = published.iter().map(|row| row["rounds"].as_u64().unwrap()).collect();
    assert_eq!(rounds, [159, 305, 466, 1073]);
}

#[test]
fn a_pool_saves_the_map_pages_that_are_published() {
    let (measured, published) = rows("huge-pool --size 1G --yard private,shared --repeat 1");
    assert_eq!((measured.len(), published.len()), (8, 3));
    for row in measured.iter().filter(|row| row["before"] != "fresh") {
        let same = published.iter().find(|other| other["geometry"] == row["geometry"]).unwrap();
        assert_eq!(row["map_pages_saved"], same["map_pages_saved"], "{row}");
        assert_eq!(row["map_bytes_resident"], row["map_bytes_equation"], "{row}");
        assert!(is_positive(row, "reserve_page_ns") && is_positive(row, "shrink_page_ns"), "{row}");
    }
    assert_refused(&["bench", "huge-pool", "--size", "1G", "--geometry", "4K"], 2, "write 2M or 1G");
}

#[test]
fn tables_have_measured_and_published_rows() {
    let line = "bench pin --size 2M --memory huge --call get --path slow --interface runs --refs batched --repeat 1";
    let output = frameyard(&line.split_whitespace().collect::<Vec<_>>());
    let text = stdout(&output);
    assert!(text.starts_with("get 2M, slow path, runs, refs batched\nmemory  pages"), "{text}");
    assert!(text.contains("pin_user_pages_fast_1gib"), "{text}");
    let line = "bench memory-region --size 2M --memory huge --duration 1ms --no-host";
    let output = frameyard(&line.split_whitespace().collect::<Vec<_>>());
    assert!(stdout(&output).contains("published  hugetlb"), "{}", stdout(&output));
}

#[test]
fn refusals_come_before_the_first_run() {
    let refused = |line: &str, says: &str| {
        let line: Vec<&str> = ["bench"].into_iter().chain(line.split_whitespace()).collect();
        assert_refused(&line, 2, says);
    };
    refused("pin --size 3M", "write a multiple of 2M");
    refused("pin --size 100P --memory huge", "choose a smaller --size");
    refused("pin --memory huge --page-size 1G", "no such memory");
    refused("pin --size 16M --page-size 1G", "no multiple of 1G pages");
    refused("pin --path quick", "possible values: fast, slow, fast-only");
    refused("pin --batch 0", "from 1");
    refused("memory-region --size 1M", "write a multiple of 2M");
    refused("memory-region --duration 0s", "more than nothing");
}
