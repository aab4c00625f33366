//! The boot log as text, in the kernel's words where it has them.

use std::io::{self, Write};

use frameyard::stats::ZoneStatistics;
use frameyard::units::ZoneKind;
use frameyard::{Geometry, PageCount};

use super::init_log::{self, counted};
use super::zone_ranges::{frames, node_ranges, zone_ranges};
use crate::boot::{BootedYard, ResidentParts};
use crate::output::RoundedSize;

/// The kernel's lines on its zones.
pub(super) fn write(booted: &BootedYard, out: &mut dyn Write) -> io::Result<()> {
    let (machine, yard) = (&booted.machine, &booted.yard);
    writeln!(
        out,
        "{}: {} of memory on {}, {}, pages of {}, {} frames",
        machine.name,
        RoundedSize(machine.memory_bytes()),
        counted(u64::from(yard.core().nodes()), "node"),
        counted(u64::from(yard.core().cpus()), "CPU"),
        machine.geometry.page_size(),
        yard.memory().backing().name(),
    )?;
    for area in yard.core().cma().ranges() {
        let start = machine.geometry.address_of(area.start).0;
        let node = yard.core().zone_of(area.start).map_or(0, |zone| zone.node().0);
        let size = machine.geometry.size_of(area.count()).0 >> 20;
        writeln!(out, "cma: Reserved {size} MiB at {start:#018x} on node {node}")?;
    }
    let zones: Vec<ZoneStatistics> = yard.stats().zones().collect();
    write_zone_ranges(booted, &zones, out)?;
    writeln!(out, "Early memory node ranges")?;
    for (node, range) in node_ranges(booted) {
        writeln!(out, "  node {:>3}: {}", node.0, frames(machine.geometry, range))?;
    }
    init_log::write_nodes(booted, out)?;
    write_totals(machine.geometry, &zones, out)?;
    init_log::write_initialised(booted, out)
}

fn write_zone_ranges(booted: &BootedYard, zones: &[ZoneStatistics], out: &mut dyn Write) -> io::Result<()> {
    let geometry = booted.machine.geometry;
    writeln!(out, "Zone ranges:")?;
    for (kind, range) in zone_ranges(booted) {
        let range = if range.is_empty() { "empty".to_owned() } else { frames(geometry, range) };
        writeln!(out, "  {kind:<8} {range}")?;
    }
    // A boot adds no device memory.
    writeln!(out, "  {:<8} empty", ZoneKind::Device)?;
    writeln!(out, "Movable zone start for each node")?;
    for zone in zones.iter().filter(|zone| zone.id.kind() == ZoneKind::Movable) {
        writeln!(out, "  Node {}: {:#018x}", zone.id.node().0, geometry.address_of(zone.span.start).0)?;
    }
    Ok(())
}

fn write_totals(geometry: Geometry, zones: &[ZoneStatistics], out: &mut dyn Write) -> io::Result<()> {
    let total = |of: fn(&ZoneStatistics) -> PageCount| zones.iter().map(of).sum::<PageCount>();
    let kib = |pages: PageCount| geometry.size_of(pages).0 >> 10;
    let (present, managed, cma) = (total(|zone| zone.present), total(|zone| zone.managed), total(|zone| zone.cma));
    let mut nodes: Vec<_> = zones.iter().map(|zone| zone.id.node()).collect();
    nodes.dedup();
    writeln!(out, "Built {} zonelists, mobility grouping on.  Total pages: {}", nodes.len(), managed.0)?;
    writeln!(
        out,
        "Memory: {}K/{}K available ({}K reserved, {}K cma-reserved)",
        kib(managed),
        kib(present),
        kib(present - managed),
        kib(cma)
    )
}

/// The cost of the boot.
pub(super) fn write_costs(booted: &BootedYard, resident: ResidentParts, out: &mut dyn Write) -> io::Result<()> {
    let parts = [
        ("Memory map", booted.map_bytes, resident.map),
        ("Control region", booted.control_bytes, resident.control),
        ("Frames", booted.machine.memory_bytes(), resident.frames),
    ];
    for (what, size, resident) in parts {
        writeln!(out, "{what}: {}, of which {} resident", RoundedSize(size), RoundedSize(resident))?;
    }
    let metadata = booted.map_bytes.0 + booted.control_bytes.0;
    let share = metadata as f64 * 100.0 / booted.machine.memory_bytes().0.max(1) as f64;
    writeln!(out, "Memory map and control region: {share:.3} % of memory")?;
    if let Some(ns) = booted.map_fault_ns {
        writeln!(out, "Memory map faulted in beforehand, in {:.1} ms", ns as f64 / 1e6)?;
    }
    let used = &booted.used;
    writeln!(
        out,
        "Booted in {:.1} ms; processor time {:.1} ms, and {:.1} ms in the host's kernel, with {}",
        booted.boot_ns as f64 / 1e6,
        used.user.as_secs_f64() * 1e3,
        used.system.as_secs_f64() * 1e3,
        counted(used.faults, "page fault"),
    )
}
