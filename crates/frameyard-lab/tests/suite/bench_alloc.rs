//! `bench alloc`.

use serde_json::Value;

use crate::program::json;

fn rows(options: &str) -> Vec<Value> {
    let line = format!("bench alloc --phantom --order 0 --tasks 1 --json {options}");
    json(&line.split(' ').collect::<Vec<_>>())["rows"].as_array().expect("rows").clone()
}

#[test]
fn each_row_states_the_cost_of_a_compare_exchange() {
    let rows = rows("--memory 64M --repeat 2");
    let kinds: Vec<&str> = rows.iter().filter_map(|row| row["kind"].as_str()).collect();
    assert_eq!(kinds, ["repeat", "bulk", "random", "cold", "warm"]);
    let keys = |row: &Value| row.as_object().expect("a row is an object").keys().cloned().collect::<Vec<_>>();
    for row in &rows {
        assert_eq!(keys(row), keys(&rows[0]));
        assert!(row["compare_exchange_ns"].as_f64().expect("measured") > 0.1, "{row}");
    }
}
