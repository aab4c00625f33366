//! The early memory map as the memory of a yard.

use crate::boot::MemorySource;
use crate::memblock::{EarlyMemory, Memblock, NodeFilter, Region, RegionFlags};
use crate::units::{Geometry, NodeId, PfnRange};

impl<M: EarlyMemory, const INLINE: usize> MemorySource for Memblock<M, INLINE> {
    /// The whole frames of each region of memory; memory without a node counts as node 0.
    fn for_each_memory(&self, visit: &mut dyn FnMut(PfnRange, NodeId)) {
        self.pfn_ranges(NodeFilter::Any).for_each(|(range, node)| visit(range, node));
    }

    /// Every frame that a reserved region or a region marked no-map touches, in ascending order.
    fn for_each_reserved(&self, visit: &mut dyn FnMut(PfnRange)) {
        let geometry = self.geometry();
        let mut unmapped = self.memory().iter().filter(|region| region.flags.contains(RegionFlags::NOMAP)).peekable();
        for reserved in self.reserved() {
            while let Some(region) = unmapped.next_if(|region| region.base < reserved.base) {
                visit(touched_frames(region, geometry));
            }
            visit(touched_frames(reserved, geometry));
        }
        for region in unmapped {
            visit(touched_frames(region, geometry));
        }
    }
}

fn touched_frames(region: &Region, geometry: Geometry) -> PfnRange {
    PfnRange { start: geometry.frame_of(region.base), end: geometry.frame_at_or_above(region.end()) }
}
