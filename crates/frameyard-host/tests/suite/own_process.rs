//! Tests run in a process of their own: this program, executed again.

use std::path::PathBuf;
use std::process::Command;

/// Set in a process that [`is_own_process`] has started.
const ALONE: &str = "FRAMEYARD_TEST_ALONE";

/// The path of a file for one test. Runs of this program at the same time have files of their own.
pub(crate) fn own_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// Makes `command`, which executes this program, run one test. `module` is the test's `module_path!()`.
pub(crate) fn run_test(command: &mut Command, module: &str, name: &str) {
    let (_program, module) = module.split_once("::").expect("tests are in modules");
    command.args([&format!("{module}::{name}"), "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
}

/// Returns whether this process runs the calling test alone. If it does not, first runs the test in a process of its
/// own and fails if it fails.
///
/// For tests that measure the whole process: tests on other threads would change the figures.
pub(crate) fn is_own_process(module: &str, name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    run_test(&mut command, module, name);
    let output = command.env(ALONE, "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("1 passed"), "{name} is the name of one test: {printed}");
    // `cargo xtask test` counts these lines.
    printed.lines().filter(|line| line.starts_with("skipped: ")).for_each(|line| println!("{line}"));
    false
}
