//! `/proc/vmstat`: the counters of the whole machine, one line each.

use core::fmt::{self, Write};

use super::snapshot::{ReportSource, nodes, populated_zones_of, zone_stat};
use super::{GlobalStat, KernelFormat, NodeStat, NumaEvent, VmEvent, ZoneStat};

/// Writes `/proc/vmstat`.
///
/// Values of zones and nodes are summed over all of them. Sums wrap at 2⁶⁴, as in the kernel. Modelled on the kernel's
/// `vmstat_start` and `vmstat_show`.
///
/// # Errors
///
/// Errors of `out`.
pub fn write_vmstat<S: ReportSource + ?Sized, W: Write + ?Sized>(
    source: &S,
    format: KernelFormat,
    out: &mut W,
) -> fmt::Result {
    let has_cma = source.has_cma();
    let zones = || nodes(source).flat_map(|node| populated_zones_of(source, node));
    for stat in ZoneStat::printed(format, has_cma) {
        let values = zones().map(|(id, zone)| zone_stat(source, id, &zone, stat));
        write_line(stat.name(), values.fold(0, u64::wrapping_add), out)?;
    }
    for event in NumaEvent::printed(format, has_cma) {
        let values = zones().map(|(id, _)| source.numa_event(id, event));
        write_line(event.name(), values.fold(0, u64::wrapping_add), out)?;
    }
    for stat in NodeStat::printed(format, has_cma) {
        let values = nodes(source).map(|node| source.node_stat(node, stat));
        write_line(stat.name(), values.fold(0, u64::wrapping_add), out)?;
    }
    for stat in GlobalStat::printed(format, has_cma) {
        write_line(stat.name(), source.global_stat(stat), out)?;
    }
    for event in VmEvent::printed(format, has_cma) {
        write_line(event.name(), source.event(event), out)?;
    }
    // The kernel no longer counts these. It keeps the line for existing readers.
    write_line("nr_unstable", 0, out)
}

fn write_line<W: Write + ?Sized>(name: &str, value: u64, out: &mut W) -> fmt::Result {
    writeln!(out, "{name} {value}")
}
