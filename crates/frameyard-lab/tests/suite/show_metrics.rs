//! `show metrics` as a user meets it: the same numbers as text, for Prometheus and in JSON.

use std::collections::HashSet;

use crate::program::{assert_refused, frameyard, json, stderr, stdout};
use frameyard::policy::ZonePolicy;
use serde_json::Value;

const YARD: [&str; 10] =
    ["show", "metrics", "--machine", "desktop-8", "--memory", "1G", "--phantom", "--after", "churn", "--seed"];

fn line<'a>(more: &[&'a str]) -> Vec<&'a str> {
    YARD.iter().copied().chain(["3"]).chain(more.iter().copied()).collect()
}

fn printed(more: &[&str]) -> String {
    let output = frameyard(&line(more));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output).to_owned()
}

fn sum(object: &Value, key: &str) -> u64 {
    object["rows"].as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap_or(0)).sum()
}

#[test]
fn the_three_forms_show_the_same_numbers() {
    let text = printed(&[]);
    let prometheus = printed(&["--format", "prometheus"]);
    let object = json(&line(&["--json"]));
    assert_eq!((&object["command"], &object["format"]), (&"show metrics".into(), &"text".into()));
    for name in ["zone_lock_acquisitions", "zone_lock_pages_moved", "pcp_refills"] {
        let of_json = sum(&object, name);
        assert!(of_json > 0, "{name}");
        assert!(text.contains(&format!("\n{name} {of_json}\n")), "{name}: {text}");
        let prefix = format!("frameyard_{name}_total{{");
        let series = prometheus.lines().filter(|line| line.starts_with(&prefix));
        let of_prometheus: u64 = series.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        assert_eq!(of_prometheus, of_json, "{name}");
    }
}

#[test]
fn there_is_a_row_for_each_zone_and_cpu_and_one_for_each_zone() {
    let object = json(&line(&["--json"]));
    let rows = object["rows"].as_array().unwrap();
    let cpus = rows.iter().filter(|row| row["node"] == 0 && row["zone"] == "Normal" || row["zone"] == "DMA32");
    assert_eq!(cpus.clone().filter(|row| row["cpu"].is_null()).count() * 9, cpus.count());
    for row in rows {
        assert_eq!(row["policy"], ZonePolicy::default().name());
        assert_eq!(row["pcp_pages"].is_null(), row["cpu"].is_null());
        assert_eq!(
            row["bits_pages"].is_null(),
            !row["cpu"].is_null(),
            "counters of a zone are in the row without a CPU"
        );
        assert_eq!(row["zone_lock_hold_ns_le_inf"], row["zone_lock_hold_ns_count"]);
    }
    assert!(sum(&object, "zone_lock_hold_ns_count") > 0, "locks are timed while a workload runs");
    let policy = json(&line(&["--json", "--policy", "lock-per-page"]));
    assert_eq!(policy["rows"][0]["policy"], "lock-per-page");
    assert!(sum(&policy, "zone_lock_acquisitions") > 4 * sum(&object, "zone_lock_acquisitions"));
}

#[test]
fn policies_show_what_they_do() {
    let acts = [("skip-merge", &["skipped_merges", "unmerged_pages"][..]), ("bits", &["bits_supplied", "bits_pages"])];
    for (policy, names) in acts {
        let shown = json(&line(&["--json", "--policy", policy]));
        for name in names {
            assert!(sum(&shown, name) > 0, "{policy}: {name}");
        }
    }
}

#[test]
fn each_family_has_one_heading_and_no_series_occurs_twice() {
    let text = printed(&["--format", "prometheus", "--policy", "bits"]);
    let mut seen = HashSet::new();
    for line in text.lines() {
        let what = if line.starts_with('#') { line.splitn(4, ' ').take(3) } else { line.splitn(2, ' ').take(1) };
        assert!(seen.insert(what.collect::<Vec<_>>()), "twice: {line}");
        if let Some(name) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next()) {
            assert!(seen.contains(&vec!["#", "HELP", name]), "{line}");
        }
    }
    let of_zone = text.lines().filter(|line| line.starts_with("frameyard_bits_pages{"));
    assert!(of_zone.clone().count() > 0 && of_zone.clone().all(|line| !line.contains("cpu=")));
}

#[test]
fn without_zeroes_the_metrics_are_few_and_the_same() {
    let (all, few) = (printed(&["--format", "prometheus"]), printed(&["--format", "prometheus", "--nonzero"]));
    // Times differ between two runs.
    let is_counted = |line: &str| !line.starts_with('#') && !line.contains("_seconds");
    let series =
        |text: &str| -> Vec<String> { text.lines().filter(|line| is_counted(line)).map(str::to_owned).collect() };
    // A histogram with a count has all its buckets.
    let is_zero = |line: &String| line.ends_with(" 0") && !line.contains("_bucket{");
    let expected: Vec<String> = series(&all).into_iter().filter(|line| !is_zero(line)).collect();
    assert_eq!(series(&few), expected);
    let headings = few.lines().filter(|line| line.starts_with("# TYPE"));
    for name in headings.map(|line| line.split(' ').nth(2).unwrap()) {
        assert!(few.lines().any(|line| line.starts_with(name)), "{name} has no series");
    }
    let object = json(&line(&["--json", "--nonzero"]));
    assert!(object["rows"].as_array().unwrap().len() < json(&line(&["--json"]))["rows"].as_array().unwrap().len());
    assert_refused(&["show", "vmstat", "--nonzero"], 2, "goes with show metrics");
}

#[test]
fn formats_are_those_of_the_file() {
    assert_refused(&["show", "metrics", "--format", "6.1"], 2, "--format prometheus");
    assert_refused(&["show", "vmstat", "--format", "prometheus"], 2, "--format 6.12");
}
