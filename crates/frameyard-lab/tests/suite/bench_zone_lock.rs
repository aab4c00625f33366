//! `bench zone-lock`, as a user meets it: small and short.

use crate::program::{assert_refused, frameyard, json, stderr, stdout};
use serde_json::Value;

/// The keys that readers count on.
const KEYS: [&str; 15] = [
    "workload",
    "policy",
    "mode",
    "tasks",
    "ops_per_s",
    "zone_lock_acquisitions_per_1000_pages",
    "zone_lock_hold_ns_per_page",
    "zone_lock_wait_ns_per_page",
    "lru_lock_acquisitions_per_1000_pages",
    "page_lines_under_lock_per_page",
    "task_kind",
    "lru_policy",
    "high_order_success",
    "high_order_ns",
    "pcp_pages_held",
];

fn results(options: &str) -> Vec<Value> {
    let line = format!("bench zone-lock --duration 50ms --repeat 1 {options} --json");
    let object = json(&line.split_whitespace().collect::<Vec<_>>());
    object["rows"].as_array().unwrap().clone()
}

fn of<'r>(rows: &'r [Value], source: &str) -> Vec<&'r Value> {
    rows.iter().filter(|row| row["source"] == source).collect()
}

#[test]
fn measured_and_published_rows_of_every_workload_have_the_same_keys() {
    let rows = results("--memory 512M --policy vanilla --lru vanilla --tasks 1");
    for row in &rows {
        for key in KEYS {
            assert!(row.get(key).is_some(), "{key}: {row}");
        }
    }
    let measured = of(&rows, "measured");
    let names: Vec<(&str, Option<&str>)> =
        measured.iter().map(|row| (row["workload"].as_str().unwrap(), row["task_kind"].as_str())).collect();
    let expected = [
        ("page-fault", None),
        ("parallel-free", None),
        ("purge", None),
        ("highalloc", None),
        ("highalloc", None),
        ("order0-thp", Some("small")),
        ("order0-thp", Some("huge")),
        ("alloc", Some("bulk")),
        ("alloc", Some("random")),
        ("alloc", Some("repeat")),
    ];
    assert_eq!(names, expected);
    for row in &measured {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
        assert!(number("ops_per_s_min") <= number("ops_per_s") && number("ops_per_s") <= number("ops_per_s_max"));
        assert!(number("ops_per_s") > 0.0 && number("zone_lock_acquisitions_per_1000_pages") > 0.0, "{row}");
        assert!(number("zone_lock_hold_ns_per_page") > 0.0 && number("pcp_pages_held") > 0.0, "{row}");
        assert!(row["published_value"].is_null() && row["published_metric"].is_null(), "{row}");
        let has_owners = row["workload"] != "alloc";
        assert_eq!(row["lru_policy"].is_string(), has_owners, "{row}");
        assert_eq!(row["lru_lock_acquisitions_per_1000_pages"].is_number(), has_owners, "{row}");
        assert_eq!(row["high_order_success"].is_number(), row["workload"] == "highalloc", "{row}");
    }
    let published = of(&rows, "published");
    assert_eq!(measured.len() + published.len(), rows.len());
    assert!(!published.is_empty());
    for row in published {
        assert!(row["published_value"].is_number() && row["published_machine"].is_string(), "{row}");
        assert!(row["ops_per_s"].is_null() && row["zone_lock_hold_ns_per_page"].is_null(), "{row}");
    }
}

#[test]
fn policies_are_compared_on_one_yard_in_both_modes() {
    let rows = results(
        "--memory 256M --policy skip-merge,vanilla --workload purge --lru sharded --mode threads,processes --tasks 1",
    );
    let measured = of(&rows, "measured");
    let found = measured.iter().map(|row| (row["mode"].as_str().unwrap(), row["policy"].as_str().unwrap()));
    let expected =
        [("threads", "skip-merge"), ("threads", "vanilla"), ("processes", "skip-merge"), ("processes", "vanilla")];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn shares_of_drains_are_measured_for_the_policy_with_whole_drains() {
    let rows =
        results("--memory 256M --policy vanilla,cluster-bulk --workload page-fault,alloc --lru vanilla --tasks 1");
    for row in of(&rows, "measured") {
        let enters_whole = row["policy"] == "cluster-bulk";
        assert_eq!(row["drains"].as_f64().is_some_and(|drains| drains > 0.0), enters_whole, "{row}");
        for key in ["drains_ideal_share", "drains_whole_share", "drains_movable_share"] {
            assert_eq!(
                row[key].as_f64().is_some_and(|share| share > 0.0 && share <= 1.0),
                enters_whole,
                "{key}: {row}"
            );
        }
    }
}

#[test]
fn refills_and_drains_are_measured_separately_where_one_thread_suffices() {
    let rows = results("--memory 256M --policy vanilla --workload parallel-free,alloc --lru vanilla --tasks 1");
    for row in of(&rows, "measured") {
        let is_shown = row["workload"] == "parallel-free";
        for key in ["zone_lock_hold_ns_per_page_refill", "zone_lock_hold_ns_per_page_drain"] {
            assert_eq!(row[key].as_f64().is_some_and(|ns| ns > 0.0), is_shown, "{key}: {row}");
        }
        for key in ["page_lines_under_lock_per_page_refill", "page_lines_under_lock_per_page_drain"] {
            // A batch whose frames lie side by side shares blocks that are cut up: some lines for many pages.
            assert_eq!(row[key].as_f64().is_some_and(|lines| lines > 0.0 && lines < 20.0), is_shown, "{key}: {row}");
        }
    }
}

#[test]
fn tables_have_measured_and_published_rows() {
    let line =
        "bench zone-lock --workload page-fault --memory 256M --duration 50ms --policy vanilla --tasks 1 --repeat 1";
    let output = frameyard(&line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines[0], "page-fault; threads, tasks: 1");
    assert!(lines[1].starts_with("policy   LRU   ") && lines[1].contains("M ops/s"), "{}", lines[1]);
    assert!(lines[2].starts_with("vanilla  vanilla  "), "{}", lines[2]);
    assert!(lines.contains(&"published, skylake-112:"), "{lines:?}");
}

#[test]
fn refusals_come_before_the_first_run() {
    let refused = |options: &str, says: &str| {
        let line: Vec<&str> = ["bench", "zone-lock"].into_iter().chain(options.split_whitespace()).collect();
        assert_refused(&line, 2, says);
    };
    refused("--policy fast", "possible values: vanilla");
    refused("--workload idle", "possible values: page-fault");
    refused("--lru fast", "possible values: vanilla, sharded");
    refused("--tasks 0", "as in 4 or 1..40");
    refused("--duration 0s", "more than nothing");
    refused("--phantom", "leave --phantom out");
    refused("--workload alloc --phantom", "leave --phantom out");
    refused("--page-size 64K", "leave --page-size out");
    refused("--memory 64M", "give it more --memory, or run fewer --tasks");
    refused("--memory 256M --tasks 2 --workload page-fault", "need 304 MiB of free memory");
    refused("--pageblock-order 8 --max-order 8", "blocks of order 9");
}
