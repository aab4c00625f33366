//! Queries: what there is at an address or in a range, and total sizes.

use super::region::Span;
use super::{EarlyMemory, Memblock, Region, RegionFlags, RegionList};
use frameyard_units::{ByteSize, NodeId, Pfn, PfnRange, PhysAddr};

impl<M: EarlyMemory, const INLINE: usize> Memblock<M, INLINE> {
    /// The memory region that holds an address: the kernel's `memblock_search` on memory.
    #[must_use]
    pub fn memory_at(&self, address: PhysAddr) -> Option<&Region> {
        self.memory.search(address)
    }

    /// The reservation that holds an address: the kernel's `memblock_search` on reservations.
    #[must_use]
    pub fn reserved_at(&self, address: PhysAddr) -> Option<&Region> {
        self.reserved.search(address)
    }

    /// Whether there is memory at an address: the kernel's `memblock_is_memory`.
    #[must_use]
    pub fn is_memory(&self, address: PhysAddr) -> bool {
        self.memory_at(address).is_some()
    }

    /// Whether there is memory at an address that may be mapped: the kernel's `memblock_is_map_memory`.
    #[must_use]
    pub fn is_map_memory(&self, address: PhysAddr) -> bool {
        self.memory_at(address).is_some_and(|region| !region.flags.contains(RegionFlags::NOMAP))
    }

    /// Whether an address is reserved: the kernel's `memblock_is_reserved`.
    #[must_use]
    pub fn is_reserved(&self, address: PhysAddr) -> bool {
        self.reserved_at(address).is_some()
    }

    /// Whether one memory region contains the whole range: the kernel's `memblock_is_region_memory`.
    ///
    /// False for a range across two regions with different nodes or flags, as in the kernel. An empty range counts as
    /// inside the region that contains its address.
    #[must_use]
    pub fn is_region_memory(&self, base: PhysAddr, size: ByteSize) -> bool {
        let span = Span::capped(base, size);
        self.memory_at(base).is_some_and(|region| span.end <= region.end().0)
    }

    /// Whether any byte of a range is reserved: the kernel's `memblock_is_region_reserved`. Treats an empty range as
    /// [`overlaps`](Self::overlaps) does.
    #[must_use]
    pub fn is_region_reserved(&self, base: PhysAddr, size: ByteSize) -> bool {
        self.overlaps(RegionList::Reserved, base, size)
    }

    /// Whether any byte of a range is in a list: the kernel's `memblock_overlaps_region`.
    ///
    /// An empty range overlaps the region that has bytes on both sides of it, as in the kernel.
    #[must_use]
    pub fn overlaps(&self, list: RegionList, base: PhysAddr, size: ByteSize) -> bool {
        self.list(list).overlaps(Span::capped(base, size))
    }

    /// The node of the memory at an address; `None` if there is no memory there, or memory without a node.
    #[must_use]
    pub fn node_of(&self, address: PhysAddr) -> Option<NodeId> {
        self.memory_at(address)?.node.id()
    }

    /// The frames of the memory region that contains a frame's first byte, with both ends rounded down, and its node:
    /// the kernel's `memblock_search_pfn_nid`.
    #[must_use]
    pub fn search_pfn(&self, pfn: Pfn) -> Option<(PfnRange, Option<NodeId>)> {
        let geometry = self.geometry();
        let region = self.memory_at(PhysAddr(pfn.0.checked_mul(geometry.page_size().0)?))?;
        let frames = PfnRange { start: geometry.frame_of(region.base), end: geometry.frame_of(region.end()) };
        Some((frames, region.node.id()))
    }

    /// The size of all memory, reserved or not: the kernel's `memblock_phys_mem_size`. Linear in the list.
    #[must_use]
    pub fn phys_mem_size(&self) -> ByteSize {
        self.memory.total_size()
    }

    /// The size of all reservations, in memory or elsewhere: the kernel's `memblock_reserved_size`. Linear in the list.
    #[must_use]
    pub fn reserved_size(&self) -> ByteSize {
        self.reserved.total_size()
    }

    /// The first byte of memory; `None` without memory: the kernel's `memblock_start_of_DRAM`.
    #[must_use]
    pub fn start_of_dram(&self) -> Option<PhysAddr> {
        self.memory().first().map(|region| region.base)
    }

    /// The end of the last memory region; `None` without memory: the kernel's `memblock_end_of_DRAM`.
    #[must_use]
    pub fn end_of_dram(&self) -> Option<PhysAddr> {
        self.memory().last().map(Region::end)
    }
}
