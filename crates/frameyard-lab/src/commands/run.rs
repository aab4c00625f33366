//! `run`: runs a program on a yard, through `libframeyard_malloc.so`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use frameyard::ByteSize;
use frameyard::policy::ZonePolicy;

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
  frameyard run --memory 8G --policy vanilla -- redis-server --save ''";

/// Runs a program with its heap in a yard, and prints what it took from the yard
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct RunArgs {
    /// Size of the yard of each process
    #[arg(long, value_name = "SIZE", value_parser = positive_size, default_value = "4G")]
    memory: ByteSize,

    /// Policy of the yard
    #[arg(long, value_parser = zone_policy(), default_value_t)]
    policy: ZonePolicy,

    /// The library that replaces malloc [default: libframeyard_malloc.so beside this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
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
    let mut command = Command::new(program.path());
    command.args(arguments).env("LD_PRELOAD", preload);
    command.env("FRAMEYARD_MEMORY", args.memory.0.to_string()).env("FRAMEYARD_POLICY", args.policy.name());
    command.env("FRAMEYARD_SUMMARY", &summaries);
    let started = command.spawn().map_err(|error| refused("start", program.path(), &error))?;
    let mut child = started;
    let process = child.id();
    let status = child.wait().map_err(|error| refused("wait for", program.path(), &error))?;
    let text = fs::read_to_string(&summaries).unwrap_or_default();
    // Nothing is left behind if no process has written one.
    let _ = fs::remove_file(&summaries);
    eprintln!("{}", report(&text, process));
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
        None => env::current_exe().map_err(Failure::run_time)?.with_file_name(LIBRARY),
    };
    let hint = "build it with `cargo build --release -p frameyard-malloc`, or name it with --library";
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
         of it in free blocks of 2 MiB{others}",
        value("allocations"),
        value("failures"),
        value("zone_locks"),
        size("peak"),
        size("size"),
        size("free"),
        ByteSize(value("free_huge_pages") << 21),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_that_of_the_process_itself() {
        let line = |process, peak| {
            format!(
                "frameyard: process={process} policy=depot size=4194304 allocations=7 failures=1 zone_locks=3 \
                     free_huge_pages=1 free=4194304 in_use=0 peak={peak}\n"
            )
        };
        let text = line(12, 1 << 20) + &line(123, 1 << 21);
        assert_eq!(
            report(&text, 123),
            "frameyard: 7 extents allocated, 1 refused, 3 acquisitions of zone locks; peak 2M of 4M; at exit 4M free, 2M of it \
             in free blocks of 2 MiB; 1 more processes ended with a yard"
        );
        assert!(report(&text, 1).starts_with("frameyard: no summary"));
    }
}
