//! Workloads on simulated machines, as a user meets them: small, with few tasks.

use crate::program::{assert_refused, frameyard, json, stderr, stdout};
use serde_json::Value;

/// The line of a simulation in which mappings are small.
fn line(workload: &str, options: &str) -> Vec<String> {
    let line = format!("sim {workload} --memory 512M {options}");
    line.split_whitespace().map(str::to_owned).collect()
}

fn words(line: &[String]) -> Vec<&str> {
    line.iter().map(String::as_str).collect()
}

/// The rows of a workload, each of whose shares of time are the whole together.
fn rows(workload: &str, options: &str) -> Vec<Value> {
    rows_with(workload, options, &[])
}

/// The same, with words that may have spaces in them.
fn rows_with(workload: &str, options: &str, more: &[&str]) -> Vec<Value> {
    let results = json(&[&words(&line(workload, options)), more, &["--json"]].concat());
    assert_eq!(results["command"], format!("sim {workload}"));
    let rows = results["rows"].as_array().unwrap().clone();
    for row in &rows {
        let share = |(key, value): (&String, &Value)| key.ends_with("_share").then(|| value.as_f64()).flatten();
        let of_time = row.as_object().unwrap().iter().skip_while(|(key, _)| *key != "counted_ns");
        let sum: f64 = of_time.filter_map(share).sum();
        assert!((sum - 1.0).abs() < 1e-4, "{sum}: {row}");
        assert!(row["pages_per_s"].as_f64().unwrap() > 0.0, "{row}");
        let [all, counted] = ["simulated_ns", "counted_ns"].map(|key| row[key].as_u64().expect(key));
        assert!(0 < counted && counted <= all, "{row}");
    }
    rows
}

fn share(row: &Value, lock: &str) -> f64 {
    row[format!("{lock}_lock_share")].as_f64().expect(lock)
}

const SMALL: &str = "--map 1M --duration 2ms --lru vanilla";

#[test]
fn a_simulated_row_is_a_native_one_with_where_time_went_behind_it() {
    let native = json(
        &["bench", "page-fault", "--memory", "512M", "--tasks", "1", "--duration", "10ms", "--repeat", "1"]
            .into_iter()
            .chain(["--mode", "threads", "--lru", "vanilla", "--json"])
            .collect::<Vec<_>>(),
    );
    let simulated = rows("page-fault", &format!("--tasks 1 --mode threads {SMALL}"));
    let keys = |row: &Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let (native, simulated) = (keys(&native["rows"][0]), keys(&simulated[0]));
    assert_eq!(simulated[..native.len()], native);
    let more = &simulated[native.len()..];
    assert_eq!(more[..5], ["list_access", "simulated_ns", "counted_ns", "zone_lock_share", "per_cpu_lock_share"]);
    for key in ["lru_lock_share", "map_lock_share", "other_socket_share", "bandwidth_share", "zero_page_share"] {
        assert!(more.contains(&key.to_owned()), "{key}: {more:?}");
    }
}

#[test]
fn page_faults_of_threads_meet_at_the_map_lock_and_those_of_processes_do_not() {
    let rows = rows("page-fault", &format!("--tasks 1,4 {SMALL}"));
    let map_lock: Vec<f64> = rows.iter().map(|row| share(row, "map")).collect();
    assert!(map_lock[1] > 0.1, "{map_lock:?}");
    assert_eq!([map_lock[0], map_lock[2], map_lock[3]], [0.0; 3]);
    let rates: Vec<f64> = rows.iter().map(|row| row["pages_per_s"].as_f64().unwrap()).collect();
    assert!(rates[3] > 2.5 * rates[2], "processes do not scale: {rates:?}");
    // Rounds are whole.
    assert!(rows.iter().all(|row| row["iterations_total"].as_u64().unwrap() % 256 == 0));
}

#[test]
fn the_zone_lock_of_an_old_kernel_is_waited_for_more_than_that_of_bits() {
    let options = "--policy vanilla-4.16,bits --lru sharded --tasks 20 --mode processes --map 1M --duration 2ms";
    let rows = rows("page-fault", options);
    let [vanilla, bits] = [&rows[0], &rows[1]].map(|row| share(row, "zone"));
    assert!(vanilla > 1.5 * bits && vanilla > 0.005, "{vanilla} {bits}");
}

