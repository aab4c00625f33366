//! Commands that run `cargo test`: as it is, for some crates, as another user, in unusual surroundings.

mod summary;

use std::env;
use std::fs;
use std::hint;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::builds::selection;
use crate::process::{Outcome, command, failed, run, stream, succeeded};
use summary::Summary;

/// Runs a command in a user's clone. Not this program, because another shell may call it.
const USER: &str = "xtask/scripts/user";

/// The variable LABEL begins the last lines.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let label = env::var("LABEL").unwrap_or("test".to_owned());
    let mut cargo = command("cargo test");
    cargo.args(arguments);
    summarised(&label, cargo)
}

pub(crate) fn heap_tests(arguments: &[String]) -> Outcome {
    if selection().is_none() {
        return Ok(());
    }
    let mut cargo = command("cargo test -p frameyard-heap");
    // jemalloc's makefiles do not work in a folder with a space in its path.
    if env::current_dir()?.to_string_lossy().contains(' ') {
        cargo.env("CARGO_TARGET_DIR", env::home_dir().unwrap_or_default().join("heaps"));
    }
    let label = env::var("LABEL").unwrap_or("test".to_owned());
    cargo.args(arguments);
    summarised(&label, cargo)
}

/// The allocator as it is shipped.
pub(crate) fn release_tests() -> Outcome {
    let crates = "-p frameyard-units -p frameyard-memblock -p frameyard -p frameyard-vm -p frameyard-host";
    summarised("release-tests", command(&format!("cargo test --profile release-tests --lib --tests {crates}")))
}

/// Prints the output of tests that fail, not of those that pass, and a summary.
fn summarised(label: &str, mut cargo: Command) -> Outcome {
    let mut summary = Summary::default();
    let mut of_passed = false;
    cargo.args(["--", "--show-output"]);
    let status = stream(cargo, |line| {
        of_passed = line == "successes:" || of_passed && line != "failures:" && !line.starts_with("test result: ");
        if !of_passed {
            println!("{line}");
        }
        summary.read(line);
    })?;
    let summed = summary.print(label);
    succeeded(status)?;
    summed
}

/// Runs the commands with which the README's section "Try it" begins, as they stand there, as an ordinary user. Nothing that CI sets
/// reaches them. With arguments, only the commands that contain one of these words.
pub(crate) fn readme(words: &[String]) -> Outcome {
    let readme = fs::read_to_string("README.md")?;
    let commands = commands_to_try(&readme);
    let has = |command: &str, word: &String| format!(" {command} ").contains(&format!(" {word} "));
    if commands.is_empty() || words.iter().any(|word| !commands.iter().any(|command| has(command, word))) {
        let commands = commands.join("', '");
        return failed(format!(
            "readme: \"Try it\" begins with '{commands}'; not each of these words is in one: {words:?}"
        ));
    }
    for command in
        commands.into_iter().filter(|command| words.is_empty() || words.iter().any(|word| has(command, word)))
    {
        println!("$ {command}");
        let mut user = Command::new(USER);
        user.args(["bash", "-c", command]);
        let mut summary = Summary::default();
        let status = stream(user, |line| {
            println!("{line}");
            summary.read(line);
        })?;
        // An option that shows skips would make it another command. The command `test` shows them.
        let summed = if command.starts_with("cargo test") { summary.print("readme") } else { Ok(()) };
        succeeded(status)?;
        summed?;
    }
    Ok(())
}

fn commands_to_try(readme: &str) -> Vec<&str> {
    let section = readme.split("\n## ").find_map(|section| section.strip_prefix("Try it\n"));
    let block = section.and_then(|text| Some(text.split_once("```console\n")?.1.split_once("\n```")?.0));
    block.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("$ ")).collect()
}

/// The tests as an ordinary user with one thing that is not as usual: name, what begins root's command, what begins the user's.
const VARIATIONS: &[(&str, &str, &str)] = &[
    // A PATH of links to all programs but browsers. Only the tests that look for one run.
    (
        "no-browser",
        "exec",
        r#"programs=$(mktemp -d) && ln -s /usr/bin/* "$programs" && rm -f "$programs"/*{chrom,headless}* &&
            PATH=${PATH%%:*}:$programs exec"#,
    ),
    ("one-cpu", "exec taskset --cpu-list 0", "exec"),
    // Beside eight loops that compute.
    ("busy", "exec", "exec"),
    (
        "small-shm",
        r#"exec unshare --mount bash -c 'mount -t tmpfs -o size=64m,mode=1777 tmpfs /dev/shm && exec "$@"' bash"#,
        "exec",
    ),
    ("address-space", "ulimit -v $((16 << 20)) && exec", "exec"),
    // Temporary files lie on another file system than the build.
    (
        "other-tmp",
        r#"exec unshare --mount bash -c 'mount -t tmpfs -o size=4g,mode=1777 tmpfs /mnt && exec "$@"' bash"#,
        "TMPDIR=/mnt exec",
    ),
    // This alone builds something.
    ("other-target", "exec", "CARGO_TARGET_DIR=$HOME/other-target exec"),
];

/// Runs the variations that are named, or all. Arguments after `--` are cargo's: `variations busy -- -p frameyard`. The last line of each
/// is `NAME: P passed, F failed, S skipped`.
pub(crate) fn variations(arguments: &[String]) -> Outcome {
    let (names, of_cargo) =
        arguments.split_at(arguments.iter().position(|word| word == "--").unwrap_or(arguments.len()));
    if let Some(unknown) = names.iter().find(|name| !VARIATIONS.iter().any(|(known, ..)| known == name)) {
        let known: Vec<_> = VARIATIONS.iter().map(|(known, ..)| *known).collect();
        return failed(format!("variations: there is no variation {unknown}; there are {}", known.join(", ")));
    }
    let mut failures = Vec::new();
    for (name, outside, inside) in VARIATIONS {
        if !names.is_empty() && !names.iter().any(|given| given == name) {
            continue;
        }
        let start = Instant::now();
        let mut command = Command::new("bash");
        command.args(["-c", &format!("{outside} \"$@\""), "bash", USER]);
        command.args(["bash", "-c", &format!("{inside} \"$@\""), "bash"]);
        // A quarter of the random cases that tests run otherwise.
        command.args(["env", &format!("LABEL={name}"), "PROPTEST_CASES=64"]);
        command.args(["cargo", "xtask", "test", "--tests", "--no-fail-fast"]).args(of_cargo.iter().skip(1));
        if *name == "no-browser" {
            command.arg("browser");
        }
        let outcome = if *name == "busy" { beside_loops(|| run(&mut command)) } else { run(&mut command) };
        if outcome.is_err() {
            failures.push(*name);
        }
        println!("variations: {name} took {} s", start.elapsed().as_secs());
    }
    if failures.is_empty() { Ok(()) } else { failed(format!("variations: FAILED: {}", failures.join(" "))) }
}

fn beside_loops(run: impl FnOnce() -> Outcome) -> Outcome {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    hint::spin_loop()
                }
            });
        }
        let outcome = run();
        ended.store(true, Ordering::Relaxed);
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_of_the_readmes_section_is_tried() {
        let readme = "# A\n\n```console\n$ no\n```\n\n## Try it\n\nText\n\n```console\n$ cargo run -- boot\noutput\n$ cargo test\n```\n\n\
            ```console\n$ later\n```\n\n## B\n";
        assert_eq!(commands_to_try(readme), ["cargo run -- boot", "cargo test"]);
        assert_eq!(commands_to_try("## Try it\n"), [""; 0]);
    }
}
