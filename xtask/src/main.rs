//! The project's tool. `cargo xtask` lists its commands.
//!
//! A command is a function here, or else the shell script of its name in `xtask/scripts`. It runs in the root of the repository. A job of CI
//! is a command with its arguments. No variable is set that changes what is compiled: that is in `Cargo.toml`, for all.

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

/// What `cargo xtask` prints. Each command has a line.
const COMMANDS: &str = "\
cargo xtask COMMAND [ARGUMENT…]

quick loop
  quick           after each edit: format, sources, lints and fast tests of what differs from main [BRANCH]

tests
  test            `cargo test` with these arguments, and at the end what tests skipped and which failed
  heap-tests      the same for the heaps, where they can be built
  release-tests   the allocator's tests, optimised, without debug assertions
  variations      the tests with one CPU, little memory and so on, or those named [-- ARGUMENTS OF CARGO…]
  no-std          the core links without std, a heap or a C library
  c-interface     C and C++ programs build against the installed C interface and run
  freestanding    C programs without a C library link with the core's C interface and run
  memblock-tests  C programs and the kernel's tests of memblock pass; random calls agree with the kernel's memblock.c
  programs        python3, sqlite3, redis, a shell and cargo on a yard [--full: measured on three heaps]
  package         each crate builds from its package alone
  readme          the README's commands under \"Try it\", as an ordinary user, or those that contain a word given
  user            a command as an ordinary user in a clone of HEAD [--root: as root in the same clone]

checks
  fmt             formatting
  clippy          lints; a warning is an error
  layering        modules and crates use only lower ones; atomics come from `sync`
  orderings       each ordering stronger than Relaxed names the function it pairs with
  prose           files, links, functions and commands that documents name exist
  tables          writes docs/results/ and quoted figures from stored results [--check: compares them]
  doc             documentation builds without a warning
  oldest          the crates for kernels build on the oldest compiler that they promise
  api             public interfaces are as recorded [--write: records them]
  deny            licences and sources of dependencies, and advisories on them
  instructions    an order-0 pair takes no more instructions than it did
  predictions     published tables are predicted as closely as recorded
  count           lines of code, and unsafe blocks, of each crate and module

models
  loom            explores the models of concurrent protocols
  shuttle         whole yards under sampled schedules, from a new seed
  fuzz            each fuzz target for ten seconds under AddressSanitizer, or those named

long
  long            hours: tests, models and fuzzing in full, and what follows; or the jobs named
  jemalloc-tests  jemalloc's own tests with all its memory in a yard
  sanitize        the allocator's tests under AddressSanitizer
  artefacts       stripped libraries and program, as a Debian package that is unpacked and used

CI
  ci              all jobs of `.ci/run`, the README's test command first, or those of the groups named
  jobs            the commands given, each an argument: names and durations; stops at the first that fails
  skips           judges what was skipped, according to the output in a file
  install         installs the Debian packages that other commands need (as root)
";

fn start(name: &str, arguments: &[String]) -> Outcome {
    match name {
        "quick" => quick::quick(arguments),
        "test" => cargo_test::test(arguments),
        "heap-tests" => cargo_test::heap_tests(arguments),
        "release-tests" => cargo_test::release_tests(),
        "variations" => cargo_test::variations(arguments),
        "readme" => cargo_test::readme(arguments),
        "package" => run(Command::new("xtask/scripts/package").args(builds::selection())),
        "fmt" => builds::fmt(),
        "clippy" => builds::clippy(),
        "layering" => builds::layering(),
        "orderings" => sources::check("orderings", sources::orderings::check),
        "prose" => sources::check("references", sources::references::check),
        "tables" => builds::tables(arguments),
        "doc" => builds::doc(),
        "oldest" => builds::oldest(),
        "api" => builds::api(arguments),
        "deny" => builds::deny(),
        "instructions" => models::instructions(),
        "predictions" => models::predictions(),
        "count" => sources::check("count", sources::count::check),
        "loom" => models::loom(),
        "shuttle" => models::shuttle(),
        "long" => jobs::long(arguments),
        "sanitize" => models::sanitize(arguments),
        "ci" => jobs::ci(arguments),
        "jobs" => jobs::jobs(arguments),
        "skips" => jobs::skips(arguments),
        "programs" | "jemalloc-tests" if builds::selection().is_none() => Ok(()),
        script => run(Command::new(format!("xtask/scripts/{script}")).args(arguments)),
    }
}

fn commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
}

fn main() -> ExitCode {
    if env::var_os("CARGO_PKG_NAME").is_some() {
        return without_cargo();
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        _ if !Path::new("xtask/Cargo.toml").is_file() => failed("xtask: call it in the root of the repository"),
        [] => list(),
        [help, ..] if ["help", "--help", "-h"].contains(&help.as_str()) => list(),
        [name, arguments @ ..] if commands().any(|command| command == name) => start(name, arguments),
        [name, ..] => failed(unknown(name)),
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
    for name in env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if name == "CARGO" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    // Cargo puts the folders of its toolchain and of this program first.
    let cargo = env::var("CARGO").unwrap_or_default();
    let toolchain = cargo.trim_end_matches("/bin/cargo");
    let libraries = env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let own = |folder: &&str| !folder.starts_with(toolchain) && !folder.contains("/target/xtask/");
    let others: Vec<&str> = libraries.split(':').filter(own).collect();
    command.env("LD_LIBRARY_PATH", others.join(":"));
    if others.is_empty() {
        command.env_remove("LD_LIBRARY_PATH");
    }
    eprintln!("xtask: {}", command.exec());
    ExitCode::FAILURE
}

fn unknown(name: &str) -> String {
    let common = |command: &&str| command.bytes().zip(name.bytes()).take_while(|(own, given)| own == given).count();
    let nearest = commands().max_by_key(common).filter(|command| common(command) > 1);
    let hint = nearest.map(|command| format!("; the nearest is `{command}`")).unwrap_or_default();
    format!("xtask: there is no command `{name}`{hint}. `cargo xtask` lists all")
}

/// Prints the commands, and the table of CONTRIBUTING.md that says which to run.
fn list() -> Outcome {
    println!("{COMMANDS}");
    let contributing = std::fs::read_to_string("CONTRIBUTING.md")?;
    let table = contributing.lines().skip_while(|line| !line.starts_with("| you changed"));
    for line in table.take_while(|line| !line.is_empty()) {
        if let Some((changed, command)) = line.trim_matches(['|', ' ']).split_once(" | ") {
            println!("{changed:<58} {}", command.replace('`', ""));
        }
    }
    Ok(())
}
