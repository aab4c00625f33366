//! `bench alloc`.

use serde_json::Value;

use crate::program::{assert_refused, json};

fn rows(options: &str) -> Vec<Value> {
    let line = format!("bench alloc --phantom --order 0 --tasks 1 --json {options}");
    json(&line.split(' ').collect::<Vec<_>>())["rows"].as_array().expect("rows").clone()
}

fn keys(row: &Value) -> Vec<String> {
    row.as_object().expect("a row is an object").keys().cloned().collect()
}

#[test]
fn each_row_states_the_cost_of_a_compare_exchange() {
    let rows = rows("--memory 64M --repeat 2");
    let kinds: Vec<&str> = rows.iter().filter_map(|row| row["kind"].as_str()).collect();
    assert_eq!(kinds, ["repeat", "bulk", "random", "cold", "warm"]);
    for row in &rows {
        assert_eq!(keys(row), keys(&rows[0]));
        assert!(row["compare_exchange_ns"].as_f64().expect("measured") > 0.1, "{row}");
    }
}

#[test]
fn a_spill_is_served_by_another_zone_and_the_same_pair_at_home_is_not() {
    // On one node, where DMA32 serves, and on two, where spills of 104 CPUs take long.
    for (options, of_kind) in
        [("desktop-8 --order 0,2 --policy vanilla,bits", 4), ("skylake-8167m --memory 2G --order 0", 1)]
    {
        let line = format!("bench alloc --phantom --json --kind repeat,spill --tasks 1 --repeat 1 --machine {options}");
        let rows = json(&line.split(' ').collect::<Vec<_>>())["rows"].as_array().expect("rows").clone();
        let kinds: Vec<_> = rows.iter().map(|row| row["kind"].as_str().expect("a name")).collect();
        assert_eq!(kinds, [vec!["repeat"; of_kind], vec!["spill"; of_kind]].concat());
        for row in &rows {
            assert_eq!(keys(row), keys(&rows[0]));
            assert_eq!(row["spilled_percent"], if row["kind"] == "spill" { 100.0 } else { 0.0 }, "{row}");
            assert!(row["get_ns"].as_f64() > Some(0.0) && row["ops"].as_u64() >= Some(100_000), "{row}");
        }
    }
}

#[test]
fn a_spill_with_nowhere_to_go_is_refused() {
    // The lower zone has 16 MiB, fewer than 32 blocks of order 9.
    let line = "bench alloc --phantom --machine skylake-8167m --memory 256M --tasks 27 --kind spill --order 9";
    assert_refused(&line.split(' ').collect::<Vec<_>>(), 2, "--kind spill: the tasks fill node 0 zone DMA32");
}