#[test]
fn two_runs_are_the_same_to_the_byte_and_another_seed_is_another_run() {
    let run = |seed: u32| {
        let line = line("page-fault", &format!("--tasks 3 {SMALL} --json --seed {seed}"));
        let output = frameyard(&words(&line));
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        stdout(&output).to_owned()
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
}

/// The rows of a build.
fn builds(options: &str) -> Vec<Value> {
    builds_with(options, &[])
}

/// The same, with words that may have spaces in them.
fn builds_with(options: &str, more: &[&str]) -> Vec<Value> {
    let line = format!("sim kernbench --duration 1ms {options} --json");
    let results = json(&line.split_whitespace().chain(more.iter().copied()).collect::<Vec<_>>());
    assert_eq!((&results["command"], &results["machine"]), (&"sim kernbench".into(), &"epyc2-256".into()));
    results["rows"].as_array().unwrap().clone()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().expect(key)
}

#[test]
fn lists_sized_early_take_a_build_the_longer_the_more_cpus_share_a_zone() {
    let rows = builds("--zone-cpus 8,128 --pages 192 --compute 40000 --kernel-work 5000");
    let sizes: Vec<_> =
        rows.iter().map(|row| (&row["lists"], &row["batch"], &row["high"], &row["zone_cpus"])).collect();
    let (early, last) = ((7, 42), (63, 378));
    let expected = [("early", early, 8), ("final", last, 8), ("early", early, 128), ("final", last, 128)];
    for (row, (lists, (batch, high), cpus)) in sizes.iter().zip(expected) {
        assert_eq!(*row, (&lists.into(), &batch.into(), &high.into(), &cpus.into()));
    }
    let severities: Vec<f64> = rows.iter().map(|row| number(row, "severity")).collect();
    assert!(severities[0] < 1.1 && severities[2] > 1.5, "{severities:?}");
    assert_eq!((severities[1], severities[3]), (1.0, 1.0));
    let [alone, crowded] = [0, 2].map(|row| number(&rows[row], "zone_lock_share"));
    assert!(alone < 0.01 && crowded > 0.1, "{alone} {crowded}");
    // While many wait, tasks that compute have more of their cores.
    assert!(number(&rows[2], "user_ns") < number(&rows[3], "user_ns"));
}

#[test]
fn lists_of_larger_zones_have_larger_batches_up_to_a_size() {
    let rows =
        builds("--zone-cpus 8 --zone-size 128M,256M,1G,2G --lists final --pages 64 --compute 4000 --kernel-work 0");
    let batches: Vec<f64> = rows.iter().map(|row| number(row, "batch")).collect();
    assert_eq!(batches, [7.0, 15.0, 63.0, 63.0]);
    for row in &rows {
        let (user, all) = (number(row, "user_ns"), number(row, "user_ns") + number(row, "system_ns"));
        assert!((number(row, "system_share") - (1.0 - user / all)).abs() < 1e-4, "{row}");
        // All CPUs run jobs all the time: 16 of them.
        assert!((number(row, "jobs_per_s") * all / 16e9 - 1.0).abs() < 1e-3, "{row}");
    }
}

#[test]
fn a_build_with_several_seeds_has_means_and_deviations() {
    let options = "--zone-cpus 8 --lists final --pages 64 --compute 4000 --kernel-work 0";
    let [one, two] = [1, 2].map(|seed| builds(&format!("{options} --seed {seed}")).remove(0));
    assert!(one["system_stddev_pct"].is_null());
    let both = builds(&format!("{options} --seeds 2")).remove(0);
    let mean = f64::midpoint(number(&one, "system_ns"), number(&two, "system_ns"));
    assert!((number(&both, "system_ns") - mean).abs() <= 1.0, "{both}");
    assert!(number(&both, "system_stddev_pct") > 0.0 && both["seeds"] == 2, "{both}");
}

#[test]
fn a_build_counts_drains_of_a_full_batch_by_type_where_the_policy_does() {
    let options =
        "--zone-cpus 8 --lists final --pages 512 --compute 4000 --kernel-work 0 --policy vanilla,cluster-bulk";
    let rows = builds(options);
    assert!(rows[0]["drains"].is_null() && rows[0]["full_batch_drains_share"].is_null());
    let row = &rows[1];
    let by_type = ["unmovable", "movable", "reclaimable"].map(|name| number(row, &format!("full_batch_drains_{name}")));
    let share = by_type.iter().sum::<f64>() / number(row, "drains");
    assert!((number(row, "full_batch_drains_share") - share).abs() < 1e-4 && share > 0.5, "{row}");
    // The pages of processes are movable, their page tables are not.
    assert!(by_type[1] > by_type[0] && by_type[2] == 0.0, "{row}");
}

#[test]
fn a_build_writes_a_profile_for_each_row() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("build.folded");
    let options = "--zone-cpus 8 --pages 64 --compute 4000 --kernel-work 0";
    let rows = builds_with(options, &["--profile", file.to_str().unwrap()]);
    assert_eq!(rows.len(), 2);
    for row in &rows {
        let (lists, mib) = (row["lists"].as_str().unwrap(), row["zone_bytes"].as_u64().unwrap() >> 20);
        let text =
            std::fs::read_to_string(file.with_file_name(format!("build-{lists}-8-{mib}M-vanilla-vanilla.folded")));
        let lines: Vec<String> = text.unwrap().lines().map(str::to_owned).collect();
        let time = |stack: &str| -> f64 {
            let of = lines.iter().filter_map(|line| line.rsplit_once(' ')).filter(|(known, _)| known.contains(stack));
            of.map(|(_, ns)| ns.parse::<f64>().unwrap()).sum()
        };
        let share = 1.0 - time("compute") / time("");
        assert!((share - number(row, "system_share")).abs() < 0.01, "{share} {row}");
    }
}

