//! `bench fault-cost`, as a user meets it: small and short.

use crate::program::{assert_refused, json};

#[test]
fn each_policy_has_a_row_whose_parts_make_up_the_whole() {
    let results = json(&["bench", "fault-cost", "--memory", "64M", "--map", "4M", "--repeat", "2", "--json"]);
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["lru_policy"].as_str().unwrap()).collect::<Vec<_>>(), ["vanilla", "sharded"]);
    for row in rows {
        let ns = |key: &str| row[key].as_f64().filter(|ns| *ns > 0.0).unwrap_or_else(|| panic!("{key}: {row}"));
        assert_eq!((row["map_bytes"].as_u64(), row["rounds"].as_u64()), (Some(4 << 20), Some(2)));
        assert!(ns("fault_and_unmap_ns_min") <= ns("fault_and_unmap_ns"), "{row}");
        assert!(
            ns("fault_ns") <= ns("fault_and_unmap_ns_max") && ns("unmap_ns") <= ns("fault_and_unmap_ns_max"),
            "{row}"
        );
        assert!(ns("zero_ns_min") <= ns("zero_ns") && ns("zero_ns") <= ns("zero_ns_max"), "{row}");
        // Of two rounds the median is the mean, of both sides.
        assert!((ns("allowed_ns") - (1.3 * ns("zero_ns") + 100.0)).abs() < 0.1, "{row}");
    }
}

#[test]
fn every_pair_of_policies_is_measured() {
    let line = "bench fault-cost --memory 64M --map 4M --repeat 1 --policy bits,vanilla --lru sharded --json";
    let results = json(&line.split_whitespace().collect::<Vec<_>>());
    let pair = |row: &serde_json::Value| {
        [&row["zone_policy"], &row["lru_policy"]].map(|name| name.as_str().unwrap().to_owned())
    };
    let pairs: Vec<_> = results["rows"].as_array().unwrap().iter().map(pair).collect();
    assert_eq!(pairs, [["bits", "sharded"], ["vanilla", "sharded"]]);
}

#[test]
fn bad_mappings_are_refused_with_a_correct_value() {
    for map in ["1M", "3M", "64M"] {
        assert_refused(
            &["bench", "fault-cost", "--memory", "64M", "--map", map],
            2,
            "up to half of the machine's memory",
        );
    }
    assert_refused(&["bench", "fault-cost", "--policy", "fast"], 2, "possible values: vanilla");
    assert_refused(&["bench", "fault-cost", "--phantom"], 2, "leave --phantom out");
}
