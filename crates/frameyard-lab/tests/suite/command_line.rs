//! The program as a user meets it: exit codes, output streams and formats.

use crate::program::{as_ordinary_user, assert_refused, command, frameyard, json, stderr, stdout};

#[test]
fn the_version_names_the_commit() {
    let output = frameyard(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    let line = stdout(&output).strip_suffix('\n').unwrap();
    let commit = line.strip_prefix(&format!("frameyard {} (", env!("CARGO_PKG_VERSION"))).unwrap();
    let commit = commit.strip_suffix(')').unwrap();
    let hash = commit.strip_suffix("-dirty").unwrap_or(commit);
    let is_hash = hash.len() >= 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(commit == "unknown" || is_hash, "{line}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn help_lists_the_commands_on_standard_output() {
    let output = frameyard(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    for command in ["boot", "show", "layout", "machines", "bench", "sim", "stress", "completions", "man"] {
        assert!(stdout(&output).contains(command), "{}", stdout(&output));
    }
    assert_eq!(stderr(&output), "");
}

#[test]
fn bad_usage_is_one_line_and_exit_code_2() {
    assert_refused(&[], 2, "requires a subcommand");
    assert_refused(&["bring"], 2, "unrecognized subcommand 'bring'; see --help");
    assert_refused(&["--fast"], 2, "unexpected argument '--fast'");
    assert_refused(&["completions"], 2, "<SHELL>");
    assert_refused(&["completions", "bsh"], 2, "possible values: bash");
    assert_refused(&["man"], 2, "<FOLDER>");
}

#[test]
fn a_near_miss_is_answered_with_a_suggestion() {
    assert_refused(&["bot"], 2, "'boot'");
    assert_refused(&["completion", "bash"], 2, "'completions'");
    assert_refused(&["completions", "bsh"], 2, "'bash'");
}

#[test]
fn every_shell_gets_a_script_that_completes_the_program() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = frameyard(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(stdout(&output).contains("frameyard"), "{shell}");
        assert!(stdout(&output).contains("completions"), "{shell}");
        assert_eq!(stderr(&output), "", "{shell}");
    }
}

#[test]
fn there_is_a_manual_page_for_the_program_and_each_command() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("man/pages");
    let _ = std::fs::remove_dir_all(&folder);
    let output = frameyard(&["man", folder.to_str().unwrap()]);
    assert_eq!((output.status.code(), stdout(&output), stderr(&output)), (Some(0), "", ""));
    for page in ["frameyard.1", "frameyard-machines-show.1", "frameyard-sim-page-fault.1", "frameyard-man.1"] {
        let text = std::fs::read_to_string(folder.join(page)).expect(page);
        assert!(text.contains(".TH frameyard"), "{page}: {text}");
    }
}

#[test]
fn a_failure_at_run_time_is_one_line_and_exit_code_1() {
    let blocked = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("a-file");
    std::fs::write(&blocked, "").unwrap();
    let below = blocked.join("man");
    assert_refused(&["man", below.to_str().unwrap()], 1, "a-file/man: cannot write manual pages");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_silently_with_the_code_of_sigpipe() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for line in [&["completions", "bash"][..], &["machines"], &["machines", "--json"]] {
        let output = command(line).stdout(writer.try_clone().unwrap()).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(141), ""), "{line:?}");
    }
}

