//! The map itself: its two lists, and the settings for allocations.

use frameyard_units::{Geometry, PhysAddr};

use crate::region_array::RegionArray;
use crate::{EarlyMemory, RegionList, RegionNode};

/// The end of free memory that allocations come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AllocDirection {
    /// The highest address that fits.
    #[default]
    TopDown,
    /// The lowest address that fits.
    BottomUp,
}

/// Whether early allocations avoid hotpluggable memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MovableNodes {
    /// Allocations may use hotpluggable memory.
    #[default]
    Disabled,
    /// Allocations avoid hotpluggable memory (the kernel's `movable_node` option).
    Enabled,
}

/// When a list grows for an operation that splits regions, and where its new array lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GrowthRules {
    /// A list grows only if the splits need more slots than are free. Its new array lies outside the memory that the operation
    /// drops.
    AsNeeded,
    /// As in `mm/memblock.c`, for lent maps: an operation that may split regions demands two free slots, and the array of the
    /// memory list may lie in any free memory, except for a cap. A cap leaves its splits.
    Kernel,
}

/// The early memory map: a list of memory and a list of reservations.
///
/// Its semantics are those of Linux 6.12's `mm/memblock.c`. The documentation of each function names the kernel
/// function that it follows, and the differences. For all functions:
///
/// - A range that extends past the end of the address space is truncated there (`memblock_cap_size`). The last byte of the
///   address space is never part of a region. An empty range changes nothing.
/// - An operation that fails has not changed what it was asked to change. The array of a list may have grown, which is
///   visible only in the reserved list. If a list cannot grow, this map returns an error, where the kernel panics.
/// - When a list moves to a larger array, the map drops the reservation of the old array, including any other reservation
///   of the same bytes. Until then, functions that would drop it refuse. (The kernel does not check.)
///
/// Cost: searches are binary. An edit takes time linear in the length of its list.
///
/// `M` maps physical memory. `INLINE` is the number of regions that each list has room for before it must grow; it is
/// at least 4, which is checked at compile time.
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
    pub(crate) growth_rules: GrowthRules,
    // The node of regions that are added without one.
    pub(crate) no_node: RegionNode,
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
    /// Of the geometry, the map uses only the page size: arrays occupy whole pages, frames are whole pages of memory,
    /// and the first page of the address space is never allocated.
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
            growth_rules: GrowthRules::AsNeeded,
            no_node: RegionNode::NONE,
            geometry,
            mapping,
        }
    }

    /// Allows full lists to grow: the kernel's `memblock_allow_resize`.
    ///
    /// Call this only after all memory in use is reserved, because a list grows into memory that the map considers
    /// free.
    pub const fn allow_resize(&mut self) {
        self.can_resize = true;
    }

    /// The end of free memory that allocations come from.
    #[must_use]
    pub const fn direction(&self) -> AllocDirection {
        self.direction
    }

    /// Sets the end of free memory that allocations come from: the kernel's `memblock_set_bottom_up`.
    pub const fn set_direction(&mut self, direction: AllocDirection) {
        self.direction = direction;
    }

    /// The upper limit of allocations that have no maximum of their own.
    #[must_use]
    pub const fn current_limit(&self) -> PhysAddr {
        self.current_limit
    }

    /// Sets the upper limit of allocations that have no maximum of their own: the kernel's
    /// `memblock_set_current_limit`.
    pub const fn set_current_limit(&mut self, limit: PhysAddr) {
        self.current_limit = limit;
    }

    /// Whether allocations avoid hotpluggable memory: the kernel's `movable_node_is_enabled`.
    #[must_use]
    pub const fn movable_nodes(&self) -> MovableNodes {
        self.movable_nodes
    }

    /// Sets whether allocations avoid hotpluggable memory.
    pub const fn set_movable_nodes(&mut self, movable_nodes: MovableNodes) {
        self.movable_nodes = movable_nodes;
    }

    /// Whether any memory was ever marked mirrored, so that allocations prefer such memory: the kernel's
    /// `memblock_has_mirror`.
    #[must_use]
    pub const fn has_mirror(&self) -> bool {
        self.has_mirror
    }

    /// The geometry that the map was created with.
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
