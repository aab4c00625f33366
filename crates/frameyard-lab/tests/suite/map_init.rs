//! How the memory map is initialised, as a user chooses it and reads of it.

use std::fs;
use std::path::Path;

use crate::program::{assert_refused, frameyard, has_too_few_addresses, json, stderr, stdout};
use serde_json::Value;

fn log(arguments: &[&str]) -> String {
    let output = frameyard(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output).to_owned()
}

const DESKTOP: [&str; 6] = ["boot", "--machine", "desktop-8", "--memory", "4G", "--phantom"];

fn desktop(options: &[&'static str]) -> Vec<&'static str> {
    [&DESKTOP[..], options].concat()
}

#[test]
fn boot_defers_the_map_and_show_does_not() {
    let init = &json(&desktop(&["--json"]))["init"];
    let keys: Vec<&str> = init.as_object().unwrap().keys().map(String::as_str).collect();
    let promised = [
        "mode",
        "content",
        "initialiser",
        "granularity",
        "threads",
        "job_align_bytes",
        "job_min_chunk_bytes",
        "pcp_reset",
        "create_ns",
        "finish_ns",
    ];
    assert_eq!(keys, promised);
    assert_eq!(
        (&init["mode"], &init["content"], &init["initialiser"]),
        (&"deferred".into(), &"zero".into(), &"none".into())
    );
    assert_eq!((&init["granularity"], &init["pcp_reset"]), (&"sections".into(), &"on".into()));
    assert!(init["create_ns"].as_u64().unwrap() > 0 && init["finish_ns"].is_u64());
    assert!(init["threads"].is_null() && init["job_align_bytes"].is_null());
    for mode in ["eager", "deferred", "lazy"] {
        log(&["show", "buddyinfo", "--machine", "desktop-8", "--phantom", "--init", mode]);
    }
    log(&[
        "bench", "alloc", "--memory", "64M", "--kind", "repeat", "--order", "0", "--repeat", "1", "--init", "deferred",
    ]);
}

#[test]
fn totals_name_the_chosen_options() {
    let options = [
        "--init",
        "eager",
        "--initialiser",
        "none",
        "--granularity",
        "ranges",
        "--threads",
        "3",
        "--job-align",
        "8M",
        "--job-min-chunk",
        "1G",
        "--json",
    ];
    let object = json(&desktop(&options));
    let init = &object["init"];
    assert_eq!((&init["mode"], &init["granularity"]), (&"eager".into(), &"ranges".into()));
    assert_eq!((&init["threads"], &init["job_align_bytes"]), (&3.into(), &(8 << 20).into()));
    assert_eq!(init["job_min_chunk_bytes"], 1 << 30);
    assert!(init["finish_ns"].is_null(), "nothing was deferred");
    assert!(object["uninitialised_pages"].is_u64() && object["nodes_initialised"].is_array());
}

#[test]
fn the_smallest_chunk_limits_threads_apart_from_the_alignment() {
    let threads = |chunk: &'static str| {
        let options = ["--granularity", "ranges", "--job-align", "4M", "--job-min-chunk", chunk, "--json"];
        let object = json(&desktop(&options));
        let nodes = object["nodes_initialised"].as_array().unwrap();
        nodes.iter().filter_map(|node| node["threads"].as_u64()).max().unwrap()
    };
    let (small, large) = (threads("4M"), threads("8G"));
    // On a host with one CPU no job has more than one thread.
    assert!(large == 1 && small >= large, "{small} {large}");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(cpus == 1 || small > 1, "{small} threads on {cpus} CPUs");
}

/// What a boot log says of zones, nodes, holes and zonelists, without time stamps and without page totals: a kernel
/// has taken reservations off those already.
fn told(log: &str) -> Vec<String> {
    let words = [
        "Zone ranges:",
        "  DMA  ",
        "  DMA32 ",
        "  Normal ",
        "  Device ",
        "Movable zone start",
        "Early memory node ranges",
        "  node ",
        "Initmem setup node ",
        "On node ",
        "Built ",
    ];
    let bare = |line: &str| {
        let said = line.strip_prefix('[').and_then(|line| line.split_once("] ")).map_or(line, |(_, said)| said);
        said.split("Total pages:").next().unwrap_or_default().to_owned()
    };
    log.lines().map(bare).filter(|line| words.iter().any(|word| line.starts_with(word))).collect()
}

#[test]
fn a_boot_log_reads_as_that_of_the_machines_own_kernel() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures");
    let mut captures = 0;
    for capture in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        captures += 1;
        let kernels = told(&fs::read_to_string(capture.join("dmesg")).unwrap());
        assert!(kernels.len() >= 13, "{kernels:?}");
        for file in ["dmesg", "iomem"] {
            // What lies on which node is not in /proc/iomem.
            if file == "iomem" && kernels.iter().any(|line| line.starts_with("Initmem setup node 1")) {
                continue;
            }
            let machine = capture.join(file);
            let ours = told(&log(&["boot", "--phantom", "--machine", machine.to_str().unwrap()]));
            assert_eq!(ours, kernels, "{}", machine.display());
        }
    }
    assert!(captures >= 5);
}

#[test]
fn zone_ranges_cover_holes_too() {
    let line = ["boot", "--machine", "skylake-4s", "--memory", "8G", "--phantom", "--movable", "50%"];
    let text = log(&line);
    // Node 0 has 2 GiB, and the memory of the last node is movable alone.
    for said in [
        "  DMA32    [mem 0x0000000001000000-0x00000000ffffffff]",
        "  Normal   [mem 0x0000000100000000-0x000000027fffffff]",
        "  Node 3: 0x0000000240000000",
    ] {
        assert!(text.lines().any(|line| line == said), "{said}: {text}");
    }
    let object = json(&[&line[..], &["--json"]].concat());
    assert_eq!(object["zone_ranges"][2]["end"], 0x2_8000_0000_u64);
    assert_eq!(object["movable_starts"][2], serde_json::json!({ "node": 3, "start": 0x2_4000_0000_u64 }));
}

