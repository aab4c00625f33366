//! `trace`, as a user meets it: counts of an excerpt of a recording, and a recording where root and tracefs permit it.

use std::path::{Path, PathBuf};

use crate::program::{assert_refused, command, json, stderr, stdout};

const EXCERPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/traces/rust-build.txt");

fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn the_excerpt_has_the_counts_of_another_program() {
    // Counted by a script of its own.
    let stat = json(&["trace", "stat", EXCERPT, "--json"]);
    let expected = [
        ("events", 222.0),
        ("pages_allocated", 64.0),
        ("pages_freed", 50.0),
        ("pages_freed_in_batches", 47.0),
        ("peak_live_pages", 55.0),
        ("live_pages", 55.0),
        ("blocks_allocated_twice", 0.0),
        ("zone_locked_pages_per_1000", 953.13),
    ];
    for (name, value) in expected {
        assert_eq!(stat[name].as_f64(), Some(value), "{name}: {stat}");
    }
    let sum = |key: &str| stat["rows"].as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(
        (stat["pages_allocated"].as_u64(), stat["pages_freed"].as_u64()),
        (Some(sum("pages_allocated")), Some(sum("pages_freed")))
    );
    assert!(stat["user_us_per_page"].is_null());
}

#[test]
fn standard_input_is_read_like_a_file() {
    let input = std::fs::File::open(EXCERPT).unwrap();
    let output = command(&["trace", "stat", "-", "--json"]).stdin(input).output().unwrap();
    let read: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(read["rows"], json(&["trace", "stat", EXCERPT, "--json"])["rows"]);
}

#[test]
fn bad_input_is_refused_with_its_line() {
    let file = temporary("bad.trace");
    let text = std::fs::read_to_string(EXCERPT).unwrap();
    std::fs::write(&file, text.replacen("order=0", "order=x", 1)).unwrap();
    let at = text.lines().position(|line| line.contains("order=0")).unwrap() + 1;
    assert_refused(&["trace", "stat", file.to_str().unwrap()], 2, &format!("bad.trace: line {at}: "));
    std::fs::write(&file, "# tracer: nop\n").unwrap();
    assert_refused(&["trace", "stat", file.to_str().unwrap()], 2, "no event of the page allocator");
    std::fs::write(&file, [0x28, 0xb5, 0x2f, 0xfd, 0xff]).unwrap();
    assert_refused(&["trace", "stat", file.to_str().unwrap()], 2, "bad.trace: ");
    assert_refused(&["trace", "stat", "no/such.trace"], 2, "no/such.trace: ");
}

/// Records a command; `None`, with the reason on standard error, where that is impossible here.
fn record(name: &str, scope: &str, words: &[&str]) -> Option<(PathBuf, String)> {
    let file = temporary(name);
    let options = ["trace", "record", "-o", file.to_str().unwrap(), "--scope", scope, "--"];
    let output = command(&[&options[..], words].concat()).output().unwrap();
    if output.status.success() {
        return Some((file, stdout(&output).to_owned()));
    }
    let missing = ["needs root", "cannot be mounted", "Permission denied", "No such file"];
    assert!(missing.iter().any(|missing| stderr(&output).contains(missing)), "{}", stderr(&output));
    println!("skipped: {}", stderr(&output).trim());
    None
}

#[test]
fn a_recorded_command_has_its_pages_faults_and_exit_code() {
    // It writes 8 MiB of zeros into the page cache of a file.
    let scratch = temporary("zeros");
    let script = format!("head -c 8388608 /dev/zero > {}; exit 3", scratch.display());
    let Some((file, line)) = record("recorded.zst", "command", &["sh", "-c", &script]) else { return };
    assert!(line.contains("recorded.zst: ") && line.contains("exit status: 3"), "{line}");
    let stat = json(&["trace", "stat", file.to_str().unwrap(), "--json"]);
    assert!(stat["pages_allocated"].as_u64().unwrap() >= 2048, "{stat}");
    assert!(stat["minor_faults"].as_u64().unwrap() > 0, "{stat}");
    assert_eq!((&stat["exit_code"], &stat["scope"]), (&3.into(), &"command".into()));
    std::fs::remove_file(scratch).unwrap();
}

#[test]
fn a_command_that_does_not_exist_is_an_error() {
    if record("true.zst", "system", &["true"]).is_some() {
        let file = temporary("missing.zst");
        assert_refused(&["trace", "record", "-o", file.to_str().unwrap(), "--", "no-such-command"], 1, "not found");
    }
}
