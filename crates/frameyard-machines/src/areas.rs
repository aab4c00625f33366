//! Placement of contiguous memory areas whose description states only a size.

use frameyard_units::{ByteSize, NodeId, PhysAddr};

use super::{AddressRange, Machine, MachineNode};

impl MachineNode {
    /// Whether one range of the node's memory contains all of a range.
    pub(super) fn holds(&self, range: AddressRange) -> bool {
        self.memory.iter().any(|memory| memory.intersection(range) == range)
    }
}

impl Machine {
    /// The highest free place for a contiguous area on `node`, or on the first node with room.
    ///
    /// The area is rounded up to whole maximum-order blocks. It lies in one zone and overlaps neither reserved memory nor
    /// other areas. The kernel's `cma_declare_contiguous` also takes the top of memory.
    pub(super) fn room_for_area(&self, size: ByteSize, node: Option<NodeId>) -> Option<AddressRange> {
        let block = self.geometry.size_of(self.geometry.max_order().pages()).0;
        let size = size.0.checked_next_multiple_of(block).filter(|size| *size > 0)?;
        let wanted = |at: &usize| node.is_none_or(|node| node.index() == *at);
        (0..self.nodes.len()).filter(wanted).find_map(|at| self.room_on(&self.nodes[at], size, block))
    }

    fn room_on(&self, node: &MachineNode, size: u64, block: u64) -> Option<AddressRange> {
        let mut free = node.memory.clone();
        let limits = [self.zones.dma, self.zones.dma32].into_iter().flatten();
        // Cutting an empty range out splits the free range at a zone limit.
        let zone_ends = limits.map(|limit| AddressRange::new(limit, limit));
        for cut in self.reserved.iter().chain(&self.cma).copied().chain(zone_ends) {
            free = free.into_iter().flat_map(|range| split_at(range, cut)).collect();
        }
        free.sort_unstable();
        free.iter().rev().find_map(|range| {
            let start = range.end.0.checked_sub(size)? / block * block;
            (start >= range.start.0).then(|| AddressRange::new(PhysAddr(start), PhysAddr(start + size)))
        })
    }
}

/// The non-empty parts of a range before and after `cut`.
fn split_at(range: AddressRange, cut: AddressRange) -> impl Iterator<Item = AddressRange> {
    let front = AddressRange::new(range.start, range.end.min(cut.start));
    let behind = AddressRange::new(range.start.max(cut.end), range.end);
    let parts = if cut.end < cut.start { [range, AddressRange::default()] } else { [front, behind] };
    parts.into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in;

    fn mib(start: u64, end: u64) -> AddressRange {
        AddressRange::new(PhysAddr(start << 20), PhysAddr(end << 20))
    }

    fn machine() -> Machine {
        let mut machine = built_in("desktop-8").unwrap();
        machine.nodes = vec![MachineNode { memory: vec![mib(1, 64)] }, MachineNode { memory: vec![mib(4000, 4200)] }];
        (machine.reserved, machine.cma) = (vec![mib(50, 51)], Vec::new());
        machine
    }

    #[test]
    fn areas_take_the_top_in_whole_blocks_without_overlap() {
        let mut machine = machine();
        for expected in [mib(56, 64), mib(40, 48), mib(32, 40), mib(24, 32), mib(16, 24)] {
            let area = machine.room_for_area(ByteSize::mib(7), Some(NodeId(0))).unwrap();
            assert_eq!(area, expected);
            machine.cma.push(area);
        }
        // The DMA zone ends at 16 MiB.
        assert_eq!(machine.room_for_area(ByteSize::mib(12), Some(NodeId(0))), Some(mib(4, 16)));
        assert_eq!(machine.room_for_area(ByteSize::mib(16), Some(NodeId(0))), None);
        assert_eq!(machine.room_for_area(ByteSize::mib(100), None), Some(mib(4100, 4200)));
        assert_eq!(machine.room_for_area(ByteSize::mib(128), None), None, "two zones meet at 4 GiB");
        assert_eq!(machine.room_for_area(ByteSize(0), None), None);
        assert_eq!(machine.room_for_area(ByteSize(u64::MAX), None), None);
    }
}
