//! Allocation: finds free memory top-down or bottom-up, by node and within limits, and reserves it.

use core::ptr::NonNull;

use super::early_memory::clear;
use super::region::Span;
use super::{AllocDirection, EarlyMemory, Memblock, MemblockError, NodeFilter, RegionFlags, RegionList};
use frameyard_units::{ByteSize, NodeId, PhysAddr};

/// The node that an allocation comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum NodeChoice {
    /// Any memory, including memory without a node.
    #[default]
    Any,
    /// That node, or else any memory.
    Prefer(NodeId),
    /// That node only.
    Exact(NodeId),
}

impl NodeChoice {
    /// The filters to try in order. Both are equal if there is no fallback.
    const fn filters(self) -> [NodeFilter; 2] {
        match self {
            Self::Any => [NodeFilter::Any; 2],
            Self::Prefer(node) => [NodeFilter::Only(node), NodeFilter::Any],
            Self::Exact(node) => [NodeFilter::Only(node); 2],
        }
    }
}

/// A request for early memory: size, alignment, limits and node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EarlyRequest {
    /// Size in bytes.
    pub size: ByteSize,
    /// Alignment of the address: a power of two.
    pub align: ByteSize,
    /// The lowest address.
    pub min: PhysAddr,
    /// The allocation ends at or below this address. `None` stands for the map's current limit
    /// (`MEMBLOCK_ALLOC_ACCESSIBLE`), and the largest address for no limit at all (`MEMBLOCK_ALLOC_ANYWHERE`).
    pub max: Option<PhysAddr>,
    /// The node that the memory comes from.
    pub node: NodeChoice,
}

impl EarlyRequest {
    /// A request from any node, anywhere below the map's current limit.
    #[must_use]
    pub const fn new(size: ByteSize, align: ByteSize) -> Self {
        Self { size, align, min: PhysAddr(0), max: None, node: NodeChoice::Any }
    }

    /// Restricts the request to addresses at or above `min`.
    #[must_use]
    pub const fn at_or_above(self, min: PhysAddr) -> Self {
        Self { min, ..self }
    }

    /// Restricts the request to addresses below `max`, regardless of the map's current limit.
    #[must_use]
    pub const fn below(self, max: PhysAddr) -> Self {
        Self { max: Some(max), ..self }
    }

    /// Chooses the node.
    #[must_use]
    pub const fn on(self, node: NodeChoice) -> Self {
        Self { node, ..self }
    }

    const fn check(&self) -> Result<(), MemblockError> {
        if self.size.0 == 0 {
            return Err(MemblockError::EmptyRequest);
        }
        if !self.align.0.is_power_of_two() {
            return Err(MemblockError::Alignment(self.align));
        }
        Ok(())
    }
}

/// Memory from [`Memblock::alloc`], with its physical address and a pointer to access it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EarlyBlock {
    /// The physical address.
    pub address: PhysAddr,
    /// Its size.
    pub size: ByteSize,
    /// Pointer to the bytes, valid as long as the map's [`EarlyMemory`] lives.
    pub pointer: NonNull<u8>,
}

impl<M: EarlyMemory, const INLINE: usize> Memblock<M, INLINE> {
    /// Returns the address at which [`phys_alloc`](Self::phys_alloc) would allocate: the kernel's `memblock_find_in_range_node`, with the
    /// fallbacks of `memblock_alloc_range_nid`.
    ///
    /// An allocation lies within one memory region. The search skips
    /// no-map memory, driver-managed memory, the first page of the address space and, with movable nodes, hotpluggable
    /// memory. If mirrored memory exists, the search tries it first, on the requested node and then on all nodes, before
    /// other memory.
    ///
    /// # Errors
    ///
    /// [`MemblockError::OutOfMemory`] if nothing fits. [`MemblockError::Alignment`] unless the alignment is a power of
    /// two (the kernel replaces 0 by the size of a cache line). [`MemblockError::EmptyRequest`] for 0 bytes (for which
    /// the kernel returns an address that it has not reserved).
    pub fn find(&self, request: EarlyRequest) -> Result<PhysAddr, MemblockError> {
        request.check()?;
        let window = Span { start: request.min.0, end: request.max.unwrap_or(self.current_limit).0 };
        self.find_mirrored_first(request.size, request.align, window, &request.node.filters())
            .ok_or(MemblockError::OutOfMemory { size: request.size, align: request.align })
    }