#[test]
fn an_exit_is_shared_by_workers_and_exits_of_processes_go_side_by_side() {
    let rows = rows("parallel-free", "--tasks 1,4 --lru vanilla");
    let times: Vec<u64> = rows.iter().map(|row| row["exit_ns"].as_u64().unwrap()).collect();
    assert!(2 * times[1] < times[0] && 2 * times[3] < times[2], "{times:?}");
    assert!(rows.iter().all(|row| row["mapped_bytes"].as_u64().unwrap() > 380 << 20));
}

#[test]
fn an_exit_of_huge_pages_frees_whole_blocks_and_is_much_shorter() {
    let options = "--tasks 4 --mode threads --lru vanilla";
    let [small, huge] = ["", "--huge"].map(|pages| rows("parallel-free", &format!("{options} {pages}"))[0].clone());
    let of = |row: &Value, key: &str| row[key].as_u64().expect(key);
    assert_eq!((of(&small, "huge_pages"), 512 * of(&huge, "huge_pages")), (0, of(&huge, "pages")));
    assert!(20 * of(&huge, "exit_ns") < of(&small, "exit_ns"), "{small} {huge}");
}

#[test]
fn purgers_have_cpus_of_their_own() {
    let rows = rows("purge", "--tasks 2 --duration 4ms --lru vanilla");
    let purgers: Vec<&Value> = rows.iter().map(|row| &row["purgers"]).collect();
    assert_eq!(purgers, [1, 2]);
    assert!(rows.iter().all(|row| row["freed_elsewhere_share"] == 1.0));
}

#[test]
fn larger_lists_take_work_areas_past_the_zone_lock() {
    let options = "--tasks 8 --mode processes --policy vanilla-4.17 --lru vanilla --work-area 2M --duration 10ms";
    let rows = rows("decision-support", &format!("{options} --pcp-sizing early,fraction:8"));
    let of = |key: &str| [0, 1].map(|row: usize| rows[row][key].as_f64().expect(key));
    assert_eq!(rows.iter().map(|row| row["pcp_sizing"].as_str().unwrap()).collect::<Vec<_>>(), ["early", "fraction:8"]);
    let (locks, waits) = (of("allocated_per_zone_lock"), of("zone_lock_wait_ns_per_page"));
    assert!(locks[1] > 2.0 * locks[0] && waits[1] < waits[0], "{locks:?} {waits:?}");
    let queries = of("queries");
    assert!(queries.iter().all(|queries| *queries >= 8.0), "each task ends a query: {queries:?}");
    assert!(of("pgsteal_direct").iter().all(|pages| *pages > 0.0));
}

