//! The program as a user meets it: exit codes, where the lines go, and what they look like.

use std::process::{Command, Output};

fn frameyard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frameyard"))
        .args(arguments)
        .env_remove("CLICOLOR_FORCE")
        .output()
        .expect("the program was built")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Asserts a refusal: exit code, nothing on standard output, and one plain line that says `says`.
fn assert_refused(arguments: &[&str], code: i32, says: &str) {
    let output = frameyard(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{arguments:?}");
    let line = stderr(&output).strip_suffix('\n').expect("a whole line");
    assert!(!line.contains('\n') && line.starts_with("error: "), "{arguments:?}: {line:?}");
    assert!(line.contains(says), "{arguments:?}: {line:?} does not say {says:?}");
    assert!(!line.contains('\u{1b}'), "{line:?} has colours where there is no terminal");
}

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
    for command in ["completions", "man"] {
        assert!(stdout(&output).contains(command), "{}", stdout(&output));
    }
    assert_eq!(stderr(&output), "");
}

#[test]
fn bad_usage_is_one_line_and_exit_code_2() {
    assert_refused(&[], 2, "requires a subcommand");
    assert_refused(&["bot"], 2, "unrecognized subcommand 'bot'; see --help");
    assert_refused(&["--fast"], 2, "unexpected argument '--fast'");
    assert_refused(&["completions"], 2, "<SHELL>");
    assert_refused(&["completions", "bsh"], 2, "possible values: bash");
    assert_refused(&["man"], 2, "<FOLDER>");
}

#[test]
fn a_near_miss_is_answered_with_a_suggestion() {
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
    for page in ["frameyard.1", "frameyard-completions.1", "frameyard-man.1"] {
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
fn a_reader_that_goes_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_frameyard"))
        .args(["completions", "bash"])
        .stdout(writer)
        .output()
        .expect("the program was built");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}
