//! `bench compaction`, `bench contig`, `bench report-free`, `bench frag` and `bench gigantic` as a user runs them, on machines so
//! small that a run takes almost no time. The first three check contents and counts themselves: a run that fails one has exit code 1.

use crate::program::{assert_refused, frameyard, json, stdout};
use serde_json::Value;

fn rows(line: &str) -> Vec<Value> {
    let mut arguments: Vec<&str> = std::iter::once("bench").chain(line.split_whitespace()).collect();
    arguments.push("--json");
    let results = json(&arguments);
    assert_eq!(results["command"], format!("bench {}", line.split_whitespace().next().unwrap()));
    let rows = results["rows"].as_array().unwrap().clone();
    rows.iter().for_each(|row| assert_eq!(row["data_intact"], true, "{row}"));
    rows
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} of {row}"))
}

#[test]
fn compaction_of_a_half_full_zone_yields_nearly_all_possible_huge_blocks() {
    let rows = rows("compaction --memory 128M --repeat 1 --lru vanilla,sharded");
    let policies: Vec<&str> = rows.iter().map(|row| row["lru_policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["vanilla", "sharded"]);
    for row in rows {
        let [zone, free, moved, checked] =
            ["zone_bytes", "free_pages", "pages_moved", "checked_pages"].map(|key| number(&row, key));
        assert_eq!((zone, number(&row, "order9_before")), (128 << 20, 0));
        assert!((15_900..=17_000).contains(&free) && checked + free <= 32_768 && checked > 15_900, "half full: {row}");
        // The scanners meet where half of what stays has been moved.
        assert!(moved > 7_500 && moved < 8_700, "{row}");
        // One block of 32 is where the scanners meet.
        assert!(number(&row, "order9_after") + 1 >= number(&row, "order9_possible"), "{row}");
        assert!(row["share_of_possible"].as_f64().unwrap() > 0.95, "{row}");
        assert!(row["fragmentation_index_before"].as_i64() > Some(900), "{row}");
        assert_eq!((&row["fragmentation_index_after"], &row["result"]), (&(-1000).into(), &"complete".into()));
        assert!(row["unusable_share_before"].as_f64() > row["unusable_share_after"].as_f64(), "{row}");
        for rate in ["moved_gb_per_s", "zone_gb_per_s", "copy_gb_per_s", "zero_gb_per_s"] {
            assert!(row[rate].as_f64().unwrap() > 0.0, "{rate}: {row}");
        }
    }
}

#[test]
fn a_contiguous_range_is_allocated_from_a_zone_in_use_or_its_pinned_page_is_named() {
    let rows = rows("contig --memory 256M --size 64M --fill 40% --repeat 2 --tasks 2");
    let kinds: Vec<&str> = rows.iter().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["busy", "pinned", "unpinned", "busy", "pinned", "unpinned"]);
    for row in &rows {
        assert_eq!((number(row, "range_bytes"), number(row, "zone_bytes")), (64 << 20, 192 << 20));
        assert!(number(row, "checked_pages") > 10_000, "{row}");
        let used = row["used_share_before"].as_f64().unwrap();
        assert!(used > 0.3 && used < 0.6, "{row}");
    }
    for round in rows.chunks(3) {
        let [busy, pinned, unpinned] = round else { panic!("three kinds") };
        for taken in [busy, unpinned] {
            assert_eq!((&taken["outcome"], &taken["blocked_by"]), (&"taken".into(), &Value::Null));
            assert!(taken["first_frame"].is_u64() && taken["gb_per_s"].as_f64() > Some(0.0), "{taken}");
        }
        assert_eq!(number(busy, "first_frame") % 16384, 0, "aligned to its size");
        assert_eq!((&pinned["outcome"], &pinned["first_frame"]), (&"blocked".into(), &Value::Null));
        assert_eq!(pinned["blocked_frame"], pinned["pinned_frame"]);
        assert!(pinned["blocked_by"].as_str().unwrap().contains("is pinned"), "{pinned}");
    }
    assert!(rows.iter().map(|row| number(row, "pages_moved")).sum::<u64>() > 0, "something was in the way");
    assert!(rows.iter().map(|row| number(row, "occupant_steps")).sum::<u64>() > 0, "occupants went on");
}

#[test]
fn reported_memory_is_released_by_the_host_until_it_is_used() {
    let rows = rows("report-free --memory 128M --order 0,9,10 --seed 5");
    let [all, huge, largest] = &rows[..] else { panic!("three orders") };
    let of = |key: &str| [all, huge, largest].map(|row| number(row, key));
    assert_eq!(of("min_order"), [0, 9, 10]);
    assert_eq!(of("reported_after_use"), [0; 3], "all of it was used again");
    assert_eq!(of("reported_bytes")[0], of("free_bytes")[0], "single frames are given back, too");
    assert!(of("reported_bytes").is_sorted_by(|less, more| less > more), "{rows:?}");
    assert_eq!(of("reported_bytes")[2], of("reported_blocks")[2] << 22);
    for row in &rows {
        let [before, after, again, reported] =
            ["resident_before", "resident_after", "resident_again", "reported_bytes"].map(|key| number(row, key));
        assert!(before > 120 << 20 && again > 120 << 20, "{row}");
        assert!(after <= before - reported && number(row, "checked_pages") > 0, "{row}");
    }
}

#[test]
fn a_budget_limits_what_is_reported() {
    let rows = rows("report-free --memory 128M --order 9 --budget 16M");
    let reported = number(&rows[0], "reported_bytes");
    // Up to the end of the block, of 4 MiB at most.
    assert!((16 << 20..20 << 20).contains(&reported), "{}", rows[0]);
    assert_eq!(rows[0]["budget_bytes"], 16 << 20);
}

#[test]
fn random_frees_of_half_the_memory_leave_few_pageblocks_empty() {
    let results = json(
        &"bench frag --phantom --memory 64M --iterations 12 --json --free 50,90".split_whitespace().collect::<Vec<_>>(),
    );
    let rows = results["rows"].as_array().unwrap();
    let found: Vec<_> = rows.iter().map(|row| (number(row, "free_percent"), number(row, "iteration"))).collect();
    assert_eq!(found, [(50, 0), (50, 10), (50, 12), (90, 0), (90, 10), (90, 12)]);
    for row in rows {
        assert!((30..=32).contains(&number(row, "pageblocks")) && number(row, "tasks") == 2, "{row}");
        let [whole, empty] =
            ["whole_pageblocks_percent", "empty_pageblocks_percent"].map(|key| row[key].as_f64().expect(key));
        // The reserve of the zone is a pageblock or two.
        let most = if row["free_percent"] == 50 { 7.0 } else { 100.0 };
        assert!(whole <= empty && empty < most, "{row}");
    }
}

#[test]
fn mixed_requests_that_fail_are_counted_and_do_not_end_the_run() {
    let rows = |options: &str| {
        let line = format!("bench frag --phantom --memory 64M --json {options}");
        json(&line.split_whitespace().collect::<Vec<_>>())["rows"].as_array().unwrap().clone()
    };
    let keys = |row: &Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let single = rows("--iterations 10 --policy vanilla");
    let most_free = rows("--iterations 10 --orders mixed --free 90 --policy vanilla,bits");
    // Each iteration replaces few of the blocks, so that it takes many until tasks want more than there is.
    let nearly_full = rows("--iterations 3000 --orders mixed --free 3 --policy vanilla,bits");
    for (of_run, each, orders, fails) in
        [(&single, 2, "single", false), (&most_free, 2, "mixed", false), (&nearly_full, 9, "mixed", true)]
    {
        for of_policy in of_run.chunks(each) {
            assert!(of_policy.iter().all(|row| row["orders"] == orders && keys(row) == keys(&single[0])));
            assert_eq!(number(&of_policy[0], "iteration"), 0);
            // Before the first iteration; blocks of the last requests that filled memory may be missing.
            let held = of_policy[0]["held_percent"].as_f64().unwrap();
            let asked = 100.0 - of_policy[0]["free_percent"].as_f64().unwrap();
            assert!(held <= asked + 0.1 && held > asked - 10.0, "{}", of_policy[0]);
            let failed: u64 = of_policy.iter().map(|row| number(row, "failed_requests")).sum();
            assert_eq!(failed > 0, fails, "{of_policy:?}");
            let percent = of_policy.iter().map(|row| row["failed_requests_percent"].as_f64().unwrap()).sum::<f64>();
            assert!((percent > 0.0) == fails && percent < 50.0 * each as f64, "{of_policy:?}");
        }
    }
    assert_refused(
        &[
            "bench",
            "frag",
            "--phantom",
            "--memory",
            "64M",
            "--max-order",
            "7",
            "--pageblock-order",
            "7",
            "--orders",
            "mixed",
        ],
        2,
        "needs blocks of order 8, and those of the machine go up to order 7",
    );
}

#[test]
fn regions_that_are_kept_clean_give_pages_of_a_gibibyte() {
    let line = "bench gigantic --phantom --memory 8G --page-size 64K --section-size 128M --pageblock-order 5 --max-order 6 \
        --events 300000 --policy vanilla,bits --tasks 1 --json";
    let results = json(&line.split_whitespace().collect::<Vec<_>>());
    let rows = results["rows"].as_array().unwrap();
    let found: Vec<_> = rows.iter().map(|row| (row["policy"].as_str(), row["clean_regions"].as_str())).collect();
    let modes = |policy| ["off", "on"].map(|mode| (Some(policy), Some(mode)));
    assert_eq!(found, ["vanilla", "bits"].map(modes).concat());
    for pair in rows.chunks(2) {
        let [off, on] = pair else { panic!("two modes") };
        let of = |row, key| number(row, key);
        assert!(of(off, "regions") >= 6 && of(off, "regions") == of(on, "regions"), "{off}");
        // Under bits, more blocks that cannot move come to clean regions.
        let fewer = if on["policy"] == "bits" { 1 } else { 3 };
        assert!(of(on, "tainted_regions") + fewer <= of(off, "tainted_regions"), "{off} {on}");
        assert!(of(on, "gib_obtained") > of(off, "gib_obtained"), "{off} {on}");
        assert!(of(on, "frames_moved") > 0 && on["copy_ns"].is_null() && on["page_ns"].is_number(), "{on}");
    }
}

#[test]
fn tables_have_a_line_for_each_row() {
    for (line, first, rows) in [
        ("compaction --memory 64M --repeat 1", "LRU", 1),
        ("contig --memory 128M --size 16M --repeat 1", "LRU", 3),
        ("report-free --memory 64M --order 9", "order", 1),
        ("frag --phantom --memory 64M --iterations 3", "policy", 2),
        ("gigantic --phantom --memory 2G --page-size 64K --events 1000", "policy", 2),
    ] {
        let arguments: Vec<&str> = std::iter::once("bench").chain(line.split_whitespace()).collect();
        let output = frameyard(&arguments);
        assert_eq!(output.status.code(), Some(0), "{line}");
        let lines: Vec<&str> = stdout(&output).lines().collect();
        assert!(lines[0].starts_with(first) && lines[1 + rows].is_empty(), "{}", stdout(&output));
    }
}

#[test]
fn impossible_runs_are_refused() {
    for workload in ["compaction", "contig", "report-free"] {
        assert_refused(&["bench", workload, "--phantom"], 2, "leave --phantom out");
        assert_refused(&["bench", workload, "--memory", "16M"], 2, "needs at least");
        assert_refused(&["bench", workload, "--memory", "8T"], 2, "scale it with --memory");
        assert_refused(&["bench", workload, "--page-size", "64K"], 2, "leave --page-size out");
    }
    let small_blocks = ["--pageblock-order", "8", "--max-order", "8"];
    assert_refused(&[&["bench", "compaction"][..], &small_blocks].concat(), 2, "needs blocks of order 9");
    assert_refused(&["bench", "contig", "--memory", "512M"], 2, "--size 1G: the Movable zone has 384 MiB");
    assert_refused(&["bench", "contig", "--movable", "0%"], 2, "give the machine more --memory or --movable");
    assert_refused(&["bench", "contig", "--size", "3M"], 2, "a multiple of a pageblock, 2M");
    assert_refused(&["bench", "contig", "--fill", "95%"], 2, "up to 90% of the Movable zone");
    assert_refused(
        &["bench", "report-free", "--order", "11"],
        2,
        "needs blocks of order 11, and those of the machine go up to order 10",
    );
    assert_refused(&["bench", "report-free", "--poison"], 2, "leave --poison out");
    assert_refused(&["bench", "frag", "--phantom", "--memory", "16M"], 2, "give the machine at least 16M");
}