#[test]
fn tasks_with_huge_pages_run_beside_others_in_memory_that_was_full() {
    let rows = rows("order0-thp", "--tasks 1 --mode processes --map 4M --duration 2ms --lru vanilla");
    let kinds: Vec<&Value> = rows.iter().map(|row| &row["task_kind"]).collect();
    assert_eq!(kinds, ["huge", "small"]);
    assert!(rows[0]["thp_fault_alloc"].as_u64().unwrap() > 0);
}

#[test]
fn huge_blocks_are_got_out_of_full_memory_whose_pages_are_moved_at_a_cost() {
    let run = || {
        let line =
            "sim highalloc --memory 256M --tasks 1 --mode processes --lru vanilla --delay 20us --settle 1ms --json";
        let output = frameyard(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        stdout(&output).to_owned()
    };
    let first = run();
    assert_eq!(first, run());
    let results: Value = serde_json::from_str(&first).unwrap();
    let row = &results["rows"][0];
    let number = |key: &str| row[key].as_f64().expect(key);
    assert!((0.1..=1.0).contains(&number("high_order_success")), "{row}");
    assert!(number("compact_migrated") > 0.0 && number("copy_page_share") > 0.0, "{row}");
    // All files and blocks, and their contents.
    assert!(number("checked_pages") > 50_000.0, "{row}");
    // Requests and what lies between them: a delay each.
    assert!(number("elapsed_ns") >= 20_000.0 * number("high_order_attempts"), "{row}");
}

#[test]
fn fragmented_memory_becomes_whole_under_bits_and_not_under_vanilla() {
    let run = || {
        let line =
            "sim frag --memory 256M --pcp-sizing fixed:128 --tasks 4 --iterations 100 --policy vanilla,bits --json";
        let output = frameyard(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        stdout(&output).to_owned()
    };
    let first = run();
    assert_eq!(first, run());
    let results: Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&results["command"], &results["machine"]), (&"sim frag".into(), &"skylake-112".into()));
    let rows = results["rows"].as_array().unwrap();
    let iterations: Vec<_> = rows.iter().map(|row| row["iteration"].as_u64().unwrap()).collect();
    assert_eq!(iterations, [[0, 10, 40, 80, 100]; 2].concat());
    let whole = |row: &Value| number(row, "whole_pageblocks_percent");
    assert!(rows[..5].iter().all(|row| whole(row) < 5.0), "{rows:?}");
    assert!((30.0..50.0).contains(&whole(&rows[9])), "{}", rows[9]);
    assert!(rows[1..5].iter().all(|row| number(row, "pair_ns") > 1.0), "{rows:?}");
}

#[test]
fn a_simulated_fragmentation_is_refused_with_a_correct_value() {
    for (options, says) in [
        ("--memory 4G --tasks 113", "113 tasks are more than the 112 CPUs of skylake-112"),
        ("--memory 1G --tasks 112", "--tasks 112: give the machine at least 16M of --memory for each task"),
        ("--free 0", "from 1 to 90"),
        ("--free 100", "from 1 to 90"),
        ("--iterations 0", "from 1"),
        ("--machine server-1t", "server-1t"),
    ] {
        let line = format!("sim frag {options}");
        assert_refused(&line.split_whitespace().collect::<Vec<_>>(), 2, says);
    }
}

