//! `boot`: boots a yard and prints the boot log, its zones and costs.

mod holes;
mod init_log;
mod log;
mod pcp;
mod zone_ranges;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use clap::Args;
use frameyard::CpuId;
use frameyard::boot::{InitMode, PcpReset};
use frameyard::policy::ZonePolicy;
use frameyard::stats::ZoneStatistics;
use frameyard::watermarks::PcpSizing;
use frameyard_host::{Backing, CpuIdentity, HugePages, MemoryError};
use serde_json::{Value, json};

use crate::Failure;
use crate::args::init::pcp_reset;
use crate::args::values::zone_policy;
use crate::args::{FullArgs, InitArgs, MachineArgs, OutputArgs, YardArgs};
use crate::boot::{BootOptions, BootedYard, MapMemory, ResidentParts, boot_machine};
use crate::chosen_machine::{ChosenMachine, print_notes};
use crate::machine::Machine;
use crate::output::{Report, Row, progress_bar};

/// What follows the options in the help text.
const HELP: &str = "\
Takes seconds; with --full and terabytes of memory, minutes.

Examples:
  frameyard boot
  frameyard boot --machine skylake-8167m --memory 64G --phantom
  frameyard boot --machine server-1t --phantom --init lazy
  frameyard boot --machine epyc2-256 --phantom --pcp-reset off";

