//! A yard with room for devices behind its memory.
use frameyard::boot::{InitMode, Initialiser, MapInit, ZoneLimits};
use frameyard::devices::{DeviceRequest, MapLayout, MapPlacement};
use frameyard::page::MapContent;
use frameyard::{MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};

use crate::fixture::{Fixture, Frames, run_on};

/// Frames of a section.
pub(crate) const SECTION: u64 = 32 << 10;
/// Where devices may be: from the section behind memory on.
pub(crate) const SPACE: PfnRange = PfnRange { start: Pfn(SECTION), end: Pfn(24 * SECTION) };
/// Memory: 16 MiB on node 0, and 8 MiB on node 1 in the middle of a section of the device space.
pub(crate) const MEMORY: [(PfnRange, NodeId); 2] = [
    (PfnRange { start: Pfn(0x1000), end: Pfn(0x2000) }, NodeId(0)),
    (PfnRange { start: Pfn(23 * SECTION + 0x1000), end: Pfn(23 * SECTION + 0x1800) }, NodeId(1)),
];
/// 2 MiB and 1 GiB.
pub(crate) const HUGE: Order = Order(9);
pub(crate) const GIGANTIC: Order = Order(18);

pub(crate) fn yard() -> Fixture {
    yard_with(MapInit::default(), Some(SPACE))
}

/// A yard whose pages hold what the kernel's do.
pub(crate) fn kernel_yard() -> Fixture {
    let (content, initialiser) = (MapContent::Kernel, Initialiser::Stream);
    yard_with(MapInit { mode: InitMode::Eager, content, initialiser, ..MapInit::default() }, Some(SPACE))
}

pub(crate) fn yard_with(map_init: MapInit, device_space: Option<PfnRange>) -> Fixture {
    run_on(0);
    let cpus = [NodeId(0), NodeId(1), NodeId(0), NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, device_space, map_init, ..YardConfig::new(&cpus) };
    Fixture::new(&MemoryTable { memory: &MEMORY, ..MemoryTable::default() }, &config, Frames::Phantom)
}

/// Frames of the device space, counted from its first.
pub(crate) fn frames(first: u64, count: u64) -> PfnRange {
    PfnRange::new(SPACE.start + PageCount(first), PageCount(count))
}

pub(crate) fn request(range: PfnRange, order: Order, layout: MapLayout) -> DeviceRequest {
    DeviceRequest { range, node: NodeId(0), order, layout, placement: MapPlacement::Memory }
}