#[test]
fn json_is_one_object_with_the_common_keys_first() {
    let object = json(&["machines", "--json"]);
    let keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["schema", "command", "version", "commit", "host", "machine", "rows"]);
    assert_eq!((&object["schema"], &object["command"]), (&1.into(), &"machines".into()));
    assert_eq!(object["version"], env!("CARGO_PKG_VERSION"));
    let host: Vec<&str> = object["host"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(host, ["cpu", "cpus", "memory_bytes", "kernel"]);
    assert!(object["machine"].is_null());
    let rows = object["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "server-1t").unwrap();
    assert_eq!((&row["memory_bytes"], &row["page_bytes"]), (&(1u64 << 40).into(), &4096.into()));
}

#[test]
fn the_list_of_machines_is_a_plain_table_off_the_terminal() {
    let output = frameyard(&["machines"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let mut lines = stdout(&output).lines();
    assert!(lines.next().unwrap().starts_with("name "), "{}", stdout(&output));
    assert!(lines.any(|line| line.starts_with("skylake-8167m ")), "{}", stdout(&output));
    assert!(!stdout(&output).contains('\u{1b}'));
}

#[test]
fn a_machine_is_printed_as_toml_that_reads_back_to_the_same() {
    let printed = frameyard(&["machines", "show", "haswell-2699v3"]);
    assert_eq!((printed.status.code(), stderr(&printed)), (Some(0), ""));
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("haswell.toml");
    std::fs::write(&file, &printed.stdout).unwrap();
    let again = frameyard(&["machines", "show", file.to_str().unwrap()]);
    assert_eq!((stdout(&again), again.status.code()), (stdout(&printed), Some(0)));
}

#[test]
fn a_shown_machine_is_scaled_and_its_geometry_changed_on_demand() {
    let object = json(&["machines", "show", "server-1t", "--memory", "64G", "--max-order", "9", "--json"]);
    assert_eq!((&object["machine"], &object["installed_bytes"]), (&"server-1t".into(), &(64u64 << 30).into()));
    assert!(object["toml"].as_str().unwrap().contains("max_order = 9"));
    assert_eq!(object["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn an_unknown_memory_map_of_the_host_is_noted_once_and_only_where_it_is_used() {
    let notes = |line: &str| {
        let output = as_ordinary_user(&line.split_whitespace().collect::<Vec<_>>())?;
        let notes = stderr(&output).lines().filter(|line| line.contains("/proc/iomem")).count();
        Some((output.status.code(), notes))
    };
    let Some(shown) = notes("machines show --host") else { return };
    // None where everyone may read the map.
    assert!(shown.0 == Some(0) && shown.1 <= 1, "{shown:?}");
    for (line, code) in [
        ("machines show --host --memory 1G", 0),
        ("bench fault-cost --memory 64M --map 2M --repeat 1", 0),
        ("bench zone-lock --memory 64M", 2),
        ("bench frag --phantom --memory 16M", 2),
        ("stress --memory 32M --tasks 1", 2),
    ] {
        assert_eq!(notes(line), Some((Some(code), 0)), "{line}");
    }
}

#[test]
fn the_host_is_a_machine_too() {
    let object = json(&["machines", "show", "--host", "--json"]);
    assert_eq!(object["machine"], "host");
    assert!(object["memory_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn a_bad_machine_is_one_line_and_exit_code_2() {
    assert_refused(&["machines", "show"], 2, "<NAME|FILE>");
    assert_refused(&["machines", "show", "skylak-112"], 2, "did you mean skylake-112?");
    assert_refused(&["machines", "show", "no/such.toml"], 2, "no/such.toml");
    assert_refused(&["machines", "show", "server-1t", "--memory", "1M"], 2, "1M of memory is too little");
    assert_refused(&["machines", "show", "server-1t", "--memory", "1"], 2, "1 byte of memory is too little");
    assert_refused(&["machines", "show", "server-1t", "--memory", "-5G"], 2, "invalid value '-5G' for '--memory");
    assert_refused(
        &["machines", "show", "server-1t", "--page-size", "5K"],
        2,
        "page size 5K: must be a power of two from 4K to 1G",
    );
    assert_refused(&["machines", "show", "server-1t", "--host"], 2, "cannot be used with");
    assert_refused(&["machines", "--json", "show", "server-1t"], 2, "cannot be used with");
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken.toml");
    std::fs::write(&file, "name = \"x\"\nnodes = maybe\n").unwrap();
    assert_refused(&["machines", "show", file.to_str().unwrap()], 2, "broken.toml:2");
}
