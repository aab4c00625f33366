//! `sim deferred-init`: how long machines take to bring up their memory maps, beside what was published.

use std::io::{self, Write};

use frameyard::boot::Initialiser;
use frameyard_sim::bring_up::{self, BringUp, BringUpRun, BringUpThreads};
use frameyard_sim::{Accessed, Cause, Machine, Spent};
use serde::Serialize;

use super::machine::machine;
use crate::Failure;
use crate::cli::SimDeferredInitArgs;
use crate::commands::published_table::cells;
use crate::output::{self, Outcome, RowError, Rows, Table, progress_bar};

const NAME: &str = "sim deferred-init";

/// The table: its header says what its columns are.
const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/deferred-init.csv"));

/// How long one machine took, in ms: with one thread for each node, and with one for each CPU.
#[derive(Clone, PartialEq, Debug)]
struct Published {
    machine: String,
    base: f64,
    parallel: f64,
}

impl Published {
    /// The lines of the table.
    fn all() -> impl Iterator<Item = Self> {
        TABLE.lines().skip(1).filter_map(|line| {
            let [machine, .., base, _, parallel, _, _] = cells::<15>(line)?;
            Some(Self { machine, base: base.parse().ok()?, parallel: parallel.parse().ok()? })
        })
    }

    /// The time of so many threads, in ms.
    fn of(machine: &str, threads: BringUpThreads) -> Option<f64> {
        let line = Self::all().find(|line| line.machine == machine)?;
        match threads {
            BringUpThreads::OnePerNode => Some(line.base),
            BringUpThreads::OnePerCpu => Some(line.parallel),
            BringUpThreads::Count(_) => None,
        }
    }
}

/// A machine that was brought up.
#[derive(Serialize)]
struct Row {
    machine: String,
    initialiser: &'static str,
    /// On all nodes together.
    threads: usize,
    memory_bytes: u64,
    predicted_ns: u64,
    published_ns: Option<u64>,
    /// How far the prediction is off, as a part of what was published.
    error: Option<f64>,
    /// Whether the machine's free parameters were fitted on its own published times.
    calibrated: bool,
    /// Shares of the time of CPUs that were not idle.
    instructions_share: f64,
    lines_share: f64,
    bandwidth_share: f64,
    locks_share: f64,
    idle_share: f64,
}

/// Brings up each machine with each number of threads.
pub(super) fn run(args: &SimDeferredInitArgs) -> Result<(), Failure> {
    let names = match &args.machines[..] {
        [] => Published::all().map(|line| line.machine).collect(),
        names => names.to_vec(),
    };
    let ways: Vec<BringUpThreads> = match &args.threads[..] {
        [] => vec![BringUpThreads::OnePerNode, BringUpThreads::OnePerCpu],
        ranges => {
            let numbers = ranges.iter().flat_map(|range| range.numbers());
            numbers.map(|number| BringUpThreads::Count(number.get().try_into().unwrap_or(u16::MAX))).collect()
        }
    };
    let machines = names.iter().map(|name| machine(name)).collect::<Result<Vec<_>, _>>()?;
    let bar = progress_bar(NAME, (machines.len() * ways.len()) as u64);
    let mut rows = Vec::new();
    for machine in &machines {
        for threads in &ways {
            let how = BringUp { initialiser: args.initialiser, ..BringUp::of_kernel(*threads) };
            let run = bring_up::run(machine, &how).map_err(Failure::run_time)?;
            let published = Published::of(&machine.name, *threads).filter(|_| args.initialiser == how_of_kernel());
            rows.push(row(machine, &how, &run, published));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    output::print(&Rowed { rows }, &args.output)
}

/// By which means the kernels of the table write page structures.
const fn how_of_kernel() -> Initialiser {
    BringUp::of_kernel(BringUpThreads::OnePerNode).initialiser
}

fn row(machine: &Machine, how: &BringUp, run: &BringUpRun, published_ms: Option<f64>) -> Row {
    let account = &run.account;
    let all = account.total().0 as f64;
    let idle = account.of(Spent::Idle).time.0 as f64;
    let busy = all - idle;
    let of = |cause| account.of(Spent::Access(Accessed::Pages, cause)).time.0 as f64 / busy;
    let locks: u64 =
        frameyard::platform::LockKind::ALL.iter().map(|kind| account.of(Spent::Waiting(*kind)).time.0).sum();
    let lines = of(Cause::LocalMemory) + of(Cause::RemoteMemory);
    let (bandwidth, locks) = (of(Cause::Bandwidth), locks as f64 / busy);
    let predicted = run.time.as_ns();
    Row {
        machine: machine.name.clone(),
        initialiser: how.initialiser.name(),
        threads: run.nodes.iter().map(|node| node.threads).sum(),
        memory_bytes: machine.installed.0,
        predicted_ns: predicted.round() as u64,
        published_ns: published_ms.map(|ms| (ms * 1e6).round() as u64),
        error: published_ms.map(|ms| predicted / (ms * 1e6) - 1.0),
        calibrated: machine
            .calibration
            .rows
            .iter()
            .any(|row| row.contains(&format!("deferred-init.csv: {},", machine.name))),
        instructions_share: 1.0 - lines - bandwidth - locks,
        lines_share: lines,
        bandwidth_share: bandwidth,
        locks_share: locks,
        idle_share: idle / all,
    }
}

/// The rows.
struct Rowed {
    rows: Vec<Row>,
}

impl Outcome for Rowed {
    fn command(&self) -> &'static str {
        NAME
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let headings = ["machine", "threads", "published ms", "predicted ms", "error %"];
        let shares = ["instructions %", "lines %", "bandwidth %", "locks %", "idle %"];
        let mut table = Table::with_headings(headings.into_iter().chain(shares));
        for row in &self.rows {
            let ms = |ns: u64| format!("{:.1}", ns as f64 / 1e6);
            let percent = |share: f64| format!("{:.1}", share * 100.0);
            let error = row.error.map(|error| format!("{:+.1}", error * 100.0)).unwrap_or_default();
            let mark = if row.calibrated && row.error.is_some() { " (fitted)" } else { "" };
            let published = row.published_ns.map(ms).unwrap_or_default();
            let own =
                [format!("{}{mark}", row.machine), row.threads.to_string(), published, ms(row.predicted_ns), error];
            let shares =
                [row.instructions_share, row.lines_share, row.bandwidth_share, row.locks_share, row.idle_share];
            table.push(own.into_iter().chain(shares.map(percent)));
        }
        table.write(out)?;
        writeln!(
            out,
            "\nOne part in {} of each node is simulated, in sections as much smaller, and the time multiplied. Shares are of the time\n\
             of CPUs that are not idle; idle is of all.",
            BringUp::FRACTION
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_of_a_machine_that_there_is() {
        let lines: Vec<Published> = Published::all().collect();
        assert_eq!(lines.len(), TABLE.lines().count() - 1);
        for line in &lines {
            assert!(Machine::built_in(&line.machine).is_ok_and(|machine| machine.name == line.machine), "{line:?}");
        }
        let haswell = Published { machine: "haswell-2699v3".to_owned(), base: 618.0, parallel: 89.0 };
        assert!(lines.contains(&haswell), "{lines:?}");
    }

    #[test]
    fn the_table_is_that_of_the_project() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/published/deferred-init.csv");
        // Where the crate was built alone there is nothing to compare with.
        if let Ok(text) = std::fs::read_to_string(path) {
            assert_eq!(text, TABLE);
        }
    }
}