#[test]
fn json_has_the_contents_of_the_log() {
    let object = json(&["boot", "--machine", "desktop-8", "--phantom", "--json"]);
    let rows = |key: &str| object[key].as_array().unwrap_or_else(|| panic!("no {key}")).clone();
    let keys = |row: &Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&rows("zone_ranges")[0]), ["zone", "start", "end"]);
    assert_eq!(keys(&rows("ranges")[0]), ["node", "start", "end"]);
    assert_eq!(rows("holes")[0], serde_json::json!({ "node": 0, "zone": "DMA", "pages": 1 }));
    assert!(object.get("pcp").is_none(), "the per-CPU lists are optional");
}

#[test]
fn lists_are_counted_for_each_cpu_and_zone() {
    let object = json(&desktop(&["--pcp-reset", "on", "--json"]));
    assert_eq!((&object["init"]["mode"], &object["init"]["pcp_reset"]), (&"deferred".into(), &"on".into()));
    let rows = object["pcp"].as_array().unwrap();
    let zones = object["rows"].as_array().unwrap().len() as u64;
    for field in ["batch", "high"] {
        let lists: u64 =
            rows.iter().filter(|row| row["field"] == field).map(|row| row["pagesets"].as_u64().unwrap()).sum();
        assert_eq!(lists, 8 * zones, "{field}");
    }
    let order: Vec<(&str, u64)> =
        rows.iter().map(|row| (row["field"].as_str().unwrap(), row["value"].as_u64().unwrap())).collect();
    assert!(order.is_sorted(), "{order:?}");
    let text = log(&desktop(&["--pcp-reset", "off"]));
    assert!(text.contains("Per-CPU lists:") && text.contains("pagesets"), "{text}");
}

/// The published counts, with and without sizing the lists again.
fn published(when: &str) -> Vec<(String, u64, u64)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/published/pcp-epyc2-256cpu.csv");
    let text = fs::read_to_string(file).unwrap();
    let rows = text.lines().skip(1).filter_map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let [of, field, value, pagesets] = cells[..] else { panic!("{line}") };
        (of == when).then(|| (field.to_owned(), value.parse().unwrap(), pagesets.parse().unwrap()))
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable();
    assert!(rows.len() >= 4);
    rows
}

#[test]
fn lists_of_the_large_machine_have_the_published_sizes_with_and_without_the_reset() {
    if has_too_few_addresses(16) {
        return;
    }
    for (reset, when) in [("on", "after"), ("off", "before")] {
        let object = json(&["boot", "--machine", "epyc2-256", "--phantom", "--pcp-reset", reset, "--json"]);
        let rows = object["pcp"].as_array().unwrap().iter();
        let counted = rows.map(|row| {
            let number = |key: &str| row[key].as_u64().unwrap();
            (row["field"].as_str().unwrap().to_owned(), number("value"), number("pagesets"))
        });
        assert_eq!(counted.collect::<Vec<_>>(), published(when), "--pcp-reset {reset}");
    }
}

#[test]
fn contradictory_options_are_refused_with_a_correction() {
    let refused = |options: &[&'static str], says: &str| assert_refused(&desktop(options), 2, says);
    refused(&["--pcp-reset", "off", "--init", "eager"], "leave --init out");
    refused(&["--pcp-reset", "off", "--init", "lazy"], "leave --init out");
    refused(&["--pcp-reset", "on", "--pcp-sizing", "scaled"], "leave --pcp-sizing out");
    refused(&["--pcp-reset", "maybe"], "possible values: off, on");
    refused(&["--initialiser", "none", "--content", "kernel"], "choose two-pass");
    refused(&["--threads", "0"], "from 1");
    refused(&["--threads", "9"], "from 1 to 8");
    refused(&["--job-align", "3M"], "power of two");
    refused(&["--job-align", "2M"], "maximum-order block (4M)");
    log(&desktop(&["--pcp-reset", "on", "--init", "deferred", "--pcp-sizing", "classic"]));
    assert_refused(&["show", "buddyinfo", "--machine", "desktop-8", "--phantom", "--threads", "9"], 2, "from 1 to 8");
}

#[test]
fn a_large_map_is_written_only_in_full() {
    let server =
        |command: &[&'static str]| [command, &["--machine", "server-1t", "--phantom", "--content", "kernel"]].concat();
    for says in ["server-1t: its memory map would be written in full, 16 GiB", "--full"] {
        assert_refused(&server(&["boot"]), 2, says);
        assert_refused(&server(&["show", "buddyinfo"]), 2, says);
    }
}

#[test]
fn faulting_in_the_map_first_is_timed_separately() {
    let without = json(&desktop(&["--json"]));
    assert!(without["map_fault_ns"].is_null());
    let line = "boot --machine desktop-8 --memory 1G --phantom --content kernel --prefault-map --json";
    let booted = json(&line.split(' ').collect::<Vec<_>>());
    assert!(booted["map_fault_ns"].as_u64().unwrap() > 0);
    assert_eq!(booted["map_resident_bytes"], booted["map_bytes"]);
    assert!(booted["boot_system_ns"].is_u64() && booted["boot_faults"].as_u64().unwrap() > 0);
    assert_refused(&["boot", "--machine", "server-1t", "--phantom", "--prefault-map"], 2, "--full");
}
