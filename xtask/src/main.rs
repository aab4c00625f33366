//! The project's tool. `cargo xtask` lists its commands.
//!
//! A command is a function here or a shell script in `xtask/scripts`. It runs in the root of the repository. A job of CI is a command
//! with its arguments. No variable is set that changes what is compiled: that is in `Cargo.toml`, for all.

mod builds;
mod cargo_test;
mod jobs;
mod models;
mod process;
mod quick;
mod sources;

use std::env;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use process::{Outcome, failed, run};

struct Task {
    name: &'static str,
    /// What it does, in a line.
    does: &'static str,
    runs: Runs,
}

enum Runs {
    Function(fn(&[String]) -> Outcome),
    /// The script of the same name.
    Script,
    /// The same, where the crates with C heaps can be built.
    HeapScript,
}

const fn function(name: &'static str, does: &'static str, function: fn(&[String]) -> Outcome) -> Task {
    Task { name, does, runs: Runs::Function(function) }
}

const fn script(name: &'static str, does: &'static str) -> Task {
    Task { name, does, runs: Runs::Script }
}

const fn heap_script(name: &'static str, does: &'static str) -> Task {
    Task { name, does, runs: Runs::HeapScript }
}

const GROUPS: &[(&str, &[Task])] = &[
    (
        "quick loop",
        &[function(
            "quick",
            "after each edit: format, sources, lints and fast tests of what differs from main [BRANCH]",
            quick::quick,
        )],
    ),
    (
        "tests",
        &[
            function(
                "test",
                "`cargo test` with these arguments, and at the end what tests skipped and which failed",
                cargo_test::test,
            ),
            function("heap-tests", "the same for the heaps, where they can be built", cargo_test::heap_tests),
            function(
                "release-tests",
                "the allocator's tests, optimised, without debug assertions",
                cargo_test::release_tests,
            ),
            function(
                "variations",
                "the tests with one CPU, little memory and so on; or those named [-- CARGO'S…]",
                cargo_test::variations,
            ),
            script("no-std", "the core links without std, a heap or a C library"),
            script("c-interface", "C and C++ programs build against the installed C interface and run"),
            script("freestanding", "C programs without a C library link with the core's C interface and run"),
            script("memblock-tests", "C programs, the kernel's tests and the kernel itself against memblock.h"),
            heap_script(
                "programs",
                "python3, sqlite3, redis, a shell and cargo on a yard [--full: measured on three heaps]",
            ),
            function("package", "each crate builds from its package alone", builds::package),
            function(
                "readme",
                "the README's commands under \"Try it\", as an ordinary user; or those with these words",
                cargo_test::readme,
            ),
            script("user", "a command as an ordinary user in a clone of HEAD [--root: as root in the same clone]"),
        ],
    ),
    (
        "checks",
        &[
            function("fmt", "formatting", builds::fmt),
            function("clippy", "lints; a warning is an error", builds::clippy),
            function("layering", "modules and crates use only lower ones; atomics come from `sync`", builds::layering),
            function("orderings", "each ordering stronger than Relaxed names the function it pairs with", |_| {
                sources::check("orderings", sources::orderings::check)
            }),
            function("prose", "files, links, functions and commands that documents name exist", |_| {
                sources::check("references", sources::references::check)
            }),
            function(
                "tables",
                "writes the documents' figures from stored results [--check: compares them]",
                builds::tables,
            ),
            function("doc", "documentation builds without a warning", builds::doc),
            function("deny", "licences and sources of dependencies, and advisories on them", builds::deny),
            function("instructions", "an order-0 pair takes no more instructions than it did", models::instructions),
            function("predictions", "published tables are predicted as closely as recorded", models::predictions),
            function("count", "lines of code, and unsafe blocks, of each crate and module", |_| {
                sources::check("count", sources::count::check)
            }),
        ],
    ),
    (
        "models",
        &[
            function("loom", "explores the models of concurrent protocols", models::loom),
            function("shuttle", "whole yards under sampled schedules, from a new seed", models::shuttle),
            script("fuzz", "each fuzz target for ten seconds under AddressSanitizer, or those named"),
        ],
    ),
    (
        "long",
        &[
            function(
                "long",
                "hours: tests, models and fuzzing in full, and what follows; or the jobs named",
                jobs::long,
            ),
            heap_script("jemalloc-tests", "jemalloc's own tests with all its memory in a yard"),
            function("sanitize", "the allocator's tests under AddressSanitizer", models::sanitize),
            script("artefacts", "stripped libraries and program, as a Debian package that is installed and used"),
        ],
    ),
    (
        "CI",
        &[
            function(
                "ci",
                "all jobs of `.ci/run`, the README's test command first; or those of the groups named",
                jobs::ci,
            ),
            function(
                "jobs",
                "commands, each an argument: names and durations, stops at the first that fails",
                jobs::jobs,
            ),
            function("skips", "judges what was skipped, according to the output in a file", jobs::skips),
            script("install", "installs the Debian packages that other commands need (as root)"),
        ],
    ),
];

