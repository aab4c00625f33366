//! `run`: runs a program on a yard, through `libframeyard_malloc.so`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use frameyard::ByteSize;
use frameyard::policy::ZonePolicy;
use frameyard_host::{Budget, BudgetProcess};

use crate::Failure;
use crate::args::values::{positive_size, zone_policy};

mod program;

use program::Program;

/// The file name of the library.
const LIBRARY: &str = "libframeyard_malloc.so";

/// What follows the options in the help text.
const HELP: &str = "\
The memory that the program allocates comes from a private yard of its own. So does that of each program that it starts.
The summary goes to standard error. The exit code is that of the program, or 128 and the number of the signal that ended it.

Examples:
  frameyard run -- python3 -c 'print(sum(range(1000000)))'
  frameyard run --memory 8G --policy vanilla -- redis-server --save ''
  frameyard run --heap mimalloc -- sqlite3 my.db
  frameyard run --memory 2G --shared build -- make -j8";

/// Runs a program with its heap in a yard, and prints what it took from the yard
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct RunArgs {
    /// Size of the yard of each process
    #[arg(long, value_name = "SIZE", value_parser = positive_size, default_value = "4G")]
    memory: ByteSize,

    /// Name of a budget for several runs: all their processes together get no more than --memory
    #[arg(long, value_name = "NAME")]
    shared: Option<String>,

    /// Heap of the program
    #[arg(long, value_enum, default_value_t)]
    heap: ProgramHeap,

    /// Policy of the yard
    #[arg(long, value_parser = zone_policy(), default_value_t)]
    policy: ZonePolicy,

    /// The library that replaces malloc [default: libframeyard_malloc.so beside this program, or where cargo builds it]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The heap that divides the memory of the yard.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
enum ProgramHeap {
    /// jemalloc: its extents come from the yard and return to it
    #[default]
    Jemalloc,
    /// mimalloc: one arena that fills the yard
    Mimalloc,
}

impl ProgramHeap {
    /// The name in `FRAMEYARD_HEAP`.
    fn name(self) -> &'static str {
        match self {
            Self::Jemalloc => "jemalloc",
            Self::Mimalloc => "mimalloc",
        }
    }
}

/// Runs the program and ends with its exit code.
pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let [program, arguments @ ..] = args.command.as_slice() else { return Err(Failure::input("a command is missing")) };
    let library = library(args.library.as_deref())?;
    let program = Program::find(program)?;
    program.check()?;
    let summaries = env::temp_dir().join(format!("frameyard-run-{}", std::process::id()));
    let mut preload = library.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let budget = args.shared.as_deref().map(|name| Budget::create(name, args.memory)).transpose();
    let budget = budget.map_err(|error| Failure::input(error.to_string()))?;
    let mut command = Command::new(program.path());
    command.args(arguments).env("LD_PRELOAD", preload).env("FRAMEYARD_HEAP", args.heap.name());
    command.env("FRAMEYARD_MEMORY", args.memory.0.to_string()).env("FRAMEYARD_POLICY", args.policy.name());
    command.env("FRAMEYARD_SUMMARY", &summaries).env("FRAMEYARD_SHARED", args.shared.as_deref().unwrap_or_default());
    let started = command.spawn().map_err(|error| refused("start", program.path(), &error))?;
    let mut child = started;
    let process = child.id();
    let status = child.wait().map_err(|error| refused("wait for", program.path(), &error))?;
    let text = fs::read_to_string(&summaries).unwrap_or_default();
    // Nothing is left behind if no process has written one.
    let _ = fs::remove_file(&summaries);
    eprintln!("{}", report(&text, process));
    if let Some(share) = budget {
        eprintln!("{}", usage(share.budget()));
        drop(share);
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    std::process::exit(code.unwrap_or(1))
}

fn refused(action: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::run_time(format!("cannot {action} {}: {error}", path.display()))
}