#[test]
fn simulated_spills_are_served_by_the_other_socket() {
    let run = || {
        let line =
            "sim alloc --memory 512M --kind repeat,spill,cold --order 0,2 --tasks 1,28 --policy vanilla,bits --json";
        let output = frameyard(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        stdout(&output).to_owned()
    };
    let first = run();
    assert_eq!(first, run());
    let results: Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&results["command"], &results["machine"]), (&"sim alloc".into(), &"skylake-112".into()));
    let rows = results["rows"].as_array().unwrap();
    let keys = |row: &Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let (home, rest) = rows.split_at(8);
    let (spilled, cold) = rest.split_at(8);
    assert_eq!((spilled.len(), cold.len()), (8, 8));
    for (home, spilled) in home.iter().zip(spilled) {
        assert_eq!(
            (keys(spilled), &home["kind"], &spilled["kind"]),
            (keys(&cold[0]), &"repeat".into(), &"spill".into())
        );
        for same in ["order", "tasks", "policy", "ops"] {
            assert_eq!(home[same], spilled[same]);
        }
        assert_eq!((&home["spilled_percent"], &spilled["spilled_percent"]), (&0.0.into(), &100.0.into()));
        // Lists serve the pair there, too. With many tasks in little memory, lists at home are so short that they cost as much as a search.
        assert!(home["tasks"] != 1 || number(spilled, "get_ns") < 3.0 * number(home, "get_ns"), "{home} {spilled}");
    }
}

#[test]
fn blocks_cost_28_simulated_cpus_little_more_than_one() {
    let line = "sim alloc --memory 2G --kind bulk,random --order 0,4 --tasks 1,28 --policy bits --json";
    let results = json(&line.split_whitespace().collect::<Vec<_>>());
    let rows = results["rows"].as_array().unwrap();
    for (kind, order, key, times) in
        [("bulk", 0, "get_ns", 3.0), ("bulk", 4, "get_ns", 15.0), ("random", 0, "put_ns", 10.0)]
    {
        let of: Vec<_> = rows.iter().filter(|row| row["kind"] == kind && row["order"] == order).collect();
        let [one, many] = of[..] else { panic!("{kind} {order}: {} rows", of.len()) };
        assert!(number(many, key) < times * number(one, key), "{one} {many}");
    }
}

#[test]
fn a_simulated_alloc_is_refused_with_a_correct_value() {
    for (options, says) in [
        ("--tasks 113", "113 tasks are more than the 112 CPUs of skylake-112"),
        ("--order 11", "--order 11: the machine's blocks go up to order 10"),
        ("--order 9 --tasks 112", "112 tasks need 7168 blocks; give the machine at least 14G of --memory"),
        (
            "--kind repeat,spill --order 0 --tasks 29",
            "--kind spill: the tasks fill node 0 zone Normal and node 1 zone Normal",
        ),
        (
            "--kind spill --order 0 --tasks 1 --machine desktop-8",
            "choose a machine with a further node that no task runs on",
        ),
        ("--kind full", "possible values: repeat, spill"),
    ] {
        let line = format!("sim alloc {options}");
        assert_refused(&line.split_whitespace().collect::<Vec<_>>(), 2, says);
    }
}

#[test]
fn a_machine_may_be_a_file() {
    let built_in = include_str!("../../../frameyard-machines/machines/broadwell-40.toml");
    let own = built_in.replace("broadwell-40", "two-cores").replace("cores_per_socket = 10", "cores_per_socket = 1");
    let own = own.replace("cores_per_cache = 10", "cores_per_cache = 1");
    let own = own.replace("\"0-9,20-29\"", "\"0,2\"").replace("\"10-19,30-39\"", "\"1,3\"");
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-cores.toml");
    std::fs::write(&file, own).unwrap();
    let file = file.to_str().unwrap();
    let line = line("page-fault", &format!("--tasks 4 --mode processes {SMALL}"));
    let results = json(&[&words(&line)[..], &["--json", "--machine", file]].concat());
    assert_eq!(results["machine"], "two-cores");
    assert_refused(&["sim", "page-fault", "--tasks", "5", "--machine", file], 2, "more than the 4 CPUs");
}

#[test]
fn a_profile_has_the_time_of_all_tasks_by_what_they_did() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim.folded");
    let name = file.to_str().unwrap();
    let row = &rows_with("page-fault", &format!("--tasks 2 --mode processes {SMALL}"), &["--profile", name])[0];
    let text = std::fs::read_to_string(&file).unwrap();
    let lines = text.lines().map(|line| line.rsplit_once(' ').expect("a stack and a number"));
    let lines: Vec<(&str, f64)> = lines.map(|(stack, ns)| (stack, ns.parse().unwrap())).collect();
    for stack in ["fault;exception", "fault;zero-page"] {
        assert!(lines.iter().any(|(known, ns)| *known == stack && *ns > 0.0), "{text}");
    }
    let (sum, counted) = (lines.iter().map(|(_, ns)| ns).sum::<f64>(), row["counted_ns"].as_f64().unwrap());
    // Lines lose parts of nanoseconds, and CPUs are not at the same time exactly.
    assert!((sum / (2.0 * counted) - 1.0).abs() < 0.01, "{sum} {counted}");
}

