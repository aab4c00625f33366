//! `stress`, as a user meets it: short, in both modes.

use crate::program::{assert_refused, frameyard, json, stderr, stdout};

/// Runs with few operations in little memory; the only row.
fn row(options: &str) -> serde_json::Value {
    let [row] = &rows(options)[..] else { panic!("{options}: one run") };
    row.clone()
}

fn rows(options: &str) -> Vec<serde_json::Value> {
    let line = format!("stress --memory 128M --ops 1500k --interval 50ms {options} --json");
    let result = json(&line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(result["command"], "stress");
    result["rows"].as_array().unwrap().clone()
}

fn assert_worked(row: &serde_json::Value) {
    let count = |key: &str| row[key].as_u64().expect(key);
    assert!(count("ops") >= 1_500_000, "{row}");
    assert_eq!(count("ops"), count("allocations") + count("frees") + 2 * count("mapped_pages"), "{row}");
    assert_eq!(count("allocations"), count("frees"), "{row}");
    assert!(count("freed_for_others") > 0 && count("exact_ranges") > 0 && count("mapped_pages") > 0, "{row}");
    // Three of them when all was freed.
    assert!(count("validations") >= 3, "{row}");
}

#[test]
fn threads_lose_no_frame_while_policies_switch_and_under_bits() {
    assert_switching_and_bits(&rows("--tasks 3 --seed 5"), "threads");
}

#[test]
fn processes_lose_no_frame_while_policies_switch_and_under_bits() {
    assert_switching_and_bits(&rows("--tasks 3 --mode processes"), "processes");
}

/// The runs of a command without `--policy`.
fn assert_switching_and_bits(rows: &[serde_json::Value], mode: &str) {
    assert_eq!(rows.len(), 3);
    for (row, policy) in rows.iter().zip(["switching", "bits", "bits-trees"]) {
        assert_worked(row);
        assert_eq!((&row["policy"], &row["mode"], &row["tasks"]), (&policy.into(), &mode.into(), &3.into()));
        assert_eq!(row["switches"].as_u64().unwrap() > 0, policy == "switching", "{row}");
    }
}

#[test]
fn a_single_policy_never_switches() {
    let row = row("--tasks 2 --policy vanilla");
    assert_worked(&row);
    assert_eq!((&row["policy"], &row["switches"]), (&"vanilla".into(), &0.into()));
}

#[test]
fn every_policy_has_its_own_run() {
    let output = frameyard(&["stress", "--memory", "128M", "--ops", "20k", "--tasks", "2", "--policy", "all"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for policy in frameyard::policy::ZonePolicy::ALL {
        assert!(stdout(&output).contains(&format!("{policy}, 2 threads:")), "{policy}");
    }
    assert!(stdout(&output).contains("No frame was allocated twice"));
}

#[test]
fn refusals_name_a_correct_value() {
    assert_refused(&["stress", "--memory", "32M", "--tasks", "1"], 2, "need at least 64M of memory: give --memory 64M");
    assert_refused(&["stress", "--memory", "64M", "--tasks", "8"], 2, "give --memory 128M");
    assert_refused(&["stress", "--tasks", "1001"], 2, "at most 1000");
    assert_refused(&["stress", "--ops", "0"], 2, "as in 500k or 1G");
    assert_refused(&["stress", "--policy", "fast"], 2, "possible values: switching, all, vanilla");
    assert_refused(&["stress", "--phantom"], 2, "leave --phantom out");
}
