//! The map itself: its two lists and the settings that allocations follow.

use frameyard_units::{Geometry, PhysAddr};

use crate::region_array::RegionArray;
use crate::{EarlyMemory, RegionList};

/// From which end of free memory allocations are taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AllocDirection {
    /// The highest address that fits.
    #[default]
    TopDown,
    /// The lowest address that fits.
    BottomUp,
}

/// Whether memory that may be unplugged is kept free of early allocations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MovableNodes {
    /// Hotpluggable memory is like any other.
    #[default]
    Disabled,
    /// Nothing is allocated from hotpluggable memory (the kernel's `movable_node` option).
    Enabled,
}

/// The early memory map: what memory there is, and what of it is in use.
///
/// Semantics are those of Linux 6.12's `mm/memblock.c`; each function names the one it follows, and where
/// it differs. What holds for all of them:
///
/// - A range that runs past the end of the address space is cut off there (`memblock_cap_size`); the last byte of
///   the address space is never part of a region. A range of no bytes changes nothing.
/// - An operation that fails has done nothing of what it was asked for. The array of a list may have grown on
///   the way, which shows in the reserved list alone. Where a list cannot grow the kernel panics; here it is an error.
/// - The reservation of a grown array is dropped when the list moves to the next, with whatever else was
///   reserved over the same bytes. Until then a function that would drop it refuses, where the kernel does not look.
///
/// Costs: a search is binary; an edit moves the regions behind it, so it is linear in the length of its list.
///
/// `M` reaches the bytes of memory; `INLINE` is how many regions each list holds before it must grow (at
/// least 4, checked when compiled).
///
/// ```
/// use frameyard_memblock::{EarlyRequest, Memblock, NothingMapped};
/// use frameyard_units::{ByteSize, PhysAddr};
///
/// let mut map = Memblock::new(NothingMapped);
/// map.add(PhysAddr(0), ByteSize::mib(64))?;
/// map.reserve(PhysAddr(0x10_0000), ByteSize::mib(8))?;
/// let table = map.phys_alloc(EarlyRequest::new(ByteSize::kib(64), ByteSize::kib(4)))?;
/// assert_eq!(table, PhysAddr(0x3ff_0000));
/// assert_eq!(map.reserved_size(), ByteSize(0x81_0000));
/// # Ok::<(), frameyard_memblock::MemblockError>(())
/// ```
pub struct Memblock<M, const INLINE: usize = 128> {
    pub(crate) memory: RegionArray<INLINE>,
    pub(crate) reserved: RegionArray<INLINE>,
    pub(crate) current_limit: PhysAddr,
    pub(crate) direction: AllocDirection,
    pub(crate) movable_nodes: MovableNodes,
    pub(crate) has_mirror: bool,
    pub(crate) can_resize: bool,
    pub(crate) geometry: Geometry,
    pub(crate) mapping: M,
}

impl<M: EarlyMemory> Memblock<M> {
    /// An empty map with x86-64's geometry and room for 128 regions in each list.
    #[must_use]
    pub const fn new(mapping: M) -> Self {
        Self::with_geometry(mapping, Geometry::X86_64)
    }
}

impl<M: EarlyMemory, const INLINE: usize> Memblock<M, INLINE> {
    /// An empty map.
    ///
    /// Of the geometry it uses the page size: arrays are whole pages, frames are whole pages of memory, and the
    /// first page of the address space is never allocated.
    #[must_use]
    pub const fn with_geometry(mapping: M, geometry: Geometry) -> Self {
        Self {
            memory: RegionArray::new(),
            reserved: RegionArray::new(),
            current_limit: PhysAddr(u64::MAX),
            direction: AllocDirection::TopDown,
            movable_nodes: MovableNodes::Disabled,
            has_mirror: false,
            can_resize: false,
            geometry,
            mapping,
        }
    }

    /// Lets full lists grow from now on: the kernel's `memblock_allow_resize`.
    ///
    /// Call it when all that is in use has been reserved: a list grows into memory that is free by the map.
    pub const fn allow_resize(&mut self) {
        self.can_resize = true;
    }

    /// From which end allocations are taken.
    #[must_use]
    pub const fn direction(&self) -> AllocDirection {
        self.direction
    }

    /// Takes allocations from that end from now on: the kernel's `memblock_set_bottom_up`.
    pub const fn set_direction(&mut self, direction: AllocDirection) {
        self.direction = direction;
    }

    /// The address that allocations without a maximum of their own stay below.
    #[must_use]
    pub const fn current_limit(&self) -> PhysAddr {
        self.current_limit
    }

    /// Sets the address that allocations without a maximum of their own stay below: `memblock_set_current_limit`.
    pub const fn set_current_limit(&mut self, limit: PhysAddr) {
        self.current_limit = limit;
    }

    /// Whether hotpluggable memory is kept free of allocations: the kernel's `movable_node_is_enabled`.
    #[must_use]
    pub const fn movable_nodes(&self) -> MovableNodes {
        self.movable_nodes
    }

    /// Keeps hotpluggable memory free of allocations, or no longer.
    pub const fn set_movable_nodes(&mut self, movable_nodes: MovableNodes) {
        self.movable_nodes = movable_nodes;
    }

    /// Whether any memory was ever marked mirrored, so that allocations prefer it: `memblock_has_mirror`.
    #[must_use]
    pub const fn has_mirror(&self) -> bool {
        self.has_mirror
    }

    /// The geometry given at creation.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) const fn list(&self, list: RegionList) -> &RegionArray<INLINE> {
        match list {
            RegionList::Memory => &self.memory,
            RegionList::Reserved => &self.reserved,
        }
    }

    pub(crate) const fn list_mut(&mut self, list: RegionList) -> &mut RegionArray<INLINE> {
        match list {
            RegionList::Memory => &mut self.memory,
            RegionList::Reserved => &mut self.reserved,
        }
    }
}
