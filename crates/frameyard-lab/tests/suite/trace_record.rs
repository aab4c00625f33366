//! `trace record` where root and tracefs permit it. Elsewhere the tests say what is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use frameyard::Pfn;
use frameyard_traces::{BadLines, Item, PageEvent, TraceEvent, import};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{assert_refused, command, json, stderr, stdout};
use crate::trace::temporary;

/// Records a command; `None`, with the reason on standard output, where that is impossible here.
fn record(name: &str, scope: &str, words: &[&str]) -> Option<(PathBuf, String)> {
    record_with(name, &["--scope", scope], words)
}

fn record_with(name: &str, options: &[&str], words: &[&str]) -> Option<(PathBuf, String)> {
    let file = temporary(name);
    let line = [&["trace", "record", "-o", file.to_str().unwrap()], options, &["--"], words].concat();
    let output = command(&line).output().unwrap();
    if output.status.success() {
        return Some((file, stdout(&output).to_owned()));
    }
    let missing = ["needs root", "cannot be mounted", "Permission denied", "No such file", "has no tracepoint"];
    assert!(missing.iter().any(|missing| stderr(&output).contains(missing)), "{}", stderr(&output));
    println!("skipped: {}", stderr(&output).trim());
    None
}

/// Whether a process has a tracefs instance. Wherever tracefs is mounted, its instances are the same.
fn has_instance(process: u32) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mounted = mounts.lines().filter(|line| line.split(' ').nth(2) == Some("tracefs"));
    let mut roots = mounted.filter_map(|line| line.split(' ').nth(1));
    roots.any(|root| Path::new(root).join(format!("instances/frameyard-{process}")).exists())
}

#[test]
fn a_recorded_command_has_its_pages_faults_and_exit_code_and_replays() {
    // It writes 8 MiB of zeros into the page cache of a file.
    let scratch = temporary("zeros");
    let write = ["sh", "-c", "head -c 8388608 /dev/zero > \"$0\"; exit 3", scratch.to_str().unwrap()];
    let Some((file, line)) = record("recorded.fyt", "system", &write) else { return };
    assert!(line.contains("recorded.fyt: ") && line.contains("exit status: 3"), "{line}");
    let path = file.to_str().unwrap();
    let stat = json(&["trace", "stat", path, "--json"]);
    assert!(stat["pages_allocated"].as_u64().unwrap() >= 2048, "{stat}");
    assert!(stat["minor_faults"].as_u64().unwrap() > 0, "{stat}");
    assert_eq!((&stat["exit_code"], &stat["scope"]), (&3.into(), &"system".into()));
    for name in ["buddyinfo", "zoneinfo"] {
        for when in ["before", "after"] {
            let beside = fs::read_to_string(format!("{path}.{name}.{when}")).unwrap();
            assert!(beside.starts_with("Node 0"), "{beside}");
        }
    }
    let replayed = json(&["trace", "replay", path, "--policy", "vanilla,bits", "--json"]);
    for row in replayed["rows"].as_array().unwrap() {
        assert_eq!(row["failures"], 0, "{row}");
        assert!(row["operations"].as_u64() >= Some(1), "{row}");
    }
    fs::remove_file(scratch).unwrap();
}

#[test]
fn the_scope_of_a_command_leaves_out_other_processes() {
    let Some((file, _)) = record("scoped.fyt", "command", &["true"]) else { return };
    let stat = json(&["trace", "stat", file.to_str().unwrap(), "--json"]);
    assert_eq!(stat["scope"], "command");
    assert!(stat["events"].as_u64() >= Some(1), "{stat}");
}

#[test]
fn a_command_that_does_not_exist_is_an_error_and_leaves_the_file_alone() {
    if record("true.fyt", "system", &["true"]).is_some() {
        let file = temporary("missing.fyt");
        fs::write(&file, "earlier").unwrap();
        assert_refused(&["trace", "record", "-o", file.to_str().unwrap(), "--", "no-such-command"], 1, "not found");
        assert_eq!(fs::read_to_string(&file).unwrap(), "earlier");
    }
}

/// Pages that a program maps and touches; those of them that it drops; those that it touches again; pages that it maps a second time.
const PAGES: usize = 3001;
const DROPPED: usize = 1501;
const AGAIN: usize = 703;
const SECOND: usize = 2003;

/// The frames that each single call freed: runs of frees of one task at one time.
fn freed_at_once(events: &[TraceEvent]) -> Vec<Vec<Pfn>> {
    let mut runs: Vec<((u32, u64), Vec<Pfn>)> = Vec::new();
    for event in events {
        let PageEvent::Free(block) = event.what else { continue };
        match runs.last_mut().filter(|(of, _)| *of == (event.pid, event.time_us)) {
            Some((_, run)) => run.push(block.pfn),
            None => runs.push(((event.pid, event.time_us), vec![block.pfn])),
        }
    }
    runs.into_iter().map(|(_, run)| run).collect()
}

