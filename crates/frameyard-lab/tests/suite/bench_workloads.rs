//! The workloads that compare policies, as a user runs them: small, short, in both modes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{assert_refused, command, frameyard, json, stderr, stdout};
use frameyard::policy::ZonePolicy;
use serde_json::Value;
use std::collections::BTreeSet;

const SETTING: [&str; 6] = ["mode", "tasks", "zone_policy", "lru_policy", "memory_bytes", "runs"];
const COUNTS: [&str; 26] = [
    "zone_lock_acquisitions",
    "zone_lock_contended",
    "zone_lock_contended_share",
    "zone_lock_wait_ns",
    "zone_lock_hold_ns",
    "lru_lock_acquisitions",
    "lru_lock_contended",
    "lru_lock_contended_share",
    "lru_lock_wait_ns",
    "lru_lock_hold_ns",
    "pages_per_zone_lock",
    "thp_fault_alloc",
    "thp_fault_fallback",
    "thp_split_page",
    "extfrag_fallbacks",
    "extfrag_into_movable",
    "extfrag_conversions",
    "compact_stall",
    "compact_success",
    "compact_fail",
    "compact_migrated",
    "compact_migrate_failed",
    "pgscan_kswapd",
    "pgscan_direct",
    "pgsteal_kswapd",
    "pgsteal_direct",
];
const RATES: [&str; 3] = ["pages_per_s", "pages_per_s_min", "pages_per_s_max"];
const ITERATIONS: [&str; 4] = ["elapsed_ns", "iterations_min", "iterations_max", "iterations_total"];

/// Runs a workload once a row, with two tasks and the options.
fn results(workload: &str, options: &str) -> Value {
    let line = format!("bench {workload} --repeat 1 --tasks 2 {options} --json");
    json(&line.split_whitespace().collect::<Vec<_>>())
}

/// The rows, each with the columns of all workloads around its own, and plausible.
fn rows<'r>(results: &'r Value, own: &[&str]) -> &'r [Value] {
    let rows = results["rows"].as_array().unwrap();
    let keys: BTreeSet<&str> = [&SETTING, own, &COUNTS].concat().into_iter().collect();
    for row in rows {
        assert_eq!(row.as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>(), keys);
        assert_eq!((&row["zone_policy"], &row["runs"]), (&ZonePolicy::default().name().into(), &1.into()));
        for lock in ["zone_lock", "lru_lock"] {
            let count = |what: &str| row[format!("{lock}_{what}")].as_u64().expect(what);
            assert!(
                (count("acquisitions") > 0 || lock == "zone_lock") && count("contended") <= count("acquisitions"),
                "{row}"
            );
            assert!(count("hold_ns") > 0 || count("acquisitions") == 0, "locks are timed: {row}");
            let share = row[format!("{lock}_contended_share")].as_f64();
            // A lock that was never taken has no share.
            assert_eq!(share.is_some(), count("acquisitions") > 0, "{row}");
            assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{row}");
            count("wait_ns");
        }
        assert!(row["pages_per_s"].as_f64().unwrap() > 0.0, "{row}");
    }
    rows
}

/// The settings of the rows, in their order.
fn settings(rows: &[Value]) -> Vec<(&str, &str)> {
    let text = |row: &'_ Value, key: &str| -> &'static str {
        ["threads", "processes", "vanilla", "sharded"].into_iter().find(|text| row[key] == *text).expect("known")
    };
    rows.iter().map(|row| (text(row, "mode"), text(row, "lru_policy"))).collect()
}

const ALL: [(&str, &str); 4] =
    [("threads", "vanilla"), ("threads", "sharded"), ("processes", "vanilla"), ("processes", "sharded")];

fn assert_iterations(row: &Value) {
    let [elapsed, min, max, total] = ITERATIONS.map(|key| row[key].as_u64().expect(key));
    assert!(elapsed > 0 && min <= max && 0 < max && max <= total && total <= 2 * max, "{row}");
    let [median, least, most] = RATES.map(|key| row[key].as_f64().expect(key));
    assert!(least <= median && median <= most, "{row}");
}

#[test]
fn page_fault_counts_the_pages_of_each_task_under_every_pair_of_policies_in_both_modes() {
    let results = results("page-fault", "--memory 512M --duration 50ms");
    let own = [&["map_bytes"][..], &ITERATIONS, &RATES, &["page_ns", "idle_share"]].concat();
    let rows = rows(&results, &own);
    assert_eq!(settings(rows), ALL);
    for row in rows {
        assert_iterations(row);
        assert_eq!((&row["map_bytes"], &row["tasks"]), (&(128 << 20).into(), &2.into()));
    }
}

