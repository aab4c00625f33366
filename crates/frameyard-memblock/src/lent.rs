//! A map whose state is kept elsewhere: a caller lends the two arrays for one operation and takes them back.
//!
//! The C interface works this way. Its `struct memblock` is the state, and its users may write to it between two calls.
//! Each call makes a [`Memblock`] from the fields of the struct, performs one operation, and writes the fields back. So
//! both languages use the same algorithms.
//!
//! A map supports arrays outside itself anyway, because a list that has grown has its array in memory of the map. A
//! lent array is such an array without a reservation.

use core::ptr::NonNull;

use frameyard_units::{ByteSize, Geometry, PhysAddr};

use super::early_memory::MappedRegions;
use super::map::GrowthRules;
use super::region::Span;
use super::region_array::{OuterArray, RegionArray};
use super::{AllocDirection, EarlyMemory, Memblock, MemblockError, MovableNodes};
use super::{Region, RegionList, RegionNode};

/// A list outside a map.
#[derive(Clone, Copy, Debug)]
pub struct LentList {
    /// The first slot of the array.
    pub regions: NonNull<Region>,
    /// The number of regions.
    pub len: usize,
    /// The number of slots.
    pub capacity: usize,
    /// The reserved range that contains the array; `None` if the map must not free it.
    pub reserved_at: Option<(PhysAddr, ByteSize)>,
}

impl LentList {
    /// # Safety
    ///
    /// Those of [`Memblock::lent`].
    const unsafe fn into_array(self) -> RegionArray<0> {
        // SAFETY: the caller of `Memblock::lent` promises initialised slots that only the map accesses.
        let slots = unsafe { MappedRegions::lent(self.regions, self.capacity) };
        let span = match self.reserved_at {
            Some((base, size)) => Some(Span::capped(base, size)),
            None => None,
        };
        let len = if self.len < self.capacity { self.len } else { self.capacity };
        RegionArray::lent(OuterArray { slots, span }, len)
    }

    fn of(mut array: RegionArray<0>) -> Self {
        let reserved_at = array.reserved_span().map(|span| (span.base(), span.size()));
        let (regions, len, capacity) = array.parts();
        Self { regions, len, capacity, reserved_at }
    }
}

/// The state of a map, kept outside it.
#[derive(Clone, Copy, Debug)]
pub struct LentState {
    /// The list of memory.
    pub memory: LentList,
    /// The list of reservations.
    pub reserved: LentList,
    /// As [`Memblock::current_limit`].
    pub current_limit: PhysAddr,
    /// As [`Memblock::direction`].
    pub direction: AllocDirection,
    /// As [`Memblock::movable_nodes`].
    pub movable_nodes: MovableNodes,
    /// As [`Memblock::has_mirror`].
    pub has_mirror: bool,
    /// Whether [`Memblock::allow_resize`] was called.
    pub can_resize: bool,
    /// The node of regions that are added without one.
    pub no_node: RegionNode,
}

impl<M: EarlyMemory> Memblock<M, 0> {
    /// Makes a map from lent state.
    ///
    /// It grows and merges as `mm/memblock.c` does. An operation that may split regions requires two free slots. The
    /// new array of the memory list may be in any free memory, even in memory that [`remove`](Self::remove) is about to
    /// drop, in which case its reservation stays. A [`cap`](Self::cap) leaves its splits in place until a change of
    /// flags or nodes reaches one of the two parts.
    ///
    /// # Safety
    ///
    /// Each array has `capacity` initialised regions, and the two do not overlap. Until the map is dropped, all accesses to them go
    /// through it.
    pub const unsafe fn lent(state: LentState, mapping: M, geometry: Geometry) -> Self {
        Self {
            // SAFETY: the caller's promise.
            memory: unsafe { state.memory.into_array() },
            // SAFETY: the caller's promise.
            reserved: unsafe { state.reserved.into_array() },
            current_limit: state.current_limit,
            direction: state.direction,
            movable_nodes: state.movable_nodes,
            has_mirror: state.has_mirror,
            can_resize: state.can_resize,
            growth_rules: GrowthRules::Kernel,
            no_node: state.no_node,
            geometry,
            mapping,
        }
    }

    /// Ends the loan, and returns the state. Arrays that have grown are in a different place now.
    pub fn take_back(self) -> LentState {
        LentState {
            current_limit: self.current_limit,
            direction: self.direction,
            movable_nodes: self.movable_nodes,
            has_mirror: self.has_mirror,
            can_resize: self.can_resize,
            no_node: self.no_node,
            memory: LentList::of(self.memory),
            reserved: LentList::of(self.reserved),
        }
    }
}

impl<M: EarlyMemory, const INLINE: usize> Memblock<M, INLINE> {
    /// Checks that both lists are sorted and have no empty region, no overlapping regions, and no region past the end
    /// of the address space.
    ///
    /// Only lent state can fail this check. Takes time linear in the length of the lists.
    ///
    /// # Errors
    ///
    /// [`MemblockError::Disordered`].
    pub fn check_order(&self) -> Result<(), MemblockError> {
        for list in [RegionList::Memory, RegionList::Reserved] {
            let mut end = 0;
            for (index, region) in self.list(list).regions().iter().enumerate() {
                let next = region.base.0.checked_add(region.size.0);
                match next {
                    Some(next) if region.base.0 >= end && region.size.0 > 0 => end = next,
                    _ => return Err(MemblockError::Disordered { list, index }),
                }
            }
        }
        Ok(())
    }
}