fn find(name: &str) -> Option<&'static Task> {
    GROUPS.iter().flat_map(|(_, tasks)| *tasks).find(|task| task.name == name)
}

fn main() -> ExitCode {
    if env::var_os("CARGO_PKG_NAME").is_some() {
        return without_cargo();
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        _ if !Path::new("xtask/Cargo.toml").is_file() => failed("xtask: call it in the root of the repository"),
        [] => list(),
        [help] if ["help", "--help", "-h"].contains(&help.as_str()) => list(),
        [name, rest @ ..] => match find(name) {
            Some(task) if rest == ["--help"] => {
                println!("{}: {}", task.name, task.does);
                Ok(())
            }
            Some(task) => start(task, rest),
            None => failed(unknown(name)),
        },
    };
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    if !failure.says.is_empty() {
        eprintln!("{}", failure.says);
    }
    ExitCode::from(u8::try_from(failure.status).unwrap_or(1))
}

/// Starts this program again without the variables that `cargo run` sets: what a command compiles must not see them.
fn without_cargo() -> ExitCode {
    let mut command = Command::new("/proc/self/exe");
    command.args(env::args_os().skip(1));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text == "CARGO" || text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    // Cargo puts the folders of its toolchain and of this program first.
    let cargo = env::var_os("CARGO").unwrap_or_default();
    let toolchain = Path::new(&cargo).ancestors().nth(2).unwrap_or(Path::new("/"));
    let program = env::current_exe().unwrap_or_default();
    let libraries = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let kept = env::split_paths(&libraries).filter(|folder| {
        !folder.starts_with(toolchain) && !program.parent().is_some_and(|own| folder.starts_with(own))
    });
    match env::join_paths(kept) {
        Ok(kept) if !kept.is_empty() => command.env("LD_LIBRARY_PATH", kept),
        _ => command.env_remove("LD_LIBRARY_PATH"),
    };
    eprintln!("xtask: {}", command.exec());
    ExitCode::FAILURE
}

fn start(task: &Task, arguments: &[String]) -> Outcome {
    match task.runs {
        Runs::Function(function) => function(arguments),
        Runs::HeapScript if builds::selection().is_none() => Ok(()),
        Runs::Script | Runs::HeapScript => run(Command::new(format!("xtask/scripts/{}", task.name)).args(arguments)),
    }
}

fn unknown(name: &str) -> String {
    let common = |task: &&Task| task.name.bytes().zip(name.bytes()).take_while(|(own, given)| own == given).count();
    let nearest = GROUPS.iter().flat_map(|(_, tasks)| *tasks).max_by_key(common).filter(|task| common(task) > 1);
    let hint = nearest.map(|task| format!("; `{}` is near", task.name)).unwrap_or_default();
    format!("xtask: there is no command `{name}`{hint}. `cargo xtask` lists all")
}

/// Prints the commands, and the table of CONTRIBUTING.md that says which to run.
fn list() -> Outcome {
    println!("cargo xtask COMMAND [ARGUMENT…]");
    for (group, tasks) in GROUPS {
        println!("\n{group}");
        for task in *tasks {
            println!("  {:<15} {}", task.name, task.does);
        }
    }
    let contributing = std::fs::read_to_string("CONTRIBUTING.md")?;
    println!();
    for line in
        contributing.lines().skip_while(|line| !line.starts_with("| you changed")).take_while(|line| !line.is_empty())
    {
        if let [changed, command] = line.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>().as_slice() {
            println!("{changed:<58} {}", command.replace('`', ""));
        }
    }
    Ok(())
}
