//! Iterators over memory, reservations, free memory and whole page frames.

use core::iter::FusedIterator;
use core::slice;

use super::{EarlyMemory, Memblock, MovableNodes, NodeFilter, Region, RegionFlags};
use frameyard_units::{Geometry, NodeId, PfnRange};

impl<M: EarlyMemory, const INLINE: usize> Memblock<M, INLINE> {
    /// All memory regions, lowest first: the kernel's `for_each_mem_region`.
    #[must_use]
    pub fn memory(&self) -> &[Region] {
        self.memory.regions()
    }

    /// All reserved regions, lowest first: the kernel's `for_each_reserved_mem_region`.
    #[must_use]
    pub fn reserved(&self) -> &[Region] {
        self.reserved.regions()
    }

    /// Memory that may be mapped, lowest first: the kernel's `for_each_mem_range`, which has no node filter.
    ///
    /// Includes hotpluggable and driver-managed memory.
    pub fn memory_ranges(&self, node: NodeFilter) -> impl DoubleEndedIterator<Item = Region> {
        let filter = self.filter(node, RegionFlags::HOTPLUG | RegionFlags::DRIVER_MANAGED);
        self.memory().iter().filter(move |region| filter.admits(region)).copied()
    }

    /// Reservations, lowest first: the kernel's `for_each_reserved_mem_range`.
    ///
    /// Unlike the kernel, the map can filter reservations by the node that [`set_node`](Self::set_node) gave them. By
    /// default a reservation has no node.
    pub fn reserved_ranges(&self, node: NodeFilter) -> impl DoubleEndedIterator<Item = Region> {
        self.reserved().iter().filter(move |region| node.admits(region.node.id())).copied()
    }

    /// Memory that is not reserved, lowest first, or with `.rev()` highest first: the kernel's
    /// `for_each_free_mem_range` and `for_each_free_mem_range_reverse`.
    ///
    /// Each item is inside one memory region and has that region's node and flags. `flags` selects memory as in the
    /// kernel. With `MIRROR`, only mirrored memory is visited. `NOMAP` and `DRIVER_MANAGED` memory is visited only with
    /// the same flag and, on a map with movable nodes, `HOTPLUG` memory too.
    #[must_use]
    pub fn free_ranges(&self, node: NodeFilter, flags: RegionFlags) -> FreeRanges<'_> {
        FreeRanges {
            memory: self.memory(),
            reserved: self.reserved(),
            front: 0,
            back: u64::MAX,
            filter: self.filter(node, flags),
        }
    }

    /// The whole page frames of each memory region, lowest first, with their node: the kernel's
    /// `for_each_mem_pfn_range`.
    ///
    /// Includes no-map memory. Skips regions without a whole page. Memory without a node counts as memory of node 0, as on
    /// a machine whose firmware does not report nodes.
    #[must_use]
    pub fn pfn_ranges(&self, node: NodeFilter) -> PfnRanges<'_> {
        PfnRanges { regions: self.memory().iter(), geometry: self.geometry(), node }
    }

    fn filter(&self, node: NodeFilter, flags: RegionFlags) -> RegionFilter {
        RegionFilter { node, flags, movable_nodes: self.movable_nodes() }
    }
}

/// Which memory regions an iteration walks: the kernel's `should_skip_region`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionFilter {
    pub(super) node: NodeFilter,
    pub(super) flags: RegionFlags,
    pub(super) movable_nodes: MovableNodes,
}

impl RegionFilter {
    pub(super) fn admits(&self, region: &Region) -> bool {
        let only_if_asked = |flag| !region.flags.contains(flag) || self.flags.contains(flag);
        self.node.admits(region.node.id())
            && (self.movable_nodes == MovableNodes::Disabled || only_if_asked(RegionFlags::HOTPLUG))
            && (!self.flags.contains(RegionFlags::MIRROR) || region.flags.contains(RegionFlags::MIRROR))
            && only_if_asked(RegionFlags::NOMAP)
            && only_if_asked(RegionFlags::DRIVER_MANAGED)
    }
}

/// An iterator over free memory, from [`Memblock::free_ranges`].
#[derive(Clone, Debug)]
pub struct FreeRanges<'a> {
    // Each end drops the regions that it has passed.
    memory: &'a [Region],
    reserved: &'a [Region],
    // The remaining ranges are between `front` and `back`, both of which are ends of free ranges.
    front: u64,
    back: u64,
    filter: RegionFilter,
}

impl Iterator for FreeRanges<'_> {
    type Item = Region;

    fn next(&mut self) -> Option<Region> {
        while let Some((region, later)) = self.memory.split_first() {
            if region.end().0 <= self.front || !self.filter.admits(region) {
                self.memory = later;
                continue;
            }
            let mut free = region.span();
            free.start = free.start.max(self.front);
            if free.start >= self.back {
                return None;
            }
            while let Some((_, later)) = self.reserved.split_first().filter(|(first, _)| first.end().0 <= free.start) {
                self.reserved = later;
            }
            if let Some(reserved) = self.reserved.first() {
                if reserved.base.0 <= free.start {
                    self.front = reserved.end().0;
                    continue;
                }
                free.end = free.end.min(reserved.base.0);
            }
            self.front = free.end;
            return Some(Region::new(free, region.node, region.flags));
        }
        None
    }
}

impl DoubleEndedIterator for FreeRanges<'_> {
    fn next_back(&mut self) -> Option<Region> {
        while let Some((region, earlier)) = self.memory.split_last() {
            if region.base.0 >= self.back || !self.filter.admits(region) {
                self.memory = earlier;
                continue;
            }
            let mut free = region.span();
            free.end = free.end.min(self.back);
            if free.end <= self.front {
                return None;
            }
            while let Some((_, earlier)) = self.reserved.split_last().filter(|(last, _)| last.base.0 >= free.end) {
                self.reserved = earlier;
            }
            if let Some(reserved) = self.reserved.last() {
                if reserved.end().0 >= free.end {
                    self.back = reserved.base.0;
                    continue;
                }
                free.start = free.start.max(reserved.end().0);
            }
            self.back = free.start;
            return Some(Region::new(free, region.node, region.flags));
        }
        None
    }
}

impl FusedIterator for FreeRanges<'_> {}

/// An iterator over whole page frames of memory, from [`Memblock::pfn_ranges`].
#[derive(Clone, Debug)]
pub struct PfnRanges<'a> {
    regions: slice::Iter<'a, Region>,
    geometry: Geometry,
    node: NodeFilter,
}

impl Iterator for PfnRanges<'_> {
    type Item = (PfnRange, NodeId);

    fn next(&mut self) -> Option<Self::Item> {
        let Self { regions, geometry, node: filter } = self;
        regions.find_map(|region| {
            let node = region.node.id().unwrap_or_default();
            let frames = region.whole_frames(*geometry);
            (!frames.is_empty() && filter.admits(Some(node))).then_some((frames, node))
        })
    }
}

impl FusedIterator for PfnRanges<'_> {}
