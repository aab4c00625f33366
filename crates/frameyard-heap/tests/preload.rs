//! Programs under the library: those of every Linux system (`sh` and the tools that it needs), and those in `c`.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

mod preloaded;

use preloaded::{Folder, HEAPS, run, success_of, text};

/// Runs a script under the library.
fn sh(script: &str, variables: &[(&str, &str)]) -> Output {
    run(Command::new("sh").args(["-c", script]), variables)
}

/// The output of a program on a heap in a yard of that size.
fn success(command: &mut Command, heap: &str, memory: &str) -> String {
    success_of(command, &[("FRAMEYARD_HEAP", heap), ("FRAMEYARD_MEMORY", memory)])
}

/// The value of a count in a summary.
fn value(summary: &str, name: &str) -> u64 {
    let pair = summary.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    pair.unwrap_or_else(|| panic!("{name} in {summary:?}")).parse().expect("a number")
}

#[test]
fn a_program_runs_on_a_yard_and_prints_a_summary() {
    for heap in HEAPS {
        // `sh` may end without running handlers, so it is replaced.
        let output = sh(
            "exec env echo works",
            &[("FRAMEYARD_HEAP", heap), ("FRAMEYARD_MEMORY", "256M"), ("FRAMEYARD_SUMMARY", "1")],
        );
        assert!(output.status.success());
        assert_eq!(text(&output.stdout), "works\n");
        let summary = text(&output.stderr);
        assert_eq!(summary.lines().count(), 1, "{summary}");
        assert_eq!(value(&summary, "size"), 256 << 20);
        assert!(value(&summary, "allocations") > 0 && value(&summary, "zone_locks") > 0);
        assert!(value(&summary, "peak") >= value(&summary, "in_use"));
    }
}