#[test]
fn page_fault_counts_faults_that_get_a_hot_frame_if_asked() {
    // A task records faults from its second mapping on, which a busy machine may not get to at once.
    let run = |duration| {
        let options = "--memory 512M --hot-frames --map 4M --mode threads --lru vanilla --duration";
        results("page-fault", &format!("{options} {duration}"))
    };
    let has_faults = |results: &Value| {
        results["rows"].as_array().unwrap().iter().all(|row| row["recorded_faults"].as_u64().expect("a number") > 0)
    };
    let results = ["50ms", "1s", "10s"].into_iter().map(run).find(has_faults).expect("faults are recorded");
    let hot: &[&str] = &["recorded_faults", "hot_share", "hottest_share"];
    let own = [&["map_bytes"][..], &ITERATIONS, &RATES, &["page_ns", "idle_share"], hot].concat();
    for row in rows(&results, &own) {
        assert_eq!(row["map_bytes"], 4 << 20);
        let [hot, hottest] = ["hot_share", "hottest_share"].map(|key| row[key].as_f64().expect(key));
        // Of each mapping, at most 1 MiB of frames is hot.
        assert!(hot <= 0.4 && hot <= hottest && hottest <= 1.0, "{row}");
    }
}

#[test]
fn kernbench_runs_each_job_in_its_own_address_space() {
    let results = results("kernbench", "--memory 512M --duration 30ms --lru vanilla --pages 256 --compute 1000");
    let own = [&["map_bytes"][..], &ITERATIONS, &RATES, &["page_ns", "idle_share"]].concat();
    let rows = rows(&results, &own);
    assert_eq!(settings(rows), [("threads", "vanilla"), ("processes", "vanilla")]);
    for row in rows {
        assert_iterations(row);
        assert_eq!(row["map_bytes"], 256 * 4096);
    }
}

#[test]
fn page_fault_writes_the_columns_and_the_plot_of_will_it_scale() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page_fault1.csv");
    let image = file.with_extension("svg");
    let (path, plot) = (file.to_str().unwrap(), image.to_str().unwrap());
    let line = "bench page-fault --repeat 1 --tasks 1,2 --memory 512M --duration 30ms --lru vanilla";
    let files = ["--will-it-scale", path, "--plot", plot];
    let output = frameyard(&line.split_whitespace().chain(files).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["tasks,processes,processes_idle,threads,threads_idle,linear", "0,0,100,0,100,0"]);
    let numbers = |line: &str| line.split(',').map(|cell| cell.parse::<f64>().unwrap()).collect::<Vec<_>>();
    let (one, two) = (numbers(lines[2]), numbers(lines[3]));
    assert_eq!((lines.len(), one.len(), one[0], two[0]), (4, 6, 1.0, 2.0));
    assert!(one[1] > 0.0 && one[3] > 0.0 && (0.0..=100.0).contains(&one[2]), "{text}");
    assert_eq!((one[5], two[5]), (one[1].max(one[3]), 2.0 * one[5]));
    let svg = std::fs::read_to_string(&image).unwrap();
    for line in ["threads, bits, vanilla", "processes, bits, vanilla"] {
        assert!(svg.contains(line), "{line}: {svg}");
    }
    assert_eq!(svg.matches("<circle").count(), 4, "two numbers of tasks in two modes");
}

#[test]
fn each_pair_of_policies_has_a_file_with_minus_one_for_modes_that_were_not_run() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pairs.csv");
    let line =
        "bench page-fault --repeat 1 --tasks 2 --memory 512M --duration 20ms --mode threads --json --will-it-scale";
    json(&line.split_whitespace().chain([file.to_str().unwrap()]).collect::<Vec<_>>());
    for lru in ["vanilla", "sharded"] {
        let text = std::fs::read_to_string(file.with_file_name(format!("pairs-bits-{lru}.csv"))).unwrap();
        assert!(text.lines().nth(2).unwrap().starts_with("2,-1,0.00,"), "{text}");
    }
}

