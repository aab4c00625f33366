//! `boot`: brings up a yard, and says what came up.

mod holes;
mod init_log;
mod log;
mod pcp;
mod zone_ranges;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use frameyard::CpuId;
use frameyard::boot::InitMode;
use frameyard::stats::ZoneStatistics;
use frameyard::watermarks::PcpSizing;
use frameyard_host::{Backing, CpuIdentity, HugePages, MemoryError};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::bring_up::{BringUp, BroughtUp, MapLimit, MapMemory, ResidentParts, bring_up};
use crate::chosen_machine::{ChosenMachine, print_notes};
use crate::cli::{BootArgs, MachineArgs, YardArgs};
use crate::machine::Machine;
use crate::output::{self, Outcome, RowError, Rows};

use pcp::PcpRow;

/// Boots the machine and prints the log.
pub(super) fn run(args: &BootArgs) -> Result<(), Failure> {
    let booted = boot(&args.machine, |machine| options(args, machine))?;
    let prefault_ns = if args.prefault { Some(prefault(&booted)?) } else { None };
    let resident = booted.resident()?;
    let pcp = args.pcp_reset.map(|_| pcp::distribution(&booted.yard));
    output::print(&Boot { booted, resident, prefault_ns, pcp }, &args.output)
}

fn options(args: &BootArgs, machine: &Machine) -> Result<BringUp, Failure> {
    let mut options = BringUp {
        map_init: args.init.map_init(InitMode::Deferred, machine)?,
        map_memory: if args.prefault_map { MapMemory::Present } else { MapMemory::AsTouched },
        map_limit: if args.full { MapLimit::Full } else { MapLimit::Usual },
        policy: args.policy,
        // Nothing is allocated, so a map that nobody initialises is written at few places: huge pages would only
        // make it larger.
        huge_pages: HugePages::Never,
        ..BringUp::of(&args.machine, &args.yard)
    };
    if let Some(reset) = args.pcp_reset {
        pcp::check_options(args)?;
        options.map_init.pcp_reset = reset;
        options.pcp_sizing = PcpSizing::Classic;
    }
    Ok(options)
}

/// Makes all frames present in memory, by a thread for each CPU; says how long it took, in ns.
fn prefault(booted: &BroughtUp) -> Result<u64, Failure> {
    let memory = booted.yard.memory();
    if *memory.backing() == Backing::Phantom {
        let reason =
            format!("{}: phantom frames cannot be pre-faulted: there is nothing behind them", booted.machine.name);
        return Err(Failure::input(reason));
    }
    let host = booted.yard.platform().host();
    let threads = NonZeroUsize::new(host.allowed().as_slice().len()).unwrap_or(NonZeroUsize::MIN);
    let bar = output::progress_bar("pre-faulting", booted.machine.memory_bytes().0);
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

/// Brings up the chosen machine as `options` says for it, with its notes.
pub(super) fn boot(
    machine: &MachineArgs,
    options: impl FnOnce(&Machine) -> Result<BringUp, Failure>,
) -> Result<BroughtUp, Failure> {
    let chosen = ChosenMachine::of(machine)?;
    // Notes are about what came up; a refusal stands alone.
    let booted = bring_up(&chosen.machine, &options(&chosen.machine)?)?;
    chosen.print_notes();
    print_notes(&booted.notes);
    Ok(booted)
}

/// The options that the yard of a command gets whose output must not depend on which CPU runs it.
pub(super) fn reproducible(machine: &MachineArgs, yard: &YardArgs) -> BringUp {
    let identity = Some(CpuIdentity::Fixed(CpuId(0)));
    BringUp { huge_pages: HugePages::Never, identity, ..BringUp::of(machine, yard) }
}

struct Boot {
    booted: BroughtUp,
    resident: ResidentParts,
    /// `None` where frames were left untouched.
    prefault_ns: Option<u64>,
    /// `None` where nobody asked for it.
    pcp: Option<Vec<PcpRow>>,
}

/// A zone that has memory; counts are in pages.
#[derive(Serialize)]
struct ZoneRow {
    node: u16,
    zone: &'static str,
    spanned: u64,
    present: u64,
    managed: u64,
    free: u64,
    batch: u64,
    high: u64,
}

impl Boot {
    fn zone_rows(&self) -> Vec<ZoneRow> {
        self.booted.yard.zones().map(|zone| self.zone_row(&zone)).collect()
    }

    fn zone_row(&self, zone: &ZoneStatistics) -> ZoneRow {
        // All CPUs have lists of the same size.
        let lists = self.booted.yard.pcp_statistics(zone.id, CpuId(0));
        ZoneRow {
            node: zone.id.node().0,
            zone: zone.id.kind().name(),
            spanned: zone.span.count().0,
            present: zone.present.0,
            managed: zone.managed.0,
            free: zone.free.0,
            batch: lists.map_or(0, |lists| lists.batch.0),
            high: lists.map_or(0, |lists| lists.high.0),
        }
    }
}

fn nanoseconds(time: Duration) -> Value {
    u64::try_from(time.as_nanos()).ok().into()
}

impl Outcome for Boot {
    fn command(&self) -> &'static str {
        "boot"
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.booted.machine.name)
    }

    fn totals(&self) -> Map<String, Value> {
        let booted = &self.booted;
        let ResidentParts { map, control, frames } = self.resident;
        let mut totals = Map::from_iter([
            ("memory_bytes".to_owned(), booted.machine.memory_bytes().0.into()),
            ("page_bytes".to_owned(), booted.machine.geometry.page_size().0.into()),
            ("nodes".to_owned(), booted.yard.nodes().into()),
            ("cpus".to_owned(), booted.yard.cpus().into()),
            ("backing".to_owned(), booted.yard.memory().backing().name().into()),
            ("map_bytes".to_owned(), booted.map_bytes.0.into()),
            ("control_bytes".to_owned(), booted.control_bytes.0.into()),
            ("resident_bytes".to_owned(), (map.0 + control.0).into()),
            ("map_resident_bytes".to_owned(), map.0.into()),
            ("frames_resident_bytes".to_owned(), frames.0.into()),
            ("boot_ns".to_owned(), booted.boot_ns.into()),
            ("boot_user_ns".to_owned(), nanoseconds(booted.used.user)),
            ("boot_system_ns".to_owned(), nanoseconds(booted.used.system)),
            ("boot_faults".to_owned(), booted.used.faults.into()),
            ("map_fault_ns".to_owned(), booted.map_fault_ns.into()),
            ("prefault_ns".to_owned(), self.prefault_ns.into()),
            ("uninitialised_pages".to_owned(), booted.yard.uninitialised_pages().0.into()),
        ]);
        totals.extend(init_log::totals(booted));
        totals.extend(self.pcp.as_ref().map(|rows| ("pcp".to_owned(), json!(rows))));
        totals
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.zone_rows())
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        log::write(&self.booted, out)?;
        writeln!(out)?;
        output::Table::of(&self.rows().map_err(io::Error::other)?).write(out)?;
        writeln!(out)?;
        if let Some(rows) = &self.pcp {
            pcp::write(rows, out)?;
            writeln!(out)?;
        }
        log::write_costs(&self.booted, self.resident, out)?;
        match self.prefault_ns {
            Some(ns) => writeln!(out, "Pre-faulted in {:.1} ms", ns as f64 / 1e6),
            None => Ok(()),
        }
    }
}
