//! `report`, as a user meets it: jobs, shards, merges, interrupted and damaged reports, and the page.

mod browser;
mod stored;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{assert_refused, frameyard, json, stderr};
use crate::trace::temporary;

/// Short deterministic jobs.
const JOBS: &str = "check-page-fault-88,check-order0-thp,sim-frag,replay,check-parallel-free";
const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../frameyard-traces/tests/fixtures/page-cache.ftrace.zst");

/// A folder that does not exist.
fn fresh(name: &str) -> PathBuf {
    let folder = temporary(name);
    drop(fs::remove_dir_all(&folder));
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The results of a report by file name, without what varies.
fn result_files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder.join("jobs")).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    let results = named.filter(|(name, _)| !name.ends_with(".run.json"));
    let mut files: Vec<_> = results.map(|(name, path)| (name, fs::read(path).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn three_shards_at_once_give_the_bytes_of_a_single_run() {
    let options = ["report", "--only", JOBS, "--trace", RECORDING, "-o"];
    let whole = fresh("report-whole");
    let output = frameyard(&[&options[..], &[text(&whole)]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    let parts: Vec<PathBuf> = (1..=3).map(|part| fresh(&format!("report-part-{part}"))).collect();
    std::thread::scope(|scope| {
        for (part, folder) in parts.iter().enumerate() {
            scope.spawn(move || {
                let shard = format!("{}/3", part + 1);
                let output = frameyard(&[&options[..], &[text(folder), "--shard", &shard]].concat());
                assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
                assert!(!folder.join("index.html").exists(), "a part has no page");
            });
        }
    });
    let merged = fresh("report-merged");
    let folders: Vec<&str> = parts.iter().map(|folder| text(folder)).collect();
    let output = frameyard(&[&["report", "--merge"], &folders[..], &["-o", text(&merged)]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    let (one, other) = (result_files(&whole), result_files(&merged));
    assert_eq!(one.len(), 5, "{one:?}");
    for ((name, bytes), (other_name, other_bytes)) in one.iter().zip(&other) {
        assert_eq!(name, other_name);
        assert!(bytes == other_bytes, "{name} differs");
        assert!(String::from_utf8_lossy(bytes).contains("\"error\": null"), "{name} failed");
    }
    assert_eq!(one.len(), other.len());

    // Each is in two folders, with the same contents.
    let output = frameyard(&["report", "--merge", text(&whole), text(&merged), "-o", text(&merged)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_report_continues_and_repeats_what_is_damaged() {
    let folder = fresh("report-continued");
    let line = ["report", "--only", "check-page-fault-88,native-lock-times", "-o", text(&folder)];
    frameyard(&line);
    let (damaged, kept) =
        (folder.join("jobs/check-page-fault-88.json"), folder.join("jobs/native-lock-times.bits.json"));
    let (before, kept_before) = (fs::read(&damaged).unwrap(), fs::metadata(&kept).unwrap().modified().unwrap());
    fs::write(&damaged, &before[..before.len() / 2]).unwrap();
    let output = frameyard(&line);
    assert_eq!(output.status.code(), Some(0));
    let says = "jobs/check-page-fault-88.json: damaged result: ";
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
    assert_eq!(fs::read(&damaged).unwrap(), before, "the job ran again");
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), kept_before, "the other job did not");

    fs::write(&damaged, "{}").unwrap();
    let target = fresh("report-of-damaged");
    assert_refused(&["report", "--merge", text(&folder), "-o", text(&target)], 2, says);
    assert!(!target.exists(), "nothing is merged");
}

#[test]
fn a_failed_job_is_a_result_that_says_why() {
    let (folder, recording) = (fresh("report-failed"), temporary("report-failed.txt"));
    fs::write(&recording, "# tracer: nop\n").unwrap();
    let line = ["report", "--only", "replay", "--trace", text(&recording), "--json", "-o", text(&folder)];
    let report = json(&line);
    let claims = report["rows"].as_array().unwrap();
    let replay = claims.iter().find(|claim| claim["claim"] == "replay-speed").unwrap();
    assert_eq!(replay["verdict"], "not measured");
    assert!(replay["why"].as_str().unwrap().contains("the recording has no allocation"), "{replay}");
    let page = fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(page.contains("Not measured: job replay.report-failed failed: "), "the page says it too");
}

#[test]
fn jobs_are_listed_with_their_commands() {
    let jobs = json(&["report", "--full", "--jobs", "--json"]);
    let rows = jobs["rows"].as_array().unwrap();
    assert!(rows.len() > 30);
    for row in rows {
        let command = row["command"].as_str().unwrap();
        assert!(command.starts_with("frameyard ") && command.ends_with(" --json"), "{row}");
    }
    let parts = ["1/2", "2/2"].map(|shard| ["report", "--full", "--shard", shard, "--jobs", "--json"]);
    // A list of a part would be the list of a shard that ran.
    assert_refused(&parts[0], 2, "--jobs");
}

#[test]
fn bad_usage_is_refused_with_a_correct_value() {
    for shard in ["0/3", "4/3", "x", "3"] {
        assert_refused(&["report", "--shard", shard], 2, "as in 2/8");
    }
    assert_refused(&["report", "--only", "nothing"], 2, "report --jobs lists them");
    assert_refused(&["report", "--trace", "/no/such/recording"], 2, "/no/such/recording: no such recording");
    assert_refused(&["report", "--merge", "/no/such/folder"], 2, "/no/such/folder/jobs: cannot read");
    assert_refused(&["report", "--only", "native-boot", "-o", "/proc/report"], 2, "/proc/report: cannot write");
    assert_refused(&["report", "--quick", "--full"], 2, "cannot be used with");
}

#[test]
fn a_full_disk_names_the_file_and_keeps_what_was_stored() {
    let folder = fresh("report-full-disk");
    let line = ["report", "--only", "native-boot", "-o", text(&folder)];
    assert_eq!(frameyard(&line).status.code(), Some(0));
    let (stored, page) = (result_files(&folder), fs::read(folder.join("index.html")).unwrap());
    // A limit on the size of files stands for a full disk: writes fail in the same place.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"";
    let limited = |names: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_frameyard"), "report", "--only", names, "-o", text(&folder)]);
        command.output().unwrap()
    };
    let output = limited("native-boot,check-page-fault-88");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let says = "jobs/check-page-fault-88.json: cannot write: ";
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
    assert_eq!(result_files(&folder), stored);
    assert_eq!(fs::read(folder.join("index.html")).unwrap(), page);
    let parts = fs::read_dir(folder.join("jobs")).unwrap();
    assert!(parts.flatten().all(|entry| !entry.file_name().to_string_lossy().starts_with('.')), "no part stays");
}