#[test]
fn parallel_free_frees_what_it_has_mapped() {
    let results = results("parallel-free", "--memory 256M");
    let own = ["pages", "huge_pages", "mapped_bytes", "exit_ns", "exit_ns_min", "exit_ns_max", "pages_per_s"];
    let rows = rows(&results, &own);
    assert_eq!(settings(rows), ALL);
    for row in rows {
        let [pages, mapped, memory] = ["pages", "mapped_bytes", "memory_bytes"].map(|key| row[key].as_u64().unwrap());
        assert!(mapped == pages * 4096 && mapped > memory / 2 && mapped < memory, "most of memory: {row}");
        let [least, median, most] = ["exit_ns_min", "exit_ns", "exit_ns_max"].map(|key| row[key].as_u64().unwrap());
        assert!(0 < least && least <= median && median <= most, "{row}");
        assert_eq!(row["huge_pages"], 0, "{row}");
    }
}

#[test]
fn parallel_free_of_huge_pages_moves_whole_blocks_under_the_zone_lock_if_it_takes_it() {
    let results = results("parallel-free", "--memory 256M --huge --lru vanilla --policy vanilla,bits");
    for row in results["rows"].as_array().unwrap() {
        let [pages, huge] = ["pages", "huge_pages"].map(|key| row[key].as_u64().unwrap());
        assert!(512 * huge > pages / 2 && 512 * huge <= pages, "most of the mapped memory is huge: {row}");
        let pages_each = row["pages_per_zone_lock"].as_f64();
        assert!(pages_each.map_or(row["zone_policy"] == "bits", |pages| pages > 256.0), "{row}");
    }
}

#[test]
fn purge_frees_in_other_tasks_than_those_that_fault() {
    let results = results("purge", "--memory 512M --duration 50ms --lru sharded --purgers 3");
    let own = [&["purgers"][..], &ITERATIONS, &RATES, &["freed_elsewhere_share"]].concat();
    let rows = rows(&results, &own);
    assert_eq!(settings(rows), [("threads", "sharded"), ("processes", "sharded")]);
    rows.iter().for_each(assert_iterations);
    assert_eq!((&rows[0]["purgers"], &rows[1]["purgers"]), (&3.into(), &2.into()));
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    for row in rows {
        let elsewhere = row["freed_elsewhere_share"].as_f64().unwrap();
        assert_eq!(elsewhere, if cpus > 1 { 1.0 } else { 0.0 }, "{row}");
    }
}

const DECISION_SUPPORT: [&str; 15] = [
    "pcp_sizing",
    "work_area_bytes",
    "scan_bytes",
    "elapsed_ns",
    "queries_per_s",
    "pages_per_s",
    "pages_per_s_min",
    "pages_per_s_max",
    "page_ns",
    "queries",
    "iterations_total",
    "zone_lock_wait_ns_per_page",
    "lru_lock_wait_ns_per_page",
    "allocated_per_zone_lock",
    "allocated_per_lru_lock",
];

#[test]
fn decision_support_reads_tables_and_uses_work_areas_with_each_sizing_of_lists() {
    let options = "--memory 512M --duration 50ms --lru vanilla --pcp-sizing classic,fraction:8 --work-area 4M";
    let results = results("decision-support", options);
    let rows = rows(&results, &[&DECISION_SUPPORT[..], &["per_cpu_lists_bytes"]].concat());
    let found: Vec<_> = rows.iter().map(|row| (&row["mode"], &row["pcp_sizing"])).collect();
    let expected =
        [("threads", "classic"), ("threads", "fraction:8"), ("processes", "classic"), ("processes", "fraction:8")];
    assert!(found.iter().zip(expected).all(|(row, (mode, sizing))| *row.0 == mode && *row.1 == sizing), "{found:?}");
    for row in rows {
        let number = |key: &str| row[key].as_f64().expect(key);
        assert_eq!((&row["work_area_bytes"], &row["scan_bytes"]), (&(4 << 20).into(), &(4 << 20).into()));
        // The smallest query reads and touches 2 x 8 pages, the largest 2 x 1024.
        let pages = number("iterations_total") / number("queries");
        assert!(number("queries") >= 2.0 && (16.0..=2048.0).contains(&pages), "{row}");
        assert!(number("queries_per_s") > 0.0 && number("per_cpu_lists_bytes") > 0.0, "{row}");
        let [waits, frames] = ["zone_lock_wait_ns", "zone_lock_wait_ns_per_page"].map(number);
        assert!(frames <= waits && (waits > 0.0 || frames == 0.0), "{row}");
        assert!(number("pgsteal_direct") > 0.0, "scans evict pages: {row}");
    }
}

