//! Errors of the early memory map.

use super::RegionList;
use frameyard_units::{ByteSize, PhysAddr, messages};

/// The error of an operation on the early memory map. The operation has changed nothing that it was asked to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemblockError {
    /// The list is full and may not grow. (The kernel panics.)
    ListFull {
        /// Which list.
        list: RegionList,
        /// The number of regions that fit.
        capacity: usize,
    },
    /// The list must grow, and no free memory fits the new array.
    NoRoomToGrow {
        /// Which list.
        list: RegionList,
        /// The size of the new array.
        size: ByteSize,
    },
    /// The memory found is not mapped.
    Unmapped {
        /// Its first byte.
        base: PhysAddr,
        /// Its size.
        size: ByteSize,
    },
    /// The reservation to be dropped contains the array of a list.
    HoldsRegionArray {
        /// Which list.
        list: RegionList,
        /// The array's first byte.
        base: PhysAddr,
        /// Its size.
        size: ByteSize,
    },
    /// The alignment is not a power of two.
    Alignment(ByteSize),
    /// A list of lent state is not sorted, or it has an empty region, overlapping regions, or a region that extends
    /// past the end of the address space.
    Disordered {
        /// Which list.
        list: RegionList,
        /// The first region that is wrong or comes after a wrong one.
        index: usize,
    },
    /// The request was for 0 bytes.
    EmptyRequest,
    /// No free memory has the requested size and alignment within the requested limits and nodes.
    OutOfMemory {
        /// The requested size.
        size: ByteSize,
        /// The requested alignment.
        align: ByteSize,
    },
}

messages!(MemblockError {
    Self::ListFull { list, capacity } => "the {list} list is full with {capacity} regions: allow it to grow first",
    Self::NoRoomToGrow { list, size } =>
        "the {list} list cannot grow: it needs {size} bytes of free memory below the current limit",
    Self::Unmapped { base, size } =>
        "{size} bytes at {base} are not mapped: set the current limit to the end of what is mapped",
    Self::HoldsRegionArray { list, base, size } => "{size} bytes at {base} hold the {list} list: leave them reserved",
    Self::Alignment(align) => "alignment {align}: must be a power of two",
    Self::Disordered { list, index } =>
        "region {index} of the {list} list is empty, overlaps the one before or is out of order: restore the list",
    Self::EmptyRequest => "an allocation of 0 bytes: request at least one",
    Self::OutOfMemory { size, align } =>
        "no {size} bytes aligned to {align} are free within the requested limits: request less or widen them",
});
