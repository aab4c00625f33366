//! Programs under the library. They are those of every Linux system: `sh` and the tools that it needs.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The library, which cargo builds beside the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folders = test.ancestors().skip(1).take(2).map(|folder| folder.join("libframeyard_malloc.so"));
    folders.into_iter().find(|path| path.is_file()).expect("libframeyard_malloc.so beside the tests")
}

/// Runs a script under the library.
fn sh(script: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("LD_PRELOAD", library());
    for variable in ["FRAMEYARD_MEMORY", "FRAMEYARD_POLICY", "FRAMEYARD_SUMMARY"] {
        command.env_remove(variable);
    }
    command.envs(variables.iter().copied()).output().expect("`sh` runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The value of a count in a summary.
fn value(summary: &str, name: &str) -> u64 {
    let pair = summary.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    pair.unwrap_or_else(|| panic!("{name} in {summary:?}")).parse().expect("a number")
}

#[test]
fn a_program_runs_on_a_yard_and_prints_a_summary() {
    // `sh` may end without running handlers, so it is replaced.
    let output = sh("exec env echo works", &[("FRAMEYARD_MEMORY", "256M"), ("FRAMEYARD_SUMMARY", "1")]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "works\n");
    let summary = text(&output.stderr);
    assert_eq!(summary.lines().count(), 1, "{summary}");
    assert_eq!(value(&summary, "size"), 256 << 20);
    assert!(value(&summary, "allocations") > 0 && value(&summary, "zone_locks") > 0);
    assert!(value(&summary, "peak") >= value(&summary, "in_use"));
}

#[test]
fn a_pipeline_of_forked_shells_and_programs_works() {
    let script =
        "(for i in 1 2 3 4 5; do (echo $i; echo $i) & wait; done; echo x) | sort | uniq -c | tr -d ' ' | tr '\\n' ,";
    let output = sh(script, &[("FRAMEYARD_MEMORY", "128M")]);
    assert_eq!(text(&output.stdout), "21,22,23,24,25,1x,", "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn the_policy_is_that_of_the_environment() {
    let variables = [("FRAMEYARD_MEMORY", "128M"), ("FRAMEYARD_POLICY", "vanilla"), ("FRAMEYARD_SUMMARY", "1")];
    let summary = text(&sh("exec cat /dev/null", &variables).stderr);
    assert!(summary.contains(" policy=vanilla "), "{summary}");
}

#[test]
fn malformed_and_impossible_values_lead_to_one_line_and_a_run_without_a_yard() {
    let cases = [
        (("FRAMEYARD_MEMORY", "much"), "FRAMEYARD_MEMORY=\"much\" is not a size"),
        (("FRAMEYARD_MEMORY", ""), "FRAMEYARD_MEMORY=\"\" is not a size"),
        (("FRAMEYARD_MEMORY", "1M"), "too small for jemalloc's arenas"),
        (("FRAMEYARD_MEMORY", "1000T"), "no yard: "),
        (("FRAMEYARD_POLICY", "best"), "FRAMEYARD_POLICY=\"best\" is not one of vanilla"),
    ];
    for (variable, expected) in cases {
        let output = sh("echo works; exit 3", &[variable, ("FRAMEYARD_SUMMARY", "1")]);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!((stdout.as_str(), output.status.code()), ("works\n", Some(3)), "{variable:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{variable:?}: {stderr}");
        assert!(stderr.contains(expected), "{variable:?}: {stderr}");
    }
}

#[test]
fn a_program_that_needs_more_than_the_yard_fails_by_itself() {
    // The buffer that `dd` allocates is larger than the yard.
    let output = sh("dd if=/dev/zero of=/dev/null bs=512M count=1", &[("FRAMEYARD_MEMORY", "64M")]);
    assert_eq!(output.status.signal(), None);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let fits = sh("dd if=/dev/zero of=/dev/null bs=32M count=1", &[("FRAMEYARD_MEMORY", "64M")]);
    assert!(fits.status.success(), "{}", text(&fits.stderr));
}

#[test]
fn summaries_of_all_processes_are_appended_to_a_file() {
    let file = std::env::temp_dir().join(format!("frameyard-summary-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let variables = [("FRAMEYARD_MEMORY", "128M"), ("FRAMEYARD_SUMMARY", file.to_str().expect("a plain path"))];
    let output = sh("cat /dev/null; cat /dev/null; exec cat /dev/null", &variables);
    let lines = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(lines.lines().count(), 3, "{lines}");
}