#[test]
fn decision_support_takes_the_zone_lock_less_often_with_lists_that_hold_a_fraction_of_the_zone() {
    // Long enough for tasks on a busy machine to get further than filling the lists.
    let options = "--memory 512M --duration 1s --lru vanilla --mode threads --policy vanilla --work-area 8M";
    let results = results("decision-support", &format!("{options} --pcp-sizing classic,fraction:8"));
    let rows = results["rows"].as_array().unwrap();
    let [classic, fraction] = [0, 1].map(|row: usize| rows[row]["allocated_per_zone_lock"].as_f64().unwrap());
    assert!(fraction > 2.0 * classic, "{classic} {fraction}");
    let [few, many] = [0, 1].map(|row: usize| rows[row]["per_cpu_lists_bytes"].as_u64().unwrap());
    assert!(many > 2 * few, "{few} {many}");
}

#[test]
fn order0_thp_has_a_row_for_each_kind_of_task() {
    let results = results("order0-thp", "--memory 768M --duration 50ms --lru vanilla");
    let times = ["kept_share", "defrag_mode", "background", "huge_fault_ns", "huge_fault_ns_p99"];
    let own = [&["task_kind"][..], &ITERATIONS, &RATES, &times, &EFFORT].concat();
    let rows = rows(&results, &own);
    let kinds: Vec<_> = rows.iter().map(|row| (&row["mode"], &row["task_kind"])).collect();
    let expected = [("threads", "huge"), ("threads", "small"), ("processes", "huge"), ("processes", "small")];
    assert!(kinds.iter().zip(expected).all(|(found, (mode, kind))| *found.0 == mode && *found.1 == kind), "{kinds:?}");
    for row in rows {
        assert_iterations(row);
        let huge = ["thp_fault_alloc", "thp_fault_fallback"].map(|key| row[key].as_u64().unwrap());
        assert!(huge.iter().sum::<u64>() > 0, "no task asked for a huge page: {row}");
        let timed =
            row["huge_fault_ns"].as_f64().map(|mean| mean <= row["huge_fault_ns_p99"].as_f64().unwrap() * 100.0);
        assert_eq!(timed, (row["task_kind"] == "huge").then_some(true), "{row}");
    }
}

#[test]
fn order0_thp_makes_huge_pages_among_pages_that_stay() {
    let options = "--memory 768M --lru vanilla --mode threads --kept 40% --background";
    let run = |ms: u64| results("order0-thp", &format!("{options} --duration {ms}ms"));
    // Whole pageblocks are free too: a tenth of memory, or 38. A task holds the 64 huge pages of a mapping at once, so of that many some
    // have to be made. On a busy machine the tasks take longer to ask for them.
    let asks_enough = |results: &Value| {
        let row = &results["rows"][0];
        ["thp_fault_alloc", "thp_fault_fallback"].iter().map(|key| row[key].as_u64().unwrap()).sum::<u64>() >= 64
    };
    let results = (0..).map(|doubled| run(500 << doubled)).find(asks_enough).unwrap();
    for row in results["rows"].as_array().unwrap() {
        assert!(row["compact_migrated"].as_u64().unwrap() > 0, "pages that stay are moved: {row}");
        let moved = ["moved_direct", "moved_background"].map(|key| row[key].as_u64().unwrap());
        assert_eq!(row["compact_migrated"], moved.iter().sum::<u64>());
        assert_eq!((&row["kept_share"], &row["background"]), (&0.4.into(), &true.into()));
    }
}

/// What making huge blocks took.
const EFFORT: [&str; 9] = [
    "discarded",
    "stalls",
    "allocstall",
    "scanned_direct",
    "scanned_background",
    "compact_scanned_direct",
    "compact_scanned_background",
    "moved_direct",
    "moved_background",
];

const HIGHALLOC: [&str; 19] = [
    "defrag_mode",
    "delay_ns",
    "delay_kind",
    "settle_ns",
    "unmovable_share",
    "high_order",
    "high_order_attempts",
    "high_order_success",
    "high_order_success_min",
    "high_order_success_max",
    "high_order_ns",
    "high_order_ns_max",
    "high_order_ns_p99",
    "high_order_fallbacks",
    "elapsed_ns",
    "background_ns",
    "pages_per_s",
    "unusable_share_before",
    "checked_pages",
];