/// The library that the user names, or the one beside this program.
fn library(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => {
            let beside = env::current_exe().map_err(Failure::run_time)?.with_file_name(LIBRARY);
            // Cargo builds the library in another folder than the program.
            let built = beside.with_file_name("examples").join(LIBRARY);
            if !beside.is_file() && built.is_file() { built } else { beside }
        }
    };
    let hint = "build it with `cargo build --release -p frameyard-heap --features preload --example frameyard_malloc`, \
                or name it with --library";
    let found = fs::canonicalize(&path).ok().filter(|path| path.is_file());
    let found = found.ok_or_else(|| Failure::input(format!("there is no library {}: {hint}", path.display())))?;
    // The dynamic linker splits its list there.
    if found.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b':' | b' ')) {
        return Err(Failure::input(format!("the path {} contains a colon or a space", found.display())));
    }
    Ok(found)
}

/// A summary of the process that was started, out of those of all processes.
fn report(summaries: &str, process: u32) -> String {
    let of_process = format!("frameyard: process={process} ");
    let others = summaries.lines().filter(|line| !line.starts_with(&of_process)).count();
    let others = if others == 0 { String::new() } else { format!("; {others} more processes ended with a yard") };
    let Some(counts) = summaries.lines().find_map(|line| line.strip_prefix(&of_process)) else {
        return format!("frameyard: no summary: the program had no yard, or ended without its exit handlers{others}");
    };
    let value = |name: &str| {
        let pair = counts.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        pair.and_then(|value| value.parse().ok()).unwrap_or(0_u64)
    };
    let size = |name| ByteSize(value(name));
    format!(
        "frameyard: {} extents allocated, {} refused, {} acquisitions of zone locks; peak {} of {}; at exit {} free, {} \
         of it in whole free pageblocks{others}",
        value("allocations"),
        value("failures"),
        value("zone_locks"),
        size("peak"),
        size("size"),
        size("free"),
        ByteSize(value("free_pageblocks") << 21),
    )
}

/// What the other running processes of a budget use. `frameyard run` itself uses nothing.
fn usage(budget: &Budget) -> String {
    let mut processes = budget.processes();
    processes.retain(|process| process.peak.0 > 0);
    let total = ByteSize(processes.iter().map(|process| process.used.0).sum());
    let each: String = processes
        .iter()
        .map(|BudgetProcess { process, used, peak, .. }| format!("; process {process} uses {used}, at most {peak}"))
        .collect();
    format!("frameyard: the other processes of the budget use {total} of {}{each}", budget.limit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_a_budget_lists_processes_that_have_used_some() {
        let name = format!("usage-{}", std::process::id());
        let share = Budget::create(&name, ByteSize::mib(8)).unwrap();
        assert_eq!(usage(share.budget()), "frameyard: the other processes of the budget use 0 of 8M");
        assert!(share.charge(ByteSize::mib(3)));
        share.refund(ByteSize::mib(1));
        let process = std::process::id();
        let expected =
            format!("frameyard: the other processes of the budget use 2M of 8M; process {process} uses 2M, at most 3M");
        assert_eq!(usage(share.budget()), expected);
        drop(share);
    }

    #[test]
    fn the_library_gets_the_name_of_the_command_line() {
        for heap in ProgramHeap::value_variants() {
            assert_eq!(heap.to_possible_value().unwrap().get_name(), heap.name());
        }
    }

    #[test]
    fn the_summary_is_that_of_the_process_itself() {
        let line = |process, peak| {
            format!(
                "frameyard: process={process} policy=bits size=4194304 allocations=7 failures=1 zone_locks=3 \
                     free_pageblocks=1 free=4194304 in_use=0 peak={peak}\n"
            )
        };
        let text = line(12, 1 << 20) + &line(123, 1 << 21);
        assert_eq!(
            report(&text, 123),
            "frameyard: 7 extents allocated, 1 refused, 3 acquisitions of zone locks; peak 2M of 4M; at exit 4M free, 2M of it \
             in whole free pageblocks; 1 more processes ended with a yard"
        );
        assert!(report(&text, 1).starts_with("frameyard: no summary"));
    }
}
