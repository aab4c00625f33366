//! The program as the tests run it.

pub(crate) mod pty;

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

/// The program with plain tables of any width.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frameyard"));
    command.args(arguments).env_remove("CLICOLOR_FORCE").env_remove("COLUMNS");
    command
}

/// Runs the program.
pub(crate) fn frameyard(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program was built")
}

/// Runs the program as an ordinary user, also where the tests run as root. `None`, with the reason on standard output, where that user
/// cannot run it.
pub(crate) fn as_ordinary_user(arguments: &[&str]) -> Option<Output> {
    /// The number of `nobody`.
    const NOBODY: u32 = 65534;
    let mut command = command(arguments);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("skipped: an ordinary user cannot run {}: {error}", env!("CARGO_BIN_EXE_frameyard"));
            None
        }
    }
}

/// Whether a test must be skipped because the program may have fewer addresses than that (`ulimit -v`), and 1 GiB for the rest. Says so
/// on standard output.
pub(crate) fn has_too_few_addresses(gib: u64) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    let too_few = limit.is_some_and(|limit| limit >> 30 <= gib);
    if too_few {
        println!("skipped: needs {gib} GiB of addresses, and a process may have {} GiB", limit.unwrap_or(0) >> 30);
    }
    too_few
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Asserts a refusal: exit code, nothing on standard output, and one plain line that says `says`.
pub(crate) fn assert_refused(arguments: &[&str], code: i32, says: &str) {
    let output = frameyard(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{arguments:?}");
    let line = stderr(&output).strip_suffix('\n').expect("a whole line");
    assert!(!line.contains('\n') && line.starts_with("error: "), "{arguments:?}: {line:?}");
    assert!(line.contains(says), "{arguments:?}: {line:?} does not say {says:?}");
    assert!(!line.contains('\u{1b}'), "{line:?} has colours where there is no terminal");
}

/// The JSON object of a command that is expected to succeed, which must be all of standard output.
pub(crate) fn json(arguments: &[&str]) -> serde_json::Value {
    let output = frameyard(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    serde_json::from_str(stdout(&output)).expect("standard output is one JSON value")
}