fn assert_highalloc(row: &Value, kind: &str) {
    // 80 % of the pageblocks of 256 MiB, less what boot reserves.
    let attempts = row["high_order_attempts"].as_u64().unwrap();
    assert!((95..=102).contains(&attempts), "{row}");
    let success = row["high_order_success"].as_f64().unwrap();
    assert!(success > 0.0 && success <= 1.0, "{row}");
    assert!(row["high_order_ns"].as_f64().unwrap() > 0.0, "{row}");
    assert!(row["compact_migrated"].as_u64().unwrap() > 0, "blocks were moved: {row}");
    let moved = ["moved_direct", "moved_background"].map(|key| row[key].as_u64().unwrap());
    assert_eq!(row["compact_migrated"], moved.iter().sum::<u64>());
    let stalls = ["compact_stall", "allocstall"].map(|key| row[key].as_u64().unwrap());
    assert_eq!(row["stalls"], stalls.iter().sum::<u64>());
    // Every builder reads all its files again in the end.
    assert!(row["checked_pages"].as_u64().unwrap() > 40_000, "{row}");
    assert_eq!((&row["delay_kind"], &row["high_order"]), (&kind.into(), &9.into()));
}

#[test]
fn highalloc_allocates_huge_blocks_in_full_memory_and_damages_no_content() {
    let results = results("highalloc", "--memory 256M --delay 2ms,50us --settle 10ms");
    let rows = rows(&results, &[&HIGHALLOC[..], &EFFORT].concat());
    assert_eq!(rows.len(), 8);
    for (row, delay) in rows.iter().zip([2_000_000, 50_000].into_iter().cycle()) {
        assert_highalloc(row, "virtual");
        assert!(row["background_ns"].is_u64() && row["delay_ns"] == delay, "{row}");
    }
}

#[test]
fn a_real_delay_lets_time_pass() {
    let options = "--memory 256M --delay 1ms --real-delay --settle 10ms --lru vanilla --unmovable 0%";
    let results = results("highalloc", options);
    let rows = rows(&results, &[&HIGHALLOC[..], &EFFORT].concat());
    assert_eq!(settings(rows), [("threads", "vanilla"), ("processes", "vanilla")]);
    for row in rows {
        assert_highalloc(row, "real");
        assert!(row["background_ns"].is_null(), "{row}");
        // As many delays as attempts, each at least so long.
        assert!(row["elapsed_ns"].as_u64() > row["high_order_attempts"].as_u64().map(|attempts| attempts * 1_000_000));
    }
}

#[test]
fn results_are_shown_two_by_two_and_then_in_detail() {
    let line = ["bench", "page-fault", "--memory", "512M", "--duration", "20ms", "--repeat", "1", "--tasks", "1"];
    let output = frameyard(&line);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert!(
        lines[0].starts_with("threads, tasks: 1;") && lines[0].ends_with("(zone lock contended, LRU lock contended)")
    );
    assert_eq!(
        lines[1].split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect::<Vec<_>>(),
        ["zone policy", "LRU vanilla", "LRU sharded"]
    );
    assert!(lines[2].starts_with("bits ") && lines[2].matches(" %)").count() == 2, "{}", lines[2]);
    let details = lines.iter().filter(|line| line.starts_with("threads ") || line.starts_with("processes ")).count();
    assert_eq!(details, 4, "{}", stdout(&output));
    assert!(lines.last().unwrap().contains("hardware exceptions and system calls"));
}

