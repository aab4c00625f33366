//! `sim deferred-init`: predicted and published times of initialising memory maps.

mod published;
mod saturation;

use clap::{Args, ValueHint};
use frameyard::boot::Initialiser;
use frameyard::platform::LockKind;
use frameyard_sim::deferred_init::{self, AllocTimes, DeferredInit, DeferredInitRun, InitThreads};
use frameyard_sim::{Accessed, Cause, Machine, Spent};

use crate::Failure;
use crate::args::init::initialiser;
use crate::args::{OutputArgs, PlotArgs, QuickArgs, TaskRange};
use crate::commands::page_zeroing;
use crate::commands::simulated_machine::machine;
use crate::output::{Format, Plot, Report, Row, progress_bar};
use published::PublishedInit;
pub(super) use published::rows;

/// What follows the options in the help text.
const HELP: &str = "\
Takes a few seconds.

Examples:
  frameyard sim deferred-init
  frameyard sim deferred-init --quick
  frameyard sim deferred-init --threads 1..52 --plot threads.svg
  frameyard sim deferred-init --machine zen-7551-guest16 --tasks 4
  frameyard sim deferred-init --machine sparc-m7 --initialiser two-pass,memset-per-page,stores-per-page";

/// Initialises memory maps of machines; prints predicted and published times
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct SimDeferredInitArgs {
    /// Built-in machines with costs, or files that describe machines (TOML) [default: those of the published table]
    #[arg(long = "machine", value_name = "NAME|FILE", value_delimiter = ',', value_hint = ValueHint::AnyPath)]
    machines: Vec<String>,

    /// Threads per node: numbers and ranges, as in 1,2,4 or 1..8; those above a node's CPUs are left out [default: those
    /// of the published times, else one, and one per CPU]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    threads: Vec<TaskRange>,

    /// How page structures are written; none: they are zero already
    #[arg(long = "initialiser", value_name = "HOW", value_delimiter = ',', value_parser = initialiser(), default_value = Initialiser::StoresPerPage.name())]
    initialisers: Vec<Initialiser>,

    /// Tasks that allocate and free pages during the pass, on the last CPUs, which the pass lacks
    #[arg(long, value_name = "N", default_value_t = 0)]
    tasks: u16,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    plot: PlotArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "sim deferred-init";

/// One line for each machine: the time by the threads of a node.
const PLOT: Plot = Plot {
    title: "Initialising the memory map, predicted",
    line: &["machine"],
    x: ("threads_per_node", "threads per node"),
    y: ("predicted_ns", "ms"),
    y_unit: 1e6,
};

/// Initialises each machine's map with each number of threads.
pub(super) fn run(args: &SimDeferredInitArgs) -> Result<(), Failure> {
    let names = match &args.machines[..] {
        [] => published::machines(),
        names => names.to_vec(),
    };
    let machines = names.iter().map(|name| machine(name)).collect::<Result<Vec<_>, _>>()?;
    let mut cases = Vec::new();
    for machine in &machines {
        let ways = ways(args, machine)?;
        for initialiser in &args.initialisers {
            let how = |threads: &InitThreads| DeferredInit {
                initialiser: *initialiser,
                tasks: args.tasks,
                ..DeferredInit::of_kernel(*threads)
            };
            cases.extend(ways.iter().map(|threads| (machine, how(threads))));
        }
    }
    let bar = progress_bar(NAME, cases.len() as u64);
    let mut rows = Vec::new();
    for (machine, how) in &cases {
        rows.push(row(machine, how)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    PLOT.write_if_asked(&rows, &args.plot)?;
    let note = format!(
        "One part in {} of each node is simulated, in sections as much smaller, and the time multiplied; times of allocations \
    are not. Shares are of the time of CPUs that are not idle; idle is of all. Outside: the published boot without the published \
    initialisation, which no row predicts.",
        DeferredInit::FRACTION
    );
    let saturated = saturation::rows(&rows);
    let report = Report::new(NAME, rows.clone()).table(rows);
    let report = if saturated.is_empty() {
        report
    } else {
        let objects: Vec<_> = saturated.iter().map(|row| serde_json::Value::Object(row.object())).collect();
        report.total("saturation", objects).title(saturation::TITLE).table(saturated)
    };
    report.note(note).print(&args.output)
}

/// Predicts the published times of the kernels, and compares.
pub(super) fn compared() -> Result<Report, Failure> {
    let mut rows = Vec::new();
    for name in published::machines().into_iter().chain([page_zeroing::MACHINE.to_owned()]) {
        let machine = machine(&name)?;
        for (how, _) in published::cases(&name) {
            rows.push(row(&machine, &how)?);
        }
    }
    Ok(Report::new("sim check", rows))
}

/// The numbers of threads on a machine.
fn ways(args: &SimDeferredInitArgs, machine: &Machine) -> Result<Vec<InitThreads>, Failure> {
    if args.threads.is_empty() {
        return Ok(match published::ways(&machine.name) {
            ways if args.quick.quick => ways[..1].to_vec(),
            ways => ways,
        });
    }
    let cpus = (machine.cpus() / usize::from(machine.topology.sockets)) as u32;
    let numbers = args.threads.iter().flat_map(|range| range.numbers()).map(std::num::NonZeroU32::get);
    let ways: Vec<InitThreads> =
        numbers.filter(|number| *number <= cpus).map(|number| InitThreads::Count(number as u16)).collect();
    if ways.is_empty() {
        let name = &machine.name;
        return Err(Failure::input(format!(
            "--threads: a node of {name} has {cpus} CPUs; write numbers from 1 to {cpus}"
        )));
    }
    Ok(ways)
}

/// Runs a case.
fn row(machine: &Machine, how: &DeferredInit) -> Result<Row, Failure> {
    let cpus = machine.cpus();
    if usize::from(how.tasks) >= cpus {
        return Err(Failure::input(format!(
            "--tasks {}: {} has {cpus} CPUs, and the pass needs one",
            how.tasks, machine.name
        )));
    }
    let run = |how: &DeferredInit| deferred_init::run(machine, how).map_err(Failure::run_time);
    let done = run(how)?;
    let alone = (how.tasks > 0).then(|| run(&DeferredInit { tasks: 0, ..*how })).transpose()?;
    let published = PublishedInit::of(&machine.name, how);
    let predicted = done.time.as_ns();
    let error = published.map(|published| predicted / (published.time_ms * 1e6) - 1.0);
    let is_calibrated = published::is_calibrated(machine, how);
    let naive =
        published.zip(published::naive_ms(machine, how)).map(|(published, naive)| naive / published.time_ms - 1.0);
    let mark = if is_calibrated && published.is_some() { " (fitted)" } else { "" };
    let ns = |ms: Option<f64>| ms.map(|ms| (ms * 1e6).round() as u64);
    let threads = |of: fn(usize, usize) -> usize| done.nodes.iter().map(|node| node.threads).reduce(of).unwrap_or(1);
    let percent = Format::percent(1);
    let row = Row::new()
        .data("machine", machine.name.clone())
        .remark("machine", Format::Plain, format!("{}{mark}", machine.name))
        .column("initialiser", "initialiser", how.initialiser.name())
        .minor()
        .column("threads", "threads", threads(|a, b| a + b))
        .data("threads_per_node", threads(usize::max))
        .data("memory_bytes", machine.installed.0)
        .column_as("published_ns", "published ms", Format::millions(1), ns(published.map(|of| of.time_ms)))
        .column_as("published_stdev_ns", "± ms", Format::millions(1), ns(published.and_then(|of| of.stdev_ms)))
        .column_as("predicted_ns", "predicted ms", Format::millions(1), predicted.round() as u64)
        .column_as("error", "error %", percent.signed(), error)
        .column_as("naive_error", "naive %", percent.signed(), naive)
        .minor()
        .data("calibrated", is_calibrated)
        .column_as("published_boot_ns", "boot ms", Format::millions(1), ns(published.and_then(|of| of.boot_ms)))
        .minor()
        .column_as(
            "published_boot_stdev_ns",
            "± ms",
            Format::millions(1),
            ns(published.and_then(|of| of.boot_stdev_ms)),
        )
        .minor()
        .column_as(
            "published_outside_ns",
            "outside ms",
            Format::millions(1),
            ns(published.and_then(|of| of.outside_ms())),
        )
        .minor();
    Ok(row.followed_by(task_columns(how, &done, alone.as_ref())).followed_by(shares(&done)))
}

/// What tasks pay that allocate during the pass, and what the pass loses.
fn task_columns(how: &DeferredInit, done: &DeferredInitRun, alone: Option<&DeferredInitRun>) -> Row {
    let slower = alone.map(|alone| done.time.as_ns() / alone.time.as_ns() - 1.0);
    let worst = |times: AllocTimes| (times.count > 0).then(|| times.worst.as_ns().round());
    Row::new()
        .data("tasks", how.tasks)
        .column_as("slower", "slower %", Format::percent(1).signed(), slower)
        .data("allocations", done.during.count)
        .column_as("alloc_ns_during", "alloc ns during", Format::number(0), done.during.mean_ns())
        .column_as("alloc_ns_during_worst", "worst", Format::number(0), worst(done.during))
        .column_as("alloc_ns_after", "alloc ns after", Format::number(0), done.after.mean_ns())
        .column_as("alloc_ns_after_worst", "worst", Format::number(0), worst(done.after))
}

/// The use of the CPUs' time.
fn shares(run: &DeferredInitRun) -> Row {
    let account = &run.account;
    let all = account.total().0 as f64;
    let idle = account.of(Spent::Idle).time.0 as f64;
    let busy = all - idle;
    let of = |cause| account.of(Spent::Access(Accessed::Pages, cause)).time.0 as f64 / busy;
    let locks: u64 = LockKind::ALL.iter().map(|kind| account.of(Spent::Waiting(*kind)).time.0).sum();
    let lines = of(Cause::LocalMemory) + of(Cause::RemoteMemory);
    let (bandwidth, locks) = (of(Cause::Bandwidth), locks as f64 / busy);
    let percent = Format::percent(1);
    Row::new()
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

    fn ways_of(line: &str, name: &str) -> Result<Vec<InitThreads>, String> {
        let args: SimDeferredInitArgs = crate::args::read(line).unwrap();
        ways(&args, &Machine::built_in(name).unwrap()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn threads_are_those_of_the_published_times_or_of_the_command_line() {
        use InitThreads::{Count, OnePerCpu, OnePerNode};
        assert_eq!(ways_of("", "zen-7551-guest4"), Ok(vec![OnePerNode, Count(2), Count(3), OnePerCpu]));
        assert_eq!(ways_of("", "epyc-512"), Ok(vec![OnePerNode, OnePerCpu]));
        assert_eq!(ways_of("--quick", "haswell-2699v3"), Ok(vec![InitThreads::OnePerNode]));
        assert_eq!(ways_of("", "sparc-m7"), Ok(vec![InitThreads::BootCpu]));
        assert_eq!(ways_of("--threads 1,3..9", "zen-7551-guest4"), Ok([1, 3, 4].map(InitThreads::Count).to_vec()));
        assert!(ways_of("--threads 5..9", "zen-7551-guest4").unwrap_err().contains("from 1 to 4"));
    }
}
