//! `trace`, as a user meets it: counts of an excerpt of a recording, other formats, replays, and bad input.

use std::path::{Path, PathBuf};

use crate::program::{assert_refused, command, frameyard, json, stdout};

/// The begin of a recording, and what the names of its snapshot begin with.
pub(crate) const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../frameyard-traces/tests/fixtures/page-cache.ftrace.zst");
pub(crate) const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../frameyard-traces/tests/fixtures/page-cache");
const EXCERPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/traces/rust-build.txt");

pub(crate) fn temporary(name: &str) -> PathBuf {
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

#[test]
fn statistics_are_the_same_in_every_format() {
    let expected = json(&["trace", "stat", EXCERPT, "--json"]);
    for (format, name) in [("text", "excerpt.txt"), ("csv", "excerpt.csv"), ("llfree", "excerpt.bin")] {
        let file = temporary(name);
        let path = file.to_str().unwrap();
        let input = std::fs::File::open(EXCERPT).unwrap();
        let exported =
            command(&["trace", "export", "-", "--format", format, "-o", path]).stdin(input).output().unwrap();
        let line = stdout(&exported).to_owned();
        assert!(line.contains("222 events, 0 lines skipped, 0 lost"), "{line}");
        if format == "csv" {
            let lines = std::fs::read_to_string(&file).unwrap();
            assert_eq!(lines.lines().count(), 1 + 222);
            continue;
        }
        let stat = json(&["trace", "stat", path, "--json"]);
        for name in ["pages_allocated", "pages_freed", "peak_live_pages", "live_pages"] {
            assert_eq!(stat[name], expected[name], "{format}: {name}");
        }
    }
    let file = temporary("excerpt.fyt");
    let path = file.to_str().unwrap();
    assert!(command(&["trace", "import", EXCERPT, "-o", path]).output().unwrap().status.success());
    let stat = json(&["trace", "stat", path, "--json"]);
    for name in ["rows", "by_flags", "lifetimes", "live_over_time", "events", "blocks_freed_elsewhere"] {
        assert_eq!(stat[name], expected[name], "{name}");
    }
}

#[test]
fn statistics_have_flags_lifetimes_and_live_pages_that_add_up() {
    let stat = json(&["trace", "stat", RECORDING, "--json"]);
    let sum = |rows: &str, key: &str| {
        let rows = stat[rows].as_array().unwrap();
        rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(Some(sum("by_flags", "pages")), stat["pages_allocated"].as_u64());
    let gone = stat["pages_allocated"].as_u64().unwrap() - stat["live_pages"].as_u64().unwrap();
    assert!(stat["blocks_allocated_twice"] != 0 || sum("lifetimes", "pages") == gone, "{stat}");
    let live = stat["live_over_time"].as_array().unwrap();
    assert_eq!(live[live.len() - 1]["live_pages"], stat["live_pages"]);
    let [all, refills] = ["zone_locked_pages_per_1000", "refilled_pages_per_1000"].map(|name| stat[name].as_f64());
    assert!(refills <= all && stat["drained_pages_per_1000"].as_f64() > Some(0.0), "{stat}");
}

#[test]
fn a_recording_replays_under_all_policies_on_one_thread_and_on_several() {
    let policies = "vanilla,vanilla-4.16,skip-merge,cluster,cluster-bulk,big-pcp,prefetch,prefetch-before-lock,lock-per-page,\
                    vanilla-4.17,bits";
    let replayed =
        json(&["trace", "replay", RECORDING, "--snapshot", SNAPSHOT, "--policy", policies, "--by-order", "--json"]);
    let rows = replayed["rows"].as_array().unwrap();
    assert_eq!(rows.len(), policies.split(',').count());
    for row in rows {
        assert_eq!((&row["failures"], &row["skipped_frees"]), (&0.into(), &0.into()), "{row}");
        assert!(row["kernel_zone_locked_pages_per_1000"].as_f64() > Some(0.0), "{row}");
        let orders = replayed["by_order"].as_array().unwrap().iter().filter(|order| order["policy"] == row["policy"]);
        let of = |order: &serde_json::Value, name: &str| order[name].as_u64().unwrap();
        let sum: u64 = orders.map(|order| of(order, "alloc_acquisitions") + of(order, "free_acquisitions")).sum();
        assert_eq!(Some(sum), row["zone_lock_acquisitions"].as_u64(), "{row}");
    }
    let threads =
        json(&["trace", "replay", RECORDING, "--snapshot", SNAPSHOT, "--policy", "vanilla", "--threads", "--json"]);
    let row = &threads["rows"][0];
    assert_eq!((&row["failures"], &row["operations"]), (&0.into(), &rows[0]["operations"]));
    assert!(row["threads"].as_u64() >= Some(1), "{row}");
}

#[test]
fn copies_of_a_recording_replay_on_a_simulated_machine() {
    let words = ["trace", "replay", EXCERPT, "--machine", "desktop-8", "--copies", "2", "--policy", "vanilla,bits"];
    let seeds = |seed| stdout(&frameyard(&[&words[..], &["--seed", seed, "--json"]].concat())).to_owned();
    let printed = seeds("3");
    assert_eq!(seeds("3"), printed, "the same seed gives the same bytes");
    let replayed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let rows = replayed["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &replayed["machine"]), (2, &"desktop-8".into()));
    for row in rows {
        assert_eq!((&row["copies"], &row["events"]), (&2.into(), &222.into()), "{row}");
        assert!(row["virtual_ns_per_operation"].as_f64() > Some(0.0), "{row}");
        for name in ["failures", "free_order9_blocks", "pcp_pages_held", "extfrag_events", "zone_lock_acquisitions"] {
            assert!(row[name].is_u64(), "{name}: {row}");
        }
    }
    let few = json(&[&words[..], &["--events", "40", "--json"]].concat());
    assert_eq!(few["rows"][0]["events"], 40, "{few}");
}

#[test]
fn copies_that_cannot_run_are_refused() {
    let words = ["trace", "replay", EXCERPT, "--machine", "desktop-8"];
    let refused = |more: &[&str], says| assert_refused(&[&words[..], more].concat(), 2, says);
    refused(&["--copies", "0"], "write a whole number from 1");
    refused(&["--copies", "99"], "99 copies of the recording have more CPUs than the machine");
    refused(&["--threads"], "'--machine <NAME|FILE>' cannot be used with '--threads'");
    refused(&["--by-order"], "cannot be used with '--by-order'");
    assert_refused(&["trace", "replay", EXCERPT, "--machine", "pdp-11"], 2, "pdp-11");
    assert_refused(&["trace", "replay", EXCERPT, "--copies", "2"], 2, "--machine <NAME|FILE>");
    assert_refused(&["trace", "replay", EXCERPT, "--events", "0"], 2, "write a whole number from 1");
}

#[test]
fn damaged_recordings_are_read_up_to_the_damage() {
    let (text, whole) = (temporary("whole.txt"), temporary("whole.fyt"));
    std::fs::write(&text, std::fs::read_to_string(EXCERPT).unwrap().repeat(1000)).unwrap();
    let words = ["trace", "import", text.to_str().unwrap(), "-o", whole.to_str().unwrap()];
    assert!(command(&words).output().unwrap().status.success());
    let events = 222_000;
    let whole = std::fs::read(whole).unwrap();
    let file = temporary("damaged.fyt");
    let path = file.to_str().unwrap();
    // Without the last chunks: the whole blocks before are read.
    std::fs::write(&file, &whole[..whole.len() - whole.len() / 4]).unwrap();
    let stat = json(&["trace", "stat", path, "--json"]);
    assert_eq!(stat["is_truncated"], true);
    assert!(stat["events"].as_u64().unwrap() < events && stat["events"].as_u64().unwrap() >= 65536, "{stat}");
    let csv = temporary("damaged.csv");
    let exported =
        command(&["trace", "export", path, "--format", "csv", "-o", csv.to_str().unwrap()]).output().unwrap();
    assert!(stdout(&exported).contains("its end is missing"), "{}", stdout(&exported));
    let mut corrupt = whole;
    let middle = corrupt.len() / 2;
    corrupt[middle] ^= 0x40;
    std::fs::write(&file, &corrupt).unwrap();
    for words in [
        &["trace", "stat", path][..],
        &["trace", "replay", path],
        &["trace", "export", path, "--format", "csv", "-o", csv.to_str().unwrap()],
    ] {
        assert_refused(words, 2, "damaged.fyt: the file is damaged from byte ");
    }
    let none = ["trace", "export", "no/such.fyt", "--format", "csv", "-o", csv.to_str().unwrap()];
    assert_refused(&none, 2, "no/such.fyt: ");
}

#[test]
fn a_snapshot_of_another_machine_is_refused() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures/boot-61-m4G-n4");
    let prefix = temporary("small");
    for name in ["buddyinfo", "pagetypeinfo", "zoneinfo"] {
        // Not copied with its mode: the capture may be read-only.
        let text = std::fs::read(captures.join(name)).unwrap();
        std::fs::write(temporary(&format!("small.{name}.before")), text).unwrap();
    }
    let words = ["trace", "replay", EXCERPT, "--snapshot", prefix.to_str().unwrap()];
    assert_refused(&words, 2, "the snapshot does not match the recording: ");
    assert_refused(&["trace", "replay", EXCERPT, "--snapshot", "no/such"], 2, "no/such.buddyinfo.before: ");
    std::fs::write(temporary("small.zoneinfo.before"), "nonsense").unwrap();
    assert_refused(&words, 2, "small: ");
}

#[test]
fn the_recording_of_the_project_replays_as_its_snapshot_says() {
    // It lies outside the crate, so a package does not have it.
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/cargo-check.fytrace");
    let stat = json(&["trace", "stat", recording, "--json"]);
    assert_eq!((stat["events"].as_u64(), stat["lost_events"].as_u64()), (Some(552_515), Some(0)), "{stat}");
    let replay = json(&["trace", "replay", recording, "--policy", "vanilla,bits", "--json"]);
    let rows = replay["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["kernel_zone_locked_pages_per_1000"], stat["zone_locked_pages_per_1000"]);
        for nothing in ["failures", "skipped_frees", "kernel_failures"] {
            assert_eq!(row[nothing].as_u64(), Some(0), "{nothing}: {row}");
        }
        assert!(row["free_order9_blocks"].as_u64() > Some(1000), "{row}");
    }
    assert_eq!(rows[1]["zone_lock_acquisitions"].as_u64(), Some(0), "under bits: {replay}");
}

#[test]
fn copies_of_recordings_fill_memory_for_pages_of_a_gibibyte() {
    let machine = "bench gigantic --phantom --memory 2G --page-size 64K --section-size 128M --pageblock-order 5 --max-order 6 --json";
    let arguments = |more: &'static str| machine.split_whitespace().chain(more.split_whitespace()).collect::<Vec<_>>();
    let mut line = arguments("--events 20000 --clean-regions on --trace");
    let both = format!("{RECORDING},{EXCERPT}");
    line.push(&both);
    let run = json(&line);
    let row = &run["rows"][0];
    assert_eq!((row["recordings"].as_u64(), row["regions"].as_u64()), (Some(2), Some(1)), "{row}");
    assert!(row["frames_in_use_percent"].as_f64() > Some(60.0), "{row}");
    // As for a replay.
    let file = temporary("gigantic.trace");
    std::fs::write(&file, "# tracer: nop\n").unwrap();
    for (name, problem) in
        [(file.to_str().unwrap(), "the recording has no allocation and no free"), ("no/such", "no/such: ")]
    {
        let mut line = arguments("--trace");
        line.push(name);
        assert_refused(&line, 2, problem);
    }
}