    /// Allocates physical memory, which may not be mapped: the kernel's `memblock_alloc_range_nid`, the base of
    /// `memblock_phys_alloc_range` and `memblock_phys_alloc_try_nid`.
    ///
    /// # Errors
    ///
    /// Those of [`find`](Self::find), and those of [`reserve`](Self::reserve).
    pub fn phys_alloc(&mut self, request: EarlyRequest) -> Result<PhysAddr, MemblockError> {
        let address = self.find(request)?;
        self.reserve(address, request.size)?;
        Ok(address)
    }

    /// Allocates memory that is mapped and zeroed: the kernel's `memblock_alloc_try_nid`. Finds memory as
    /// [`alloc_raw`](Self::alloc_raw) does.
    ///
    /// # Errors
    ///
    /// Those of [`phys_alloc`](Self::phys_alloc), and [`MemblockError::Unmapped`] if the memory found is not
    /// mapped.
    pub fn alloc(&mut self, request: EarlyRequest) -> Result<EarlyBlock, MemblockError> {
        let block = self.alloc_raw(request)?;
        // SAFETY: `map` gave the pointer for these bytes, and `alloc_raw` has just reserved them for this block.
        unsafe { clear(block.pointer, block.size) };
        Ok(block)
    }

    /// Allocates memory that is mapped, without changing its bytes: the kernel's `memblock_alloc_try_nid_raw`, and with
    /// [`NodeChoice::Exact`] its `memblock_alloc_exact_nid_raw`.
    ///
    /// A maximum above the current limit is lowered to the limit. If nothing fits, the search is repeated without the
    /// minimum.
    ///
    /// # Errors
    ///
    /// Those of [`alloc`](Self::alloc).
    pub fn alloc_raw(&mut self, request: EarlyRequest) -> Result<EarlyBlock, MemblockError> {
        let limit = self.current_limit;
        let request = EarlyRequest { max: Some(request.max.unwrap_or(limit).min(limit)), ..request };
        let address = match self.find(request) {
            Err(MemblockError::OutOfMemory { .. }) => self.find(EarlyRequest { min: PhysAddr(0), ..request })?,
            found => found?,
        };
        let size = request.size;
        let pointer = self.mapping.map(address, size).ok_or(MemblockError::Unmapped { base: address, size })?;
        self.reserve(address, size)?;
        Ok(EarlyBlock { address, size, pointer })
    }

    /// Frees a block from [`alloc`](Self::alloc) or [`alloc_raw`](Self::alloc_raw), which must not be accessed
    /// afterwards: the kernel's `memblock_free`, which takes the pointer instead of a block.
    ///
    /// # Errors
    ///
    /// Those of [`phys_free`](Self::phys_free).
    pub fn free(&mut self, block: EarlyBlock) -> Result<(), MemblockError> {
        self.phys_free(block.address, block.size)
    }

    /// Searches the nodes in order, first in mirrored memory if there is any, then in all memory.
    pub(super) fn find_mirrored_first(
        &self,
        size: ByteSize,
        align: ByteSize,
        window: Span,
        nodes: &[NodeFilter],
    ) -> Option<PhysAddr> {
        let mirror = self.has_mirror.then_some(RegionFlags::MIRROR);
        mirror.into_iter().chain([RegionFlags::NONE]).find_map(|flags| {
            nodes.iter().find_map(|node| self.find_in_window(size.0, align.0, window, *node, flags)).map(PhysAddr)
        })
    }

    /// The kernel's `memblock_find_in_range_node`.
    fn find_in_window(&self, size: u64, align: u64, window: Span, node: NodeFilter, flags: RegionFlags) -> Option<u64> {
        // Never allocate the first page: many callers treat address 0 as failure.
        let window = Span { start: window.start.max(self.geometry.page_size().0), ..window };
        let mut pieces = self
            .free_ranges(node, flags)
            .map(|piece| piece.span())
            .map(|piece| Span { start: piece.start.max(window.start), end: piece.end.min(window.end) });
        let lowest = |piece: Span| {
            let start = piece.start.checked_next_multiple_of(align)?;
            (start < piece.end && piece.end - start >= size).then_some(start)
        };
        let highest = |piece: Span| {
            let start = piece.end.checked_sub(size)? & !(align - 1);
            (start >= piece.start).then_some(start)
        };
        match self.direction {
            AllocDirection::BottomUp => pieces.find_map(lowest),
            AllocDirection::TopDown => pieces.rev().find_map(highest),
        }
    }

    /// The range that the array of a list occupies, if the list has grown and no longer fits in the map itself.
    #[must_use]
    pub fn array_of(&self, list: RegionList) -> Option<(PhysAddr, ByteSize)> {
        self.list(list).reserved_span().map(|span| (span.base(), span.size()))
    }
}
