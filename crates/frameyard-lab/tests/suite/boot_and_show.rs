//! `boot`, `show` and `layout` as a user meets them: what boots on each machine, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{assert_refused, frameyard, has_too_few_addresses, json, stderr, stdout};
use serde_json::Value;

const PROC_FILES: [&str; 4] = ["buddyinfo", "pagetypeinfo", "zoneinfo", "vmstat"];

/// What a command prints, which must succeed.
fn printed(arguments: &[&str]) -> String {
    let output = frameyard(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output).to_owned()
}

/// The name of a file with that text.
fn file(name: &str, text: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("boot");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn sum(object: &Value, key: &str) -> u64 {
    object["rows"].as_array().unwrap().iter().map(|row| number(&row[key])).sum()
}

fn zones(object: &Value) -> Vec<(u64, &str)> {
    let rows = object["rows"].as_array().unwrap().iter();
    rows.map(|row| (number(&row["node"]), row["zone"].as_str().unwrap())).collect()
}

#[test]
fn the_host_boots_by_default() {
    let object = json(&["boot", "--json"]);
    assert_eq!((&object["command"], &object["machine"]), (&"boot".into(), &"host".into()));
    let text = printed(&["boot", "--host"]);
    for line in
        ["Zone ranges:", "Early memory node ranges", "Memory map: ", "Memory map and control region: ", "Booted in "]
    {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn a_small_host_has_real_frames_that_stay_untouched() {
    let object = json(&["boot", "--host", "--memory", "256M", "--json"]);
    assert_eq!((&object["backing"], &object["frames_resident_bytes"]), (&"anonymous".into(), &0.into()));
    assert_eq!(sum(&object, "free"), sum(&object, "managed"));
    assert!(object["prefault_ns"].is_null());
}

#[test]
fn prefaulted_frames_are_resident() {
    let object = json(&["boot", "--machine", "desktop-8", "--memory", "64M", "--prefault", "--json"]);
    let managed_bytes = sum(&object, "managed") * 4096;
    assert!(number(&object["frames_resident_bytes"]) >= managed_bytes, "{object}");
    assert!(number(&object["prefault_ns"]) > 0);
    assert_refused(&["boot", "--machine", "desktop-8", "--phantom", "--prefault"], 2, "cannot be used with");
}

#[test]
fn boot_has_a_row_for_each_zone() {
    let object = json(&["boot", "--machine", "skylake-8167m", "--memory", "64G", "--phantom", "--json"]);
    let keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    for key in ["map_bytes", "boot_ns", "control_bytes", "resident_bytes"] {
        assert!(keys.contains(&key), "{keys:?}");
        assert!(number(&object[key]) > 0, "{key}");
    }
    assert_eq!(object["backing"], "phantom");
    assert_eq!(zones(&object), [(0, "DMA"), (0, "DMA32"), (0, "Normal"), (1, "Normal")]);
    for row in object["rows"].as_array().unwrap() {
        let keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["node", "zone", "spanned", "present", "managed", "free", "batch", "high"]);
        assert!(number(&row["spanned"]) >= number(&row["present"]) && number(&row["high"]) >= number(&row["batch"]));
    }
    // 64 GiB less the pages that the first MiB hides.
    let pages = sum(&object, "present");
    assert!((64 << 18) - 256 < pages && pages < 64 << 18, "{pages}");
}

#[test]
fn boot_touches_one_host_page_of_the_map_for_each_maximum_order_block() {
    let object = json(&["boot", "--machine", "server-1t", "--memory", "32G", "--phantom", "--json"]);
    let (blocks, low_memory) = (32 << 30 >> 22, 16);
    let pages = number(&object["map_resident_bytes"]) / 4096;
    assert!(pages <= blocks + low_memory, "{pages} host pages for {blocks} blocks");
    assert_eq!(number(&object["map_bytes"]) % (2 << 20), 0);
}

#[test]
fn every_built_in_machine_boots_scaled() {
    let list = json(&["machines", "--json"]);
    let machines = list["rows"].as_array().unwrap();
    assert!(machines.len() >= 14);
    for machine in machines {
        let name = machine["name"].as_str().unwrap();
        let object = json(&["boot", "--machine", name, "--memory", "4G", "--phantom", "--json"]);
        assert_eq!(object["machine"], name);
        assert_eq!((&object["nodes"], &object["cpus"]), (&machine["nodes"], &machine["cpus"]), "{name}");
        let bytes = sum(&object, "managed") * number(&machine["page_bytes"]);
        assert!((4 << 30) - (2 << 20) < bytes && bytes <= 4 << 30, "{name}: {bytes}");
        assert_eq!(sum(&object, "free"), sum(&object, "managed"), "{name}");
    }
}

#[test]
fn reserved_memory_is_present_and_not_managed_and_contiguous_areas_get_their_type() {
    let text = "
[[node]]
memory = [{ start = 0x100000000, size = \"256M\" }]
[[reserved]]
start = 0x100000000
size = \"8M\"
[[cma]]
start = 0x104000000
size = \"16M\"
";
    let machine = file("areas.toml", text);
    let text = format!("topology = {{ sockets = 1, cores_per_socket = 2, threads_per_core = 1 }}\n{text}");
    fs::write(&machine, text).unwrap();
    let object = json(&["boot", "--machine", &machine, "--phantom", "--json"]);
    assert_eq!((sum(&object, "present"), sum(&object, "managed")), (256 << 8, 248 << 8));
    let types = printed(&["show", "pagetypeinfo", "--machine", &machine, "--phantom"]);
    let heading =
        "Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic          CMA      Isolate";
    assert!(types.contains(heading), "{types}");
    let rows = json(&["show", "pagetypeinfo", "--machine", &machine, "--phantom", "--json"]);
    let cma = rows["rows"].as_array().unwrap().iter().find(|row| row["type"] == "CMA").unwrap();
    assert_eq!((&cma["pageblocks"], &cma["order_10"]), (&8.into(), &4.into()));
    let log = printed(&["boot", "--machine", &machine, "--phantom"]);
    assert!(log.contains("cma: Reserved 16 MiB at 0x0000000104000000 on node 0\n"), "{log}");
}

#[test]
fn areas_of_a_size_are_placed_on_their_nodes_and_booted() {
    let text = "
topology = { sockets = 2, cores_per_socket = 1, threads_per_core = 1 }
cma = [{ size = \"15M\" }, { size = \"8M\", node = 1 }, { start = 0x100000000, size = \"4M\", node = 0 }]
[[node]]
memory = [{ start = 0x100000000, size = \"256M\" }]
[[node]]
memory = [{ start = 0x200000000, size = \"256M\" }]
";
    let machine = file("placed-areas.toml", text);
    let shown = printed(&["machines", "show", &machine]);
    for line in [
        "{ start = 0x100000000, end = 0x100400000 }, # 4M",
        "{ start = 0x10f000000, end = 0x110000000 }, # 16M",
        "{ start = 0x20f800000, end = 0x210000000 }, # 8M",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let log = printed(&["boot", "--machine", &machine, "--phantom", "--init", "lazy"]);
    assert!(log.contains("cma: Reserved 8 MiB at 0x000000020f800000 on node 1\n"), "{log}");
    assert!(log.contains(" 28672K cma-reserved)"), "{log}");
}

#[test]
fn nodes_without_memory_or_cpus_may_stand_anywhere() {
    let text = "
cpus = [{ socket = 0, core = 0 }, { socket = 1, core = 0 }]
[[node]]
memory = []
[[node]]
memory = [{ start = 0x100000000, size = \"256M\" }]
[[node]]
cpus = \"0-1\"
memory = [{ start = 0x200000000, size = \"512M\" }]
[[node]]
memory = []
";
    let machine = file("nodes.toml", text);
    for mode in ["eager", "deferred", "lazy"] {
        let object = json(&["boot", "--machine", &machine, "--phantom", "--init", mode, "--json"]);
        assert_eq!(zones(&object), [(1, "Normal"), (2, "Normal")], "{mode}");
        assert_eq!(sum(&object, "free"), (256 + 512) << 8, "{mode}");
    }
}

#[test]
fn movable_memory_and_list_sizes_follow_their_options() {
    let line =
        ["boot", "--machine", "desktop-8", "--phantom", "--json", "--movable", "50%", "--pcp-sizing", "fixed:64"];
    let object = json(&line);
    let rows = object["rows"].as_array().unwrap();
    let movable = rows.iter().find(|row| row["zone"] == "Movable").expect("a Movable zone");
    let (pages, total) = (number(&movable["managed"]), sum(&object, "managed"));
    assert!(total / 5 < pages && pages <= total / 2, "{pages} of {total}");
    assert!(rows.iter().all(|row| row["high"] == 64 && row["batch"] == 16), "{rows:?}");
}

#[test]
fn poisoned_frames_need_memory() {
    let text = printed(&["boot", "--machine", "desktop-8", "--memory", "32M", "--poison"]);
    assert!(text.contains("anonymous frames"), "{text}");
    assert_refused(&["boot", "--machine", "desktop-8", "--phantom", "--poison"], 2, "poisoning needs frames");
}

/// A capture's folder, and the kernel that made it.
fn captures() -> Vec<(PathBuf, &'static str)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures");
    let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let folders = entries.filter(|path| path.is_dir()).map(|path| {
        let old = path.file_name().unwrap().to_str().unwrap().contains("-61-");
        (path, if old { "6.1" } else { "6.12" })
    });
    let folders: Vec<_> = folders.collect();
    assert!(folders.len() >= 5, "the captures are incomplete");
    folders
}

/// Shows a file of a captured machine, from its boot messages.
fn shown(capture: &Path, name: &str, format: &str) -> String {
    let log = capture.join("dmesg");
    let recommended = ["--huge-page-minimum", "recommended"];
    let line = [&["show", name, "--machine", log.to_str().unwrap(), "--phantom", "--format", format], &recommended[..]];
    printed(&line.concat())
}

#[test]
fn zones_of_a_captured_machine_span_what_its_kernel_says() {
    for (capture, format) in captures() {
        let ranges = |text: &str| -> Vec<String> {
            let told = |line: &&str| {
                let line = line.trim_start();
                ["Node ", "spanned ", "present ", "start_pfn:"].iter().any(|start| line.starts_with(start))
            };
            text.lines().filter(told).map(str::to_owned).collect()
        };
        let kernels = fs::read_to_string(capture.join("zoneinfo")).unwrap();
        assert!(ranges(&kernels).len() > 15);
        assert_eq!(ranges(&shown(&capture, "zoneinfo", format)), ranges(&kernels), "{}", capture.display());
    }
}

#[test]
fn files_of_a_captured_machine_have_the_kernels_lines() {
    // All but the numbers, and the spaces that their widths bring.
    let names = |text: &str| -> Vec<String> {
        let line = |line: &str| {
            let words =
                line.split_whitespace().filter(|word| !word.starts_with(|c: char| c.is_ascii_digit() || c == '('));
            words.collect::<Vec<_>>().join(" ")
        };
        text.lines().map(line).collect()
    };
    for (capture, format) in captures() {
        for name in PROC_FILES {
            let kernels = fs::read_to_string(capture.join(name)).unwrap();
            assert_eq!(names(&shown(&capture, name, format)), names(&kernels), "{} {name}", capture.display());
        }
    }
}

#[test]
fn a_workload_leaves_the_same_yard_for_the_same_seed() {
    let after = |seed: &str| {
        let line = ["--machine", "skylake-112", "--memory", "1G", "--phantom", "--after", "churn", "--seed", seed];
        PROC_FILES.map(|name| printed(&[&["show", name], &line[..]].concat()))
    };
    let [buddyinfo, _, _, vmstat] = &after("3");
    assert_eq!(&after("3")[0], buddyinfo);
    assert_ne!(&after("4")[0], buddyinfo);
    let count = |name: &str| -> u64 {
        let line = vmstat.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        line.trim().parse().unwrap()
    };
    let allocated: u64 =
        ["dma", "dma32", "normal", "movable"].iter().map(|zone| count(&format!("pgalloc_{zone} "))).sum();
    assert!(allocated > count("pgfree ") && count("pgfree ") > 0);
    // The one counts blocks, the other their frames.
    let blocks = count("numa_hit ") + count("numa_miss ");
    assert!(blocks > 0 && blocks < allocated);
    assert_refused(&["show", "vmstat", "--seed", "1"], 2, "--after");
}

#[test]
fn shown_files_are_rows_in_json() {
    let show = |name: &str| json(&["show", name, "--machine", "desktop-8", "--phantom", "--json"]);
    let object = show("buddyinfo");
    assert_eq!((&object["command"], &object["format"]), (&"show buddyinfo".into(), &"6.12".into()));
    assert_eq!(zones(&object), [(0, "DMA"), (0, "DMA32"), (0, "Normal")]);
    let free: u64 = (0..=10).map(|order| sum(&object, &format!("order_{order}")) << order).sum();
    let zoneinfo = show("zoneinfo");
    assert_eq!(sum(&zoneinfo, "free"), free);
    assert_eq!(show("pagetypeinfo")["rows"].as_array().unwrap().len(), 3 * 5);
    let vmstat = show("vmstat");
    let line = vmstat["rows"].as_array().unwrap().iter().find(|row| row["name"] == "nr_free_pages").unwrap();
    assert_eq!(number(&line["value"]), free);
}

#[test]
fn the_layout_names_every_byte_and_column() {
    for (by, empty) in [("state", "interior"), ("user", "tail")] {
        check_layout(by, empty);
    }
}

/// Checks the layout table. In the column `empty`, every word is zero.
fn check_layout(by: &str, empty: &str) {
    let text = printed(&["layout", "--by", by]);
    let object = json(&["layout", "--by", by, "--json"]);
    let rows = object["rows"].as_array().unwrap();
    assert_eq!(sum(&object, "size"), number(&object["page_struct_bytes"]));
    assert_eq!(object["page_struct_bytes"], 64);
    let mut end = 0;
    for row in rows {
        assert_eq!(row["offset"], end, "{row}");
        end += number(&row["size"]);
        let content = row[empty].as_str().unwrap().split(';').next();
        assert_eq!(content, Some("0"), "an all-zero page is {empty}");
        let word = row["word"].as_str().unwrap();
        assert!(text.lines().any(|line| line.split_whitespace().nth(1) == Some(word)), "{word}: {text}");
    }
    for column in rows[0].as_object().unwrap().keys().skip(3) {
        assert!(text.contains(column.as_str()), "{column}: {text}");
    }
}

const TWO_NODES: &str = "
cpus = [{ socket = 0, core = 0 }, { socket = 0, core = 1 }]
[[node]]
cpus = \"CPUS\"
memory = [{ start = 0x100000, size = \"SIZE\" }]
[[node]]
cpus = \"1\"
memory = [{ start = 0x10000000, size = \"256M\" }]
";

#[test]
fn bad_machines_are_one_line_with_the_place_and_exit_code_2() {
    let described = |name: &str, cpus: &str, size: &str| {
        let machine = file(name, &TWO_NODES.replace("CPUS", cpus).replace("SIZE", size));
        ["boot".to_owned(), "--phantom".to_owned(), "--machine".to_owned(), machine]
    };
    let refused = |line: [String; 4], says: &str| {
        assert_refused(&line.each_ref().map(String::as_str), 2, says);
    };
    let good = described("good.toml", "0", "255M");
    assert_eq!(frameyard(&good.each_ref().map(String::as_str)).status.code(), Some(0));
    refused(described("overlap.toml", "0", "256M"), "overlap.toml:8: memory");
    refused(described("twice.toml", "0-1", "255M"), "twice.toml");
    refused(described("huge.toml", "0", "16383P"), "huge.toml:5");
    refused(described("overflow.toml", "0", "99999999P"), "overflow");
    refused(described("empty.toml", "0", "0"), "empty.toml:5");
    for (name, text, says) in [
        ("broken.toml", "topology = \n", "broken.toml:1"),
        ("broken.iomem", "00001000-0009fbff : System RAM\n00100000-zz : System RAM\n", "broken.iomem:2"),
        ("hidden.iomem", "00000000-00000000 : System RAM\n00000000-00000000 : System RAM\n", "hidden.iomem"),
        ("broken.log", "[    0.000000] BIOS-e820: [mem 0x0000000000001000-0x00000000000zz] usable\n", "broken.log:1"),
        ("silent.log", "[    0.000000] Linux version 6.12\n", "silent.log"),
    ] {
        let machine = file(name, text);
        assert_refused(&["boot", "--phantom", "--machine", &machine], 2, says);
        assert_refused(&["show", "zoneinfo", "--phantom", "--machine", &machine], 2, says);
    }
}

#[test]
fn bad_sizes_and_names_are_one_line_and_exit_code_2() {
    assert_refused(&["boot", "--machine", "server-2t"], 2, "did you mean server-");
    assert_refused(&["boot", "--memory", "0"], 2, "more than nothing");
    assert_refused(&["boot", "--memory", "99999999999P"], 2, "overflows");
    assert_refused(&["boot", "--machine", "server-1t", "--memory", "8P"], 2, "8P");
    assert_refused(&["boot", "--machine", "server-4t", "--memory", "512T", "--phantom"], 2, "at most 2^32 - 2");
    assert_refused(&["boot", "--host", "--memory", "512T"], 2, "at most 2^32 - 2");
    assert_refused(&["boot", "--machine", "desktop-8", "--pcp-sizing", "fraction:2"], 2, "fraction:8 or more");
    assert_refused(&["boot", "--machine", "desktop-8", "--movable", "101%"], 2, "0 to 100");
    assert_refused(&["show", "slabinfo"], 2, "buddyinfo");
    assert_refused(&["show", "vmstat", "--after", "churn", "--seed", "x"], 2, "a whole number from 0 to");
    assert_refused(&["show"], 2, "<FILE>");
}

#[test]
fn a_machine_larger_than_the_host_is_refused_with_what_its_map_would_need() {
    if has_too_few_addresses(240) {
        return;
    }
    let text = "topology = { sockets = 1, cores_per_socket = 1, threads_per_core = 1 }\n[[node]]\n";
    let giant = file("giant.toml", &format!("{text}memory = [{{ start = 0x100000000, size = \"15T\" }}]\n"));
    for says in ["giant: has 15 TiB of memory", "would need 240 GiB", "--memory", "--phantom"] {
        assert_refused(&["boot", "--machine", &giant], 2, says);
        assert_refused(&["show", "buddyinfo", "--machine", &giant], 2, says);
    }
}

#[test]
fn a_map_larger_than_the_address_space_is_refused() {
    let limited = "ulimit -v 4000000; exec \"$0\" boot --machine server-1t --phantom";
    let program = env!("CARGO_BIN_EXE_frameyard");
    let output = Command::new("sh").args(["-c", limited, program]).output().expect("a shell");
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(stderr(&output).contains("16 GiB of addresses"), "{}", stderr(&output));
}

#[test]
fn buddyinfo_and_pagetypeinfo_have_the_free_pages_of_zoneinfo_wherever_they_are() {
    let pages = |row: &serde_json::Value| -> u64 {
        (0..=10).map(|order| row[format!("order_{order}")].as_u64().unwrap() << order).sum()
    };
    for policy in ["vanilla", "bits"] {
        let rows = |file: &str| {
            let line =
                format!("show {file} --machine desktop-8 --memory 1G --phantom --after churn --policy {policy} --json");
            json(&line.split(' ').collect::<Vec<_>>())["rows"].as_array().unwrap().clone()
        };
        let (zones, metrics) = (rows("zoneinfo"), rows("metrics"));
        let in_bits: u64 = metrics.iter().filter_map(|row| row["bits_pages"].as_u64()).sum();
        assert_eq!(in_bits > 0, policy == "bits", "churn leaves free frames in bits");
        for (zone, buddy) in zones.iter().zip(rows("buddyinfo")) {
            assert_eq!(pages(&buddy), zone["free"].as_u64().unwrap(), "{policy} {zone}");
        }
        let of_types: u64 = rows("pagetypeinfo").iter().map(pages).sum();
        assert_eq!(of_types, zones.iter().map(|zone| zone["free"].as_u64().unwrap()).sum::<u64>(), "{policy}");
    }
}
