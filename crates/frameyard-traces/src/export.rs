//! Writing a recording as text: CSV, or lines as ftrace prints them.

use std::io::{self, Write};

use frameyard::{MigrateType, Order, Pfn};
use frameyard_formats::ExtFrag;

use crate::import::FACT_MARK;
use crate::{GfpFlags, PageEvent, TraceEvent};

/// The first line of CSV.
pub const CSV_HEADER: &str = "time_us,cpu,pid,event,pfn,order,migrate_type,gfp_flags,percpu_refill,fallback_order,fallback_type,changes_pageblock,lost_events";

/// The fields of an event that not all have.
#[derive(Default)]
struct Fields {
    pfn: Option<Pfn>,
    order: Option<Order>,
    migrate_type: Option<MigrateType>,
    gfp: Option<GfpFlags>,
    percpu_refill: Option<bool>,
    extfrag: Option<ExtFrag>,
    lost: Option<u64>,
}

impl From<&PageEvent> for Fields {
    fn from(what: &PageEvent) -> Self {
        match *what {
            PageEvent::Alloc { pfn, order, migrate_type, gfp } => {
                Self { pfn, order: Some(order), migrate_type: Some(migrate_type), gfp: Some(gfp), ..Self::default() }
            }
            PageEvent::Free(block) | PageEvent::FreeBatched(block) => {
                Self { pfn: Some(block.pfn), order: Some(block.order), ..Self::default() }
            }
            PageEvent::AllocZoneLocked { block, migrate_type, percpu_refill } => Self {
                pfn: Some(block.pfn),
                order: Some(block.order),
                migrate_type: Some(migrate_type),
                percpu_refill,
                ..Self::default()
            },
            PageEvent::PcpuDrain { block, migrate_type } => Self {
                pfn: Some(block.pfn),
                order: Some(block.order),
                migrate_type: Some(migrate_type),
                ..Self::default()
            },
            PageEvent::ExtFrag(extfrag) => Self {
                pfn: Some(extfrag.pfn),
                order: Some(extfrag.order),
                migrate_type: Some(extfrag.migrate_type),
                extfrag: Some(extfrag),
                ..Self::default()
            },
            PageEvent::Lost(lost) => Self { lost: Some(lost), ..Self::default() },
        }
    }
}

fn text<T>(value: Option<T>, print: impl Fn(T) -> String) -> String {
    value.map_or_else(String::new, print)
}

/// Writes an event as a line of CSV with the fields of [`CSV_HEADER`]. A field that the event lacks is empty.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv(event: &TraceEvent, out: &mut impl Write) -> io::Result<()> {
    let fields = Fields::from(&event.what);
    writeln!(
        out,
        "{},{},{},{},{},{},{},{},{},{},{},{},{}",
        event.time_us,
        event.cpu.0,
        event.pid,
        event.what.name(),
        text(fields.pfn, |pfn| pfn.0.to_string()),
        text(fields.order, |order| order.0.to_string()),
        text(fields.migrate_type, |of| of.name().to_owned()),
        text(fields.gfp, |gfp| gfp.to_string()),
        text(fields.percpu_refill, |refill| refill.to_string()),
        text(fields.extfrag, |extfrag| extfrag.fallback_order.0.to_string()),
        text(fields.extfrag, |extfrag| extfrag.fallback_type.name().to_owned()),
        text(fields.extfrag, |extfrag| extfrag.changes_pageblock.to_string()),
        text(fields.lost, |lost| lost.to_string()),
    )
}

/// Writes an event as a line of an ftrace text. The name of the task and the flags of its context, which a recording does not keep, are
/// `<...>` and dots.
///
/// # Errors
///
/// Those of `out`.
pub fn write_text(event: &TraceEvent, out: &mut impl Write) -> io::Result<()> {
    if let PageEvent::Lost(lost) = event.what {
        return writeln!(out, "CPU:{} [LOST {lost} EVENTS]", event.cpu.0);
    }
    let (seconds, micros) = (event.time_us / 1_000_000, event.time_us % 1_000_000);
    let name = event.what.name();
    write!(out, "<...>-{} [{:03}] ..... {seconds}.{micros:06}: {name}: ", event.pid, event.cpu.0)?;
    match event.what {
        PageEvent::Alloc { pfn, order, migrate_type, gfp } => {
            let (pfn, of) = (pfn.map_or(0, |pfn| pfn.0), migrate_type as u8);
            writeln!(out, "pfn={pfn:#x} order={} migratetype={of} gfp_flags={gfp}", order.0)
        }
        PageEvent::Free(block) | PageEvent::FreeBatched(block) => {
            writeln!(out, "pfn={:#x} order={}", block.pfn.0, block.order.0)
        }
        PageEvent::AllocZoneLocked { block, migrate_type, percpu_refill } => {
            let of = migrate_type as u8;
            write!(out, "pfn={:#x} order={} migratetype={of}", block.pfn.0, block.order.0)?;
            percpu_refill.map_or(Ok(()), |refill| write!(out, " percpu_refill={}", u8::from(refill)))?;
            writeln!(out)
        }
        PageEvent::PcpuDrain { block, migrate_type } => {
            writeln!(out, "pfn={:#x} order={} migratetype={}", block.pfn.0, block.order.0, migrate_type as u8)
        }
        PageEvent::ExtFrag(extfrag) => {
            let (of, from) = (extfrag.migrate_type as u8, extfrag.fallback_type as u8);
            let changes = u8::from(extfrag.changes_pageblock);
            write!(out, "pfn={:#x} alloc_order={} ", extfrag.pfn.0, extfrag.order.0)?;
            write!(out, "fallback_order={} alloc_migratetype={of} ", extfrag.fallback_order.0)?;
            writeln!(out, "fallback_migratetype={from} change_ownership={changes}")
        }
        PageEvent::Lost(_) => Ok(()),
    }
}

/// Writes a fact about the recording as a comment of a text.
///
/// # Errors
///
/// Those of `out`.
pub fn write_fact(name: &str, value: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# {FACT_MARK}{name}: {}", value.replace(['\n', '\r'], " "))
}