/// Boots a yard on a machine and prints the boot log
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct BootArgs {
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    yard: YardArgs,
    #[command(flatten)]
    init: InitArgs,
    /// Whether per-CPU lists are sized again once all memory is initialised; prints their sizes; implies deferred
    /// initialisation and classic sizing
    #[arg(long, value_name = "WHETHER", value_parser = pcp_reset())]
    pcp_reset: Option<PcpReset>,
    #[command(flatten)]
    full: FullArgs,
    /// The policy to boot with
    #[arg(long, value_parser = zone_policy(), default_value_t)]
    policy: ZonePolicy,
    /// Make all frames present in the host's memory
    #[arg(long, conflicts_with = "phantom")]
    prefault: bool,
    /// Make the memory map present in the host's memory before its initialisation, which times then exclude
    #[arg(long)]
    prefault_map: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Boots the machine and prints the log.
pub(super) fn run(args: &BootArgs) -> Result<(), Failure> {
    let booted = boot(&args.machine, |machine| options(args, machine))?;
    let prefault_ns = if args.prefault { Some(prefault(&booted)?) } else { None };
    let resident = booted.resident()?;
    let pcp = args.pcp_reset.map(|_| pcp::distribution(booted.yard.core()));
    report(&booted, resident, prefault_ns, pcp).map_err(Failure::run_time)?.print(&args.output)
}

fn options(args: &BootArgs, machine: &Machine) -> Result<BootOptions, Failure> {
    let mut options = BootOptions {
        map_init: args.init.map_init(InitMode::Deferred, machine)?,
        map_memory: if args.prefault_map { MapMemory::Present } else { MapMemory::AsTouched },
        map_limit: args.full.map_limit(),
        policy: args.policy,
        // Without allocations, few places of an uninitialised map are written. Huge pages would only enlarge it.
        huge_pages: HugePages::Never,
        ..BootOptions::of(&args.machine, &args.yard)
    };
    if let Some(reset) = args.pcp_reset {
        pcp::check_options(args)?;
        options.map_init.pcp_reset = reset;
        options.pcp_sizing = PcpSizing::Classic;
    }
    Ok(options)
}

/// Makes all frames present in memory, by a thread for each CPU. Returns the time in nanoseconds.
fn prefault(booted: &BootedYard) -> Result<u64, Failure> {
    let memory = booted.yard.memory();
    if *memory.backing() == Backing::Phantom {
        let reason =
            format!("{}: phantom frames cannot be pre-faulted: there is nothing behind them", booted.machine.name);
        return Err(Failure::input(reason));
    }
    let host = booted.yard.platform().host();
    let threads = NonZeroUsize::new(host.allowed().as_slice().len()).unwrap_or(NonZeroUsize::MIN);
    let bar = progress_bar("pre-faulting", booted.machine.memory_bytes().0);
    let begin = Instant::now();
    let done = memory.prefault(threads, host, &mut |progress| {
        bar.set_length(progress.total.0);
        bar.set_position(progress.done.0);
    });
    let elapsed = begin.elapsed();
    bar.finish_and_clear();
    done.map_err(|error| match error {
        MemoryError::NotAvailable { .. } => Failure::input(error),
        _ => Failure::run_time(error),
    })?;
    Ok(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// Boots the chosen machine with its `options` and prints the notes.
pub(super) fn boot(
    machine: &MachineArgs,
    options: impl FnOnce(&Machine) -> Result<BootOptions, Failure>,
) -> Result<BootedYard, Failure> {
    let chosen = ChosenMachine::of(machine)?;
    // Notes describe what was booted; a refusal is alone.
    let booted = boot_machine(&chosen.machine, &options(&chosen.machine)?)?;
    chosen.print_notes();
    print_notes(&booted.notes);
    Ok(booted)
}

/// The options of a yard whose output must not depend on which CPU runs the command.
pub(super) fn reproducible(machine: &MachineArgs, yard: &YardArgs) -> BootOptions {
    let identity = Some(CpuIdentity::Fixed(CpuId(0)));
    BootOptions { huge_pages: HugePages::Never, identity, ..BootOptions::of(machine, yard) }
}

/// What was booted: a row for each zone with memory. `prefault_ns` is `None` where frames were left untouched.
fn report(
    booted: &BootedYard,
    resident: ResidentParts,
    prefault_ns: Option<u64>,
    pcp: Option<Vec<Row>>,
) -> io::Result<Report> {
    let zones: Vec<Row> = booted.yard.stats().zones().map(|zone| zone_row(booted, &zone)).collect();
    let (mut log, mut costs) = (Vec::new(), Vec::new());
    log::write(booted, &mut log)?;
    log::write_costs(booted, resident, &mut costs)?;
    if let Some(ns) = prefault_ns {
        writeln!(costs, "Pre-faulted in {:.1} ms", ns as f64 / 1e6)?;
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let used = &booted.used;
    let mut report = Report::new("boot", zones.clone())
        .of_machine(&booted.machine.name)
        .total("memory_bytes", booted.machine.memory_bytes().0)
        .total("page_bytes", booted.machine.geometry.page_size().0)
        .total("nodes", booted.yard.core().nodes())
        .total("cpus", booted.yard.core().cpus())
        .total("backing", booted.yard.memory().backing().name())
        .total("map_bytes", booted.map_bytes.0)
        .total("control_bytes", booted.control_bytes.0)
        .total("resident_bytes", resident.map.0 + resident.control.0)
        .total("map_resident_bytes", resident.map.0)
        .total("frames_resident_bytes", resident.frames.0)
        .total("boot_ns", booted.boot_ns)
        .total("boot_user_ns", nanoseconds(used.user))
        .total("boot_system_ns", nanoseconds(used.system))
        .total("boot_faults", used.faults)
        .total("map_fault_ns", booted.map_fault_ns)
        .total("prefault_ns", prefault_ns)
        .total("uninitialised_pages", booted.yard.core().init().deferred_pages().0);
    for (key, value) in init_log::totals(booted) {
        report = report.total(&key, value);
    }
    report = report.verbatim(text(log)).table(zones);
    if let Some(lists) = pcp {
        let objects = lists.iter().map(|row| Value::Object(row.object())).collect::<Vec<_>>();
        report = report.total("pcp", json!(objects)).title("Per-CPU lists:").table(lists);
    }
    Ok(report.note(text(costs).trim_end()))
}

/// The row of a zone with memory. Counts are in pages.
fn zone_row(booted: &BootedYard, zone: &ZoneStatistics) -> Row {
    // All CPUs have lists of the same size.
    let lists = booted.yard.zone(zone.id).pcp(CpuId(0));
    Row::new()
        .column("node", "node", zone.id.node().0)
        .column("zone", "zone", zone.id.kind().name())
        .column("spanned", "spanned", zone.span.count().0)
        .column("present", "present", zone.present.0)
        .column("managed", "managed", zone.managed.0)
        .column("free", "free", zone.free.0)
        .column("batch", "batch", lists.map_or(0, |lists| lists.batch.0))
        .column("high", "high", lists.map_or(0, |lists| lists.high.0))
}

fn nanoseconds(time: Duration) -> Value {
    u64::try_from(time.as_nanos()).ok().into()
}
