//! The early memory map of a machine: its memory, its reservations, and its contiguous areas.

use frameyard::boot::MemorySource;
use frameyard::memblock::{Memblock, NothingMapped, Region, RegionFlags};
use frameyard::{NodeId, PfnRange};

use super::BootFailure;
use crate::machine::{AddressRange, Machine};

/// Regions for which each list has room. The lists cannot grow: no memory is mapped yet.
const REGIONS: usize = 2048;

/// A filled early memory map, and the contiguous areas. These are no reservations: movable allocations use them.
pub(super) struct EarlyMap {
    memblock: Box<Memblock<NothingMapped, REGIONS>>,
    cma: Vec<PfnRange>,
}

impl EarlyMap {
    /// The map of a machine, and notes on what it had to change.
    pub(super) fn of(machine: &Machine) -> Result<(Self, Vec<String>), BootFailure> {
        let mut memblock = Box::new(Memblock::with_geometry(NothingMapped, machine.geometry));
        for (node, range) in machine.memory_ranges() {
            memblock.add_node(range.start, range.bytes(), node, RegionFlags::NONE).map_err(BootFailure::EarlyMap)?;
        }
        for range in &machine.reserved {
            memblock.reserve(range.start, range.bytes()).map_err(BootFailure::EarlyMap)?;
        }
        let mut notes = Vec::new();
        let areas = machine.cma.iter().map(|area| whole_blocks(machine, *area, &mut notes));
        let mut cma: Vec<PfnRange> = areas.filter(|range| !range.is_empty()).collect();
        cma.sort_unstable_by_key(|range| range.start);
        Ok((Self { memblock, cma }, notes))
    }

    /// The regions of memory, lowest first.
    pub(super) fn memory(&self) -> &[Region] {
        self.memblock.memory()
    }
}

/// The maximum-order blocks that lie wholly in a contiguous area.
fn whole_blocks(machine: &Machine, area: AddressRange, notes: &mut Vec<String>) -> PfnRange {
    let order = machine.geometry.max_order();
    let frames = area.whole_frames(machine.geometry);
    let start = frames.start.align_up(order).unwrap_or(frames.end);
    let blocks = PfnRange { start, end: frames.end.align_down(order) };
    if blocks != frames {
        notes.push(format!("contiguous memory area {area} is cut to whole maximum-order blocks"));
    }
    blocks
}

impl MemorySource for EarlyMap {
    fn for_each_memory(&self, visit: &mut dyn FnMut(PfnRange, NodeId)) {
        self.memblock.for_each_memory(visit);
    }

    fn for_each_reserved(&self, visit: &mut dyn FnMut(PfnRange)) {
        self.memblock.for_each_reserved(visit);
    }

    fn for_each_cma(&self, visit: &mut dyn FnMut(PfnRange)) {
        self.cma.iter().for_each(|area| visit(*area));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::built_in;
    use frameyard::Pfn;
    use frameyard::units::PhysAddr;

    fn areas(map: &EarlyMap) -> Vec<PfnRange> {
        let mut areas = Vec::new();
        map.for_each_cma(&mut |area| areas.push(area));
        areas
    }

    #[test]
    fn memory_of_a_machine_is_in_the_map_with_its_nodes() {
        let machine = built_in("skylake-8167m").unwrap();
        let (map, notes) = EarlyMap::of(&machine).unwrap();
        let mut frames = [0; 2];
        map.for_each_memory(&mut |range, node| frames[node.index()] += range.count().0);
        for (node, frames) in frames.into_iter().enumerate() {
            let bytes = machine.node_bytes(NodeId(node as u16));
            // Half pages at the edges of ranges are left out.
            assert!(frames.abs_diff(bytes.0 >> 12) <= 4, "node {node}: {frames}");
        }
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn contiguous_areas_are_cut_to_whole_blocks_with_a_note() {
        let mut machine = built_in("desktop-8").unwrap();
        let area = |start: u64, end: u64| AddressRange::new(PhysAddr(start << 20), PhysAddr(end << 20));
        machine.cma = vec![area(258, 270), area(64, 80), area(513, 515)];
        let (map, notes) = EarlyMap::of(&machine).unwrap();
        let expected =
            [(64, 80), (260, 268)].map(|(start, end)| PfnRange { start: Pfn(start << 8), end: Pfn(end << 8) });
        assert_eq!(areas(&map), expected);
        assert_eq!(notes.len(), 2, "{notes:?}");
    }
}
