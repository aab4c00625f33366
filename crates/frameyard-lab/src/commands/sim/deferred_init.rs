//! `sim deferred-init`: predicted and published times of initialising memory maps.

use clap::{Args, ValueHint};
use frameyard::boot::Initialiser;
use frameyard::platform::LockKind;
use frameyard_sim::deferred_init::{self, DeferredInit, DeferredInitRun, InitThreads};
use frameyard_sim::{Accessed, Cause, Machine, Spent};
use serde::Deserialize;

use crate::Failure;
use crate::args::init::initialiser;
use crate::args::{OutputArgs, QuickArgs, TaskRange};
use crate::commands::published_table::records;
use crate::commands::simulated_machine::machine;
use crate::output::{Format, Report, Row, progress_bar};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about a second.

Examples:
  frameyard sim deferred-init
  frameyard sim deferred-init --quick
  frameyard sim deferred-init --machine server-4t --threads 1,2,4,8";

/// Initialises memory maps of machines; prints predicted and published times
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct SimDeferredInitArgs {
    /// Built-in machines with costs, or files that describe machines (TOML) [default: those of the published table]
    #[arg(long = "machine", value_name = "NAME|FILE", value_delimiter = ',', value_hint = ValueHint::AnyPath)]
    machines: Vec<String>,

    /// Threads per node, at most its CPUs: numbers and ranges, as in 1,2,4 or 1..8 [default: one, and one per CPU]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    threads: Vec<TaskRange>,

    /// How page structures are written; none: they are zero already
    #[arg(long, value_name = "HOW", value_parser = initialiser(), default_value = Initialiser::StoresPerPage.name())]
    initialiser: Initialiser,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "sim deferred-init";

/// The published table; its header names the columns.
const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/deferred-init.csv"));

/// The published times of one machine, in ms: one thread per node, and one per CPU.
#[derive(Clone, PartialEq, Deserialize, Debug)]
struct Published {
    machine: String,
    #[serde(rename = "deferred_init_base_ms")]
    base: f64,
    #[serde(rename = "deferred_init_parallel_ms")]
    parallel: f64,
}

impl Published {
    /// The lines of the table.
    fn all() -> impl Iterator<Item = Self> {
        records(TABLE)
    }

    /// The time with these threads, in ms.
    fn of(machine: &str, threads: InitThreads) -> Option<f64> {
        let line = Self::all().find(|line| line.machine == machine)?;
        match threads {
            InitThreads::OnePerNode => Some(line.base),
            InitThreads::OnePerCpu => Some(line.parallel),
            InitThreads::Count(_) => None,
        }
    }
}

/// Initialises each machine's map with each number of threads.
pub(super) fn run(args: &SimDeferredInitArgs) -> Result<(), Failure> {
    let names = match &args.machines[..] {
        [] => Published::all().map(|line| line.machine).collect(),
        names => names.to_vec(),
    };
    let ways: Vec<InitThreads> = match &args.threads[..] {
        [] if args.quick.quick => vec![InitThreads::OnePerNode],
        [] => vec![InitThreads::OnePerNode, InitThreads::OnePerCpu],
        ranges => {
            let numbers = ranges.iter().flat_map(|range| range.numbers());
            numbers.map(|number| InitThreads::Count(number.get().try_into().unwrap_or(u16::MAX))).collect()
        }
    };
    let machines = names.iter().map(|name| machine(name)).collect::<Result<Vec<_>, _>>()?;
    let bar = progress_bar(NAME, (machines.len() * ways.len()) as u64);
    let mut rows = Vec::new();
    for machine in &machines {
        for threads in &ways {
            let how = DeferredInit { initialiser: args.initialiser, ..DeferredInit::of_kernel(*threads) };
            let run = deferred_init::run(machine, &how).map_err(Failure::run_time)?;
            let published = Published::of(&machine.name, *threads).filter(|_| args.initialiser == how_of_kernel());
            rows.push(row(machine, &how, &run, published));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let note = format!(
        "One part in {} of each node is simulated, in sections as much smaller, and the time multiplied. Shares are of the time \
    of CPUs that are not idle; idle is of all.",
        DeferredInit::FRACTION
    );
    Report::new(NAME, rows).note(note).print(&args.output)
}

/// How the kernels of the table write page structures.
const fn how_of_kernel() -> Initialiser {
    DeferredInit::of_kernel(InitThreads::OnePerNode).initialiser
}

fn row(machine: &Machine, how: &DeferredInit, run: &DeferredInitRun, published_ms: Option<f64>) -> Row {
    let account = &run.account;
    let all = account.total().0 as f64;
    let idle = account.of(Spent::Idle).time.0 as f64;
    let busy = all - idle;
    let of = |cause| account.of(Spent::Access(Accessed::Pages, cause)).time.0 as f64 / busy;
    let locks: u64 = LockKind::ALL.iter().map(|kind| account.of(Spent::Waiting(*kind)).time.0).sum();
    let lines = of(Cause::LocalMemory) + of(Cause::RemoteMemory);
    let (bandwidth, locks) = (of(Cause::Bandwidth), locks as f64 / busy);
    let predicted = run.time.as_ns();
    // Whether the machine's parameters were fitted on its own published times.
    let is_own = |row: &String| row.contains(&format!("deferred-init.csv: {},", machine.name));
    let calibrated = machine.calibration.rows.iter().any(is_own);
    let mark = if calibrated && published_ms.is_some() { " (fitted)" } else { "" };
    let percent = Format::percent(1);
    Row::new()
        .data("machine", machine.name.clone())
        .remark("machine", Format::Plain, format!("{}{mark}", machine.name))
        .data("initialiser", how.initialiser.name())
        .column("threads", "threads", run.nodes.iter().map(|node| node.threads).sum::<usize>())
        .data("memory_bytes", machine.installed.0)
        .column_as("predicted_ns", "predicted ms", Format::millions(1), predicted.round() as u64)
        .column_as(
            "published_ns",
            "published ms",
            Format::millions(1),
            published_ms.map(|ms| (ms * 1e6).round() as u64),
        )
        .column_as("error", "error %", percent.signed(), published_ms.map(|ms| predicted / (ms * 1e6) - 1.0))
        .data("calibrated", calibrated)
        .column_as("instructions_share", "instructions %", percent, 1.0 - lines - bandwidth - locks)
        .minor()
        .column_as("lines_share", "lines %", percent, lines)
        .minor()
        .column_as("bandwidth_share", "bandwidth %", percent, bandwidth)
        .minor()
        .column_as("locks_share", "locks %", percent, locks)
        .minor()
        .column_as("idle_share", "idle %", percent, idle / all)
        .minor()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_names_a_built_in_machine() {
        let lines: Vec<Published> = Published::all().collect();
        assert_eq!(lines.len(), TABLE.lines().count() - 1);
        for line in &lines {
            assert!(Machine::built_in(&line.machine).is_ok_and(|machine| machine.name == line.machine), "{line:?}");
        }
        let haswell = Published { machine: "haswell-2699v3".to_owned(), base: 618.0, parallel: 89.0 };
        assert!(lines.contains(&haswell), "{lines:?}");
    }

    #[test]
    fn the_packaged_table_equals_the_published_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/published/deferred-init.csv");
        // The published table is absent where the crate is built from its package.
        if let Ok(text) = std::fs::read_to_string(path) {
            assert_eq!(text, TABLE);
        }
    }
}
