//! `/proc/zoneinfo`: all values of each zone, populated or not.

use core::fmt::{self, Write};

use frameyard::watermarks::WatermarkLevel;
use frameyard::{CpuId, NodeId, ZoneId};

use super::snapshot::{ReportSource, ZoneSnapshot, nodes, zone_stat, zones_of};
use super::{KernelFormat, NodeStat, NumaEvent, ZoneStat};

/// Writes `/proc/zoneinfo`.
///
/// The first populated zone of a node also shows the statistics of the node. An unpopulated zone ends after its
/// protection. Modelled on the kernel's `zoneinfo_show_print`.
///
/// # Errors
///
/// Errors of `out`.
pub fn write_zoneinfo<S: ReportSource + ?Sized, W: Write + ?Sized>(
    source: &S,
    format: KernelFormat,
    out: &mut W,
) -> fmt::Result {
    for node in nodes(source) {
        let mut node_stats_written = false;
        for (id, zone) in zones_of(source, node) {
            let populated = zone.present.0 > 0;
            writeln!(out, "Node {}, zone {:>8}", node.0, id.kind())?;
            if populated && !node_stats_written {
                write_node_stats(source, node, format, out)?;
                node_stats_written = true;
            }
            write_pages(&zone, format, out)?;
            if populated {
                write_zone_stats(source, id, &zone, format, out)?;
                write_pagesets(source, id, out)?;
                writeln!(out, "  node_unreclaimable:  {}", u8::from(source.node_unreclaimable(node)))?;
                writeln!(out, "  start_pfn:           {}", zone.start.0)?;
            }
        }
    }
    Ok(())
}

fn write_node_stats<S: ReportSource + ?Sized, W: Write + ?Sized>(
    source: &S,
    node: NodeId,
    format: KernelFormat,
    out: &mut W,
) -> fmt::Result {
    writeln!(out, "  per-node stats")?;
    for stat in NodeStat::printed(format, source.has_cma()) {
        writeln!(out, "      {:<12} {}", stat.name(), source.node_stat(node, stat))?;
    }
    Ok(())
}

fn write_pages<W: Write + ?Sized>(zone: &ZoneSnapshot, format: KernelFormat, out: &mut W) -> fmt::Result {
    let marks = zone.watermarks;
    writeln!(out, "  pages free     {}", zone.free.0)?;
    let rows = [
        ("boost", Some(marks.boost)),
        ("min", Some(marks.level(WatermarkLevel::Min))),
        ("low", Some(marks.level(WatermarkLevel::Low))),
        ("high", Some(marks.level(WatermarkLevel::High))),
        ("promo", (format == KernelFormat::V6_12).then(|| marks.level(WatermarkLevel::Promo))),
        ("spanned", Some(zone.spanned)),
        ("present", Some(zone.present)),
        ("managed", Some(zone.managed)),
        ("cma", Some(zone.cma)),
    ];
    for (name, pages) in rows {
        if let Some(pages) = pages {
            writeln!(out, "        {name:<8} {}", pages.0)?;
        }
    }
    let [first, rest @ ..] = zone.protection;
    write!(out, "        protection: ({}", first.0)?;
    for pages in rest {
        write!(out, ", {}", pages.0)?;
    }
    out.write_str(")\n")
}

fn write_zone_stats<S: ReportSource + ?Sized, W: Write + ?Sized>(
    source: &S,
    id: ZoneId,
    zone: &ZoneSnapshot,
    format: KernelFormat,
    out: &mut W,
) -> fmt::Result {
    for stat in ZoneStat::printed(format, source.has_cma()) {
        writeln!(out, "      {:<12} {}", stat.name(), zone_stat(source, id, zone, stat))?;
    }
    for event in NumaEvent::printed(format, source.has_cma()) {
        writeln!(out, "      {:<12} {}", event.name(), source.numa_event(id, event))?;
    }
    Ok(())
}

fn write_pagesets<S: ReportSource + ?Sized, W: Write + ?Sized>(source: &S, id: ZoneId, out: &mut W) -> fmt::Result {
    writeln!(out, "  pagesets")?;
    for cpu in 0..source.cpus() {
        let lists = source.per_cpu(id, CpuId(cpu));
        writeln!(out, "    cpu: {cpu}")?;
        writeln!(out, "              count: {}", lists.count.0)?;
        writeln!(out, "              high:  {}", lists.high.0)?;
        writeln!(out, "              batch: {}", lists.batch.0)?;
        writeln!(out, "  vm stats threshold: {}", lists.stat_threshold)?;
    }
    Ok(())
}