#[test]
fn the_demand_of_a_program_has_each_page_once() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: there is no python3");
    }
    let program = format!(
        "import mmap\nP = 4096\ndef new(pages): return mmap.mmap(-1, pages * P, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
         a = new({PAGES})\nfor i in range({PAGES}): a[i * P] = 1\nfor i in range({PAGES}): a[i * P + 9] = 2\n\
         a.madvise(mmap.MADV_DONTNEED, 0, {DROPPED} * P)\nfor i in range({AGAIN}): a[i * P] = 3\na.close()\n\
         b = new({SECOND})\nfor i in range({SECOND}): b[i * P]\nfor i in range(0, {SECOND}, 2): b[i * P] = 1\nb.close()\n"
    );
    let recorded = record_with("demand.fyt", &["--malloc"], &["python3", "-c", &program]);
    let Some((file, line)) = recorded else { return };
    assert!(line.contains(", 0 lost;") && line.contains("exit status: 0"), "{line}");
    let mut events = Vec::new();
    let imported = import(fs::File::open(&file).unwrap(), BadLines::Refuse, &mut |item| {
        match item {
            Item::Events(more) => events.extend(more),
            Item::Snapshot { name, .. } => panic!("{name} is of other frames"),
            Item::Fact { .. } => {}
        }
        Ok(())
    });
    assert!(!imported.unwrap().is_truncated);
    let allocations = |pfn: Pfn| {
        let of = |event: &&TraceEvent| matches!(event.what, PageEvent::Alloc { pfn: Some(found), .. } if found == pfn);
        events.iter().filter(of).count()
    };
    let runs = freed_at_once(&events);
    for pages in [DROPPED, PAGES - DROPPED + AGAIN, SECOND.div_ceil(2)] {
        let found = runs.iter().filter(|run| run.len() == pages).count();
        assert_eq!(
            found,
            1,
            "{pages} pages: {:?}",
            runs.iter().map(Vec::len).filter(|len| *len > 100).collect::<Vec<_>>()
        );
        let run = runs.iter().find(|run| run.len() == pages).unwrap();
        assert!(allocations(run[0]) > 0 && run[0].0 >= 1024);
    }
    let path = file.to_str().unwrap();
    let stat = json(&["trace", "stat", path, "--json"]);
    assert_eq!((&stat["scope"], &stat["exit_code"]), (&"malloc".into(), &0.into()));
    assert_eq!(stat["pages_allocated"], stat["pages_freed"], "a process that has ended has no pages");
    assert_eq!(stat["live_pages"], 0, "{stat}");
    assert_eq!((&stat["failed_allocations"], &stat["blocks_allocated_twice"]), (&0.into(), &0.into()));
    assert!(stat["pages_allocated"].as_u64().unwrap() >= (PAGES + AGAIN + SECOND / 2) as u64, "{stat}");
    let replayed = json(&["trace", "replay", path, "--policy", "vanilla,bits", "--json"]);
    for row in replayed["rows"].as_array().unwrap() {
        assert_eq!((&row["failures"], &row["skipped_frees"]), (&0.into(), &0.into()), "{row}");
    }
    assert_eq!(replayed["double_frees"], 0);
    assert!(!Path::new(&format!("{path}.buddyinfo.before")).exists());
}

#[test]
fn the_demand_of_child_processes_is_recorded() {
    // A child process has the kernel write to 4096 pages of its own.
    let script = "dd if=/dev/zero of=/dev/null bs=16M count=1 2>/dev/null & wait; true | true";
    let Some((file, _)) = record_with("demand-tree.fyt", &["--malloc"], &["sh", "-c", script]) else { return };
    let stat = json(&["trace", "stat", file.to_str().unwrap(), "--json"]);
    assert!(stat["peak_live_pages"].as_u64().unwrap() >= 4096, "{stat}");
    assert_eq!((&stat["live_pages"], &stat["lost_events"]), (&0.into(), &0.into()), "{stat}");
}

#[test]
fn an_interrupt_ends_the_command_and_keeps_the_recording() {
    interrupt("interrupted", &[]);
    interrupt("interrupted-demand", &["--malloc"]);
}

fn interrupt(name: &str, options: &[&str]) {
    if record_with("before-interrupt.fyt", options, &["true"]).is_none() {
        return;
    }
    let file = temporary(&format!("{name}.fyt"));
    let ready = temporary(&format!("{name}.ready"));
    let _ = fs::remove_file(&ready);
    let script = format!("touch '{}'; exec sleep 600", ready.display());
    let words = [&["trace", "record", "-o", file.to_str().unwrap()], options, &["--", "sh", "-c", &script]].concat();
    let recorder = command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !ready.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = recorder.id();
    let had_instance = has_instance(id);
    // Before any assertion: a command that was not ended would outlive the test.
    kill_process(Pid::from_raw(id.cast_signed()).unwrap(), Signal::INT).unwrap();
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success() && stdout(&output).contains("signal: 15"), "{output:?}");
    assert!(had_instance);
    assert!(!has_instance(id));
    let stat = json(&["trace", "stat", file.to_str().unwrap(), "--json"]);
    assert_eq!((&stat["is_truncated"], &stat["exit_code"]), (&false.into(), &serde_json::Value::Null));
}

#[test]
fn a_full_disk_is_an_error_and_the_recording_stays_readable() {
    let folder = temporary("small-disk");
    fs::create_dir_all(&folder).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&folder).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return println!("skipped: a small file system cannot be mounted here");
    }
    let file = folder.join("full.fyt");
    let path = file.to_str().unwrap();
    // Ends when the recorder ends it.
    let script = "while :; do head -c 67108864 /dev/zero | tail -c 1 >/dev/null; true | true; done";
    let output = command(&["trace", "record", "-o", path, "--", "sh", "-c", script]).output().unwrap();
    let copy = temporary("full.fyt");
    let copied = fs::copy(&file, &copy);
    assert!(Command::new("umount").arg(&folder).status().unwrap().success());
    if stderr(&output).contains("cannot be mounted") || stderr(&output).contains("Permission denied") {
        return println!("skipped: {}", stderr(&output).trim());
    }
    copied.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write: No space left on device"), "{}", stderr(&output));
    let stat = json(&["trace", "stat", copy.to_str().unwrap(), "--json"]);
    assert_eq!(stat["is_truncated"], true);
    assert!(stat["events"].as_u64() >= Some(65536), "{stat}");
}