#[test]
fn a_pipeline_of_forked_shells_and_programs_works() {
    let script =
        "(for i in 1 2 3 4 5; do (echo $i; echo $i) & wait; done; echo x) | sort | uniq -c | tr -d ' ' | tr '\\n' ,";
    for heap in HEAPS {
        let output = sh(script, &[("FRAMEYARD_HEAP", heap), ("FRAMEYARD_MEMORY", "128M")]);
        assert_eq!(text(&output.stdout), "21,22,23,24,25,1x,", "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn the_policy_is_that_of_the_environment() {
    for (heap, policy) in HEAPS.into_iter().flat_map(|heap| ["vanilla", "bits"].map(|policy| (heap, policy))) {
        let variables = [
            ("FRAMEYARD_HEAP", heap),
            ("FRAMEYARD_MEMORY", "128M"),
            ("FRAMEYARD_POLICY", policy),
            ("FRAMEYARD_SUMMARY", "1"),
        ];
        let summary = text(&sh("exec cat /dev/null", &variables).stderr);
        assert!(summary.contains(&format!(" policy={policy} ")), "{summary}");
    }
}

#[test]
fn malformed_and_impossible_values_lead_to_one_line_and_a_run_without_a_yard() {
    let cases = [
        (("FRAMEYARD_MEMORY", "much"), "FRAMEYARD_MEMORY=\"much\" is not a size"),
        (("FRAMEYARD_MEMORY", ""), "FRAMEYARD_MEMORY=\"\" is not a size"),
        (("FRAMEYARD_MEMORY", "1M"), "too small for jemalloc's arenas"),
        (("FRAMEYARD_MEMORY", "0"), "too small for jemalloc's arenas"),
        (("FRAMEYARD_MEMORY", "-1"), "FRAMEYARD_MEMORY=\"-1\" is not a size"),
        (("FRAMEYARD_MEMORY", "1000T"), "no yard: "),
        (("FRAMEYARD_HEAP", "glibc"), "FRAMEYARD_HEAP=\"glibc\" is not jemalloc or mimalloc"),
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
fn impossible_arenas_of_mimalloc_lead_to_one_line_and_a_run_without_a_yard() {
    for (memory, expected) in [("1M", "too small for an arena of mimalloc's, which needs 32M"), ("1000T", "no yard: ")]
    {
        let output = sh("echo works", &[("FRAMEYARD_HEAP", "mimalloc"), ("FRAMEYARD_MEMORY", memory)]);
        let stderr = text(&output.stderr);
        assert_eq!(text(&output.stdout), "works\n");
        assert!(stderr.contains(expected) && stderr.lines().count() == 1, "{memory}: {stderr}");
    }
}

#[test]
fn a_program_that_needs_more_than_the_yard_fails_by_itself() {
    for heap in HEAPS {
        // The buffer that `dd` allocates is larger than the yard.
        let output = sh(
            "dd if=/dev/zero of=/dev/null bs=512M count=1",
            &[("FRAMEYARD_HEAP", heap), ("FRAMEYARD_MEMORY", "64M")],
        );
        assert_eq!(output.status.signal(), None);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let fits =
            sh("dd if=/dev/zero of=/dev/null bs=24M count=1", &[("FRAMEYARD_HEAP", heap), ("FRAMEYARD_MEMORY", "64M")]);
        assert!(fits.status.success(), "{}", text(&fits.stderr));
    }
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

#[test]
fn the_functions_keep_what_the_c_library_promises() {
    let folder = Folder::new("contract");
    let program = folder.compile("contract.c", &[]);
    // The largest alignments, in MiB.
    for (heap, most) in HEAPS.into_iter().zip(["4", "2"]) {
        assert_eq!(success(Command::new(&program).arg(most), heap, "64M"), "done\n", "{heap}");
    }
}

#[test]
fn the_smallest_yard_has_room_for_the_metadata() {
    let refusal = text(&sh("true", &[("FRAMEYARD_MEMORY", "1M")]).stderr);
    let (_, least) = refusal.split_once("which need ").expect("the smallest size");
    let least = least.split(';').next().expect("a size");
    let output = sh("exec env echo works", &[("FRAMEYARD_MEMORY", least), ("FRAMEYARD_SUMMARY", "1")]);
    assert_eq!(text(&output.stdout), "works\n");
    assert!(value(&text(&output.stderr), "in_use") > 0);
}

#[test]
fn libraries_are_loaded_while_threads_allocate() {
    let folder = Folder::new("libraries");
    let module = folder.compile("module.c", &["-shared", "-fPIC"]);
    let copies = (0..100).map(|copy| {
        let path = folder.0.join(format!("module{copy}.so"));
        std::fs::copy(&module, &path).expect("a copy");
        path
    });
    let copies: Vec<_> = copies.collect();
    let program = folder.compile("libraries.c", &[]);
    for heap in HEAPS {
        assert_eq!(success(Command::new(&program).args(&copies), heap, "256M"), "100\n", "{heap}");
    }
}

#[test]
fn threads_end_fork_and_execute_programs() {
    let folder = Folder::new("threads");
    let program = folder.compile("threads.c", &[]);
    for heap in HEAPS {
        assert_eq!(success(Command::new(&program).arg("/bin/sh"), heap, "128M"), "done\n", "{heap}");
    }
}

#[test]
fn a_summary_is_not_written_to_a_file_of_the_program() {
    let folder = Folder::new("closes");
    let file = folder.0.join("file");
    let program = folder.compile("closes.c", &[]);
    let variables = [("FRAMEYARD_MEMORY", "64M"), ("FRAMEYARD_SUMMARY", "1")];
    let output = run(Command::new(program).arg(&file), &variables);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert_eq!(std::fs::read_to_string(file).expect("the program makes the file"), "");
}

#[test]
fn a_summary_that_has_no_place_is_refused_in_one_line() {
    let folder = Folder::new("no-place");
    let missing = folder.0.join("missing/file");
    let missing = missing.to_str().expect("a plain path");
    for (target, expected) in [("yes", "FRAMEYARD_SUMMARY=\"yes\" is not 0, 1 or a path"), (missing, "no summary in ")]
    {
        let output =
            run(Command::new("cat").arg("/dev/null"), &[("FRAMEYARD_MEMORY", "64M"), ("FRAMEYARD_SUMMARY", target)]);
        let stderr = text(&output.stderr);
        assert!(output.status.success() && stderr.contains(expected), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn a_full_standard_error_is_no_problem() {
    let output = sh("exec 2>/dev/full; env echo works; env false", &[("FRAMEYARD_MEMORY", "much")]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), "works\n"));
}