#[test]
fn impossible_runs_are_refused() {
    assert_refused(&["bench", "page-fault", "--tasks", "0"], 2, "as in 4 or 1..40");
    assert_refused(&["bench", "page-fault", "--policy", "fast"], 2, "possible values: vanilla");
    assert_refused(&["bench", "page-fault", "--lru", "fast"], 2, "possible values: vanilla, sharded");
    assert_refused(&["bench", "page-fault", "--duration", "5"], 2, "as in 500ms or 2s");
    assert_refused(&["bench", "page-fault", "--phantom"], 2, "leave --phantom out");
    assert_refused(&["bench", "highalloc", "--page-size", "64K"], 2, "leave --page-size out");
    assert_refused(&["bench", "highalloc", "--unmovable", "90%"], 2, "from 0% to 50%");
    let geometry = ["bench", "highalloc", "--pageblock-order", "8", "--max-order", "8"];
    assert_refused(&geometry, 2, "blocks of order 9");
    let small = ["--memory", "256M", "--tasks", "2"];
    assert_refused(&[&["bench", "page-fault"], &small[..]].concat(), 2, "need 304 MiB of free memory");
    assert_refused(&[&["bench", "order0-thp"], &small[..]].concat(), 2, "need 576 MiB of free memory");
    assert_refused(&["bench", "purge", "--memory", "64M"], 2, "give it more --memory, or run fewer --tasks");
    for mode in ["threads", "processes"] {
        assert_refused(&["bench", "parallel-free", "--memory", "8T", "--mode", mode], 2, "scale it with --memory");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_any_run() {
    // Runs of ten minutes: the refusal does not wait for them.
    let line = "bench page-fault --memory 512M --duration 600s --repeat 1 --tasks 1 --lru vanilla --mode threads";
    for option in ["--csv", "--will-it-scale", "--plot"] {
        let line: Vec<&str> = line.split_whitespace().chain([option, "/no/such/folder/x.csv"]).collect();
        assert_refused(&line, 2, "/no/such/folder/x.csv: cannot write");
    }
}

#[test]
fn rows_are_written_as_csv_beside_the_table() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rows.csv");
    let path = file.to_str().unwrap();
    let line = "bench page-fault --memory 512M --duration 10ms --repeat 1 --tasks 1 --mode threads --csv";
    let output = frameyard(&line.split_whitespace().chain([path]).collect::<Vec<_>>());
    assert!(stdout(&output).starts_with("threads, tasks: 1;"), "{}", stdout(&output));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("mode,tasks,zone_policy,lru_policy,memory_bytes,runs,map_bytes,"), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    // A full disk is found at the end, and the table is printed all the same.
    let output = frameyard(&["machines", "--csv", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("name "), "{}", stdout(&output));
    assert!(stderr(&output).starts_with("error: /dev/full: cannot write: "), "{}", stderr(&output));
}

#[test]
fn a_narrow_terminal_gets_fewer_columns_or_a_record_for_each_row() {
    let line = "bench page-fault --memory 512M --duration 10ms --repeat 1 --tasks 1 --mode threads --lru vanilla";
    let line: Vec<&str> = line.split_whitespace().collect();
    for (columns, says) in [("80", "(Too narrow for: "), ("40", "\nzone policy")] {
        let output = command(&line).env("COLUMNS", columns).output().unwrap();
        let text = stdout(&output);
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn the_command_of_workers_is_hidden_and_refuses_other_callers() {
    assert!(!stdout(&frameyard(&["--help"])).contains("worker "));
    for shell in ["bash", "zsh", "fish"] {
        let written = frameyard(&["completions", shell]);
        let mut words = stdout(&written).split(|letter: char| !letter.is_alphanumeric());
        assert!(words.all(|word| word != "worker"), "{shell}");
    }
    assert_refused(&["worker", "{}"], 2, "not the argument of a worker process");
    let order = r#"{"locks_are_timed":false,"task":{"number":0,"seed":1,"work":{"PageFault":{"bytes":4096,"pages":"Small","frames":"Ignored"}}}}"#;
    assert_refused(&["worker", order], 2, "was not started on a memory file");
}

/// The processes that a process has started and that are there.
fn children_of(process: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = |number: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // Behind the name, which may have spaces: state and parent.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    numbers.filter(|number| parent(number) == Some(process)).collect()
}

/// A run of ten minutes with two worker processes, and the workers.
fn long_run() -> (Child, Vec<u32>) {
    let line = "bench page-fault --memory 512M --duration 600s --repeat 1 --tasks 2 --lru vanilla --mode processes";
    let program = Command::new(env!("CARGO_BIN_EXE_frameyard"))
        .args(line.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let workers = loop {
        let workers = children_of(program.id());
        if workers.len() == 2 {
            break workers;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "workers are started");
        std::thread::sleep(Duration::from_millis(5));
    };
    (program, workers)
}

fn exists(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

#[test]
fn workers_end_with_the_program_that_started_them() {
    let (mut program, workers) = long_run();
    program.kill().unwrap();
    program.wait().unwrap();
    let begin = Instant::now();
    while workers.iter().any(|worker| exists(*worker)) {
        assert!(begin.elapsed() < Duration::from_secs(60), "workers outlive the program");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_worker_that_is_killed_ends_the_run_with_its_name() {
    let (program, workers) = long_run();
    assert!(Command::new("kill").args(["-KILL", &workers[0].to_string()]).status().unwrap().success());
    let output = program.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    let line = stderr(&output).strip_suffix('\n').unwrap();
    assert!(line.starts_with("error: worker process ") && line.ends_with(" was killed by signal 9"), "{line:?}");
    assert!(!workers.iter().any(|worker| exists(*worker)), "all workers are gone");
}