#[test]
fn what_cannot_be_simulated_is_refused_with_a_reason() {
    assert_refused(&["sim", "page-fault", "--tasks", "1..41"], 2, "41 tasks are more than the 40 CPUs of broadwell-40");
    assert_refused(&["sim", "purge", "--tasks", "32", "--mode", "processes"], 2, "take 64 CPUs");
    assert_refused(&["sim", "kernbench", "--zone-cpus", "20"], 2, "write multiples of 8 up to 128");
    assert_refused(&["sim", "kernbench", "--zone-cpus", "512"], 2, "write multiples of 8 up to 128");
    assert_refused(&["sim", "kernbench", "--zone-size", "128M"], 2, "give it more --memory");
    assert_refused(&["sim", "page-fault", "--machine", "vax"], 2, "unknown machine 'vax'");
    assert_refused(&["sim", "page-fault", "--machine", "server-1t"], 2, "no [simulation] section");
    assert_refused(&["sim", "page-fault", "--machine", "no/such.toml"], 2, "no/such.toml: ");
    assert_refused(&["sim", "page-fault", "--memory", "256M", "--tasks", "10"], 2, "give it more --memory");
    assert_refused(&["sim", "page-fault", "--memory", "4P"], 2, "give the machine less --memory");
    assert_refused(&["sim", "highalloc", "--tasks", "36"], 2, "take 41 CPUs");
    assert_refused(&["sim", "highalloc", "--memory", "1T", "--tasks", "1"], 2, "give the machine less --memory");
}

#[test]
fn text_shows_the_rows_and_then_where_time_went() {
    let output = frameyard(&words(&line("page-fault", &format!("--tasks 2 --mode threads {SMALL}"))));
    let text = stdout(&output);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let [rows, went] =
        ["zone policy  LRU vanilla", "Where the time of CPUs with a task went"].map(|part| text.find(part));
    assert!(rows.is_some() && rows < went, "{text}");
}

#[test]
fn deferred_init_reports_predicted_and_published_times() {
    let results = json(&["sim", "deferred-init", "--machine", "zen-7551-guest4,haswell-2699v3-guest4", "--json"]);
    let rows = results["rows"].as_array().unwrap();
    let machines: Vec<&str> = rows.iter().map(|row| row["machine"].as_str().unwrap()).collect();
    assert_eq!(machines, [["zen-7551-guest4"; 4], ["haswell-2699v3-guest4"; 4]].concat(), "times with 1 to 4 threads");
    for row in rows {
        let [predicted, published] = ["predicted_ns", "published_ns"].map(|key| row[key].as_f64().expect(key));
        let error = row["error"].as_f64().unwrap();
        assert!((predicted / published - 1.0 - error).abs() < 1e-6 && error.abs() < 0.3, "{row}");
        assert_eq!(row["calibrated"], false);
        let shares = ["instructions_share", "lines_share", "bandwidth_share", "locks_share"];
        let sum: f64 = shares.iter().map(|key| row[*key].as_f64().expect(key)).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{row}");
    }
    let other = ["--machine", "haswell-2699v3", "--threads", "1,4", "--initialiser", "stream", "--json"];
    let results = json(&[&["sim", "deferred-init"], &other[..]].concat());
    let rows = results["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["published_ns"].is_null() && row["calibrated"] == false), "{rows:?}");
    let times: Vec<f64> = rows.iter().map(|row| row["predicted_ns"].as_f64().unwrap()).collect();
    assert!((times[0] / times[1] - 4.0).abs() < 0.2, "{times:?}");
    let text = frameyard(&["sim", "deferred-init", "--machine", "zen-7551-guest4"]);
    assert!(stdout(&text).contains("error %"), "{text:?}");
}
