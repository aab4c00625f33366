//! Why an operation on the early memory map was refused.

use core::fmt;

use super::RegionList;
use frameyard_units::{ByteSize, PhysAddr};

/// Why an operation on the early memory map was refused; nothing of what was asked for has been done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemblockError {
    /// The list has no slot left and growing was never allowed (where the kernel panics).
    ListFull {
        /// Which list.
        list: RegionList,
        /// How many regions it has room for.
        capacity: usize,
    },
    /// The list must grow, and no free memory holds the new array.
    NoRoomToGrow {
        /// Which list.
        list: RegionList,
        /// The size of the new array.
        size: ByteSize,
    },
    /// The memory found is not mapped where its bytes can be written.
    Unmapped {
        /// Where it begins.
        base: PhysAddr,
        /// Its size.
        size: ByteSize,
    },
    /// The reservation to be dropped holds the array of one of the lists.
    HoldsRegionArray {
        /// Which list.
        list: RegionList,
        /// Where the array begins.
        base: PhysAddr,
        /// Its size.
        size: ByteSize,
    },
    /// The alignment is not a power of two.
    Alignment(ByteSize),
    /// An allocation of no bytes.
    EmptyRequest,
    /// No free memory of that size and alignment within the limits and nodes asked for.
    OutOfMemory {
        /// The size asked for.
        size: ByteSize,
        /// The alignment asked for.
        align: ByteSize,
    },
}

impl fmt::Display for MemblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ListFull { list, capacity } => {
                write!(f, "the {list} list is full with {capacity} regions: allow it to grow first")
            }
            Self::NoRoomToGrow { list, size } => {
                write!(f, "the {list} list cannot grow: it needs {size} bytes of free memory below the current limit")
            }
            Self::Unmapped { base, size } => {
                write!(f, "{size} bytes at {base} are not mapped: set the current limit to the end of what is mapped")
            }
            Self::HoldsRegionArray { list, base, size } => {
                write!(f, "{size} bytes at {base} hold the {list} list: leave them reserved")
            }
            Self::Alignment(align) => write!(f, "alignment {align}: must be a power of two"),
            Self::EmptyRequest => f.write_str("an allocation of 0 bytes: ask for at least one"),
            Self::OutOfMemory { size, align } => {
                write!(
                    f,
                    "no {size} bytes aligned to {align} are free within the limits asked for: ask for less or widen them"
                )
            }
        }
    }
}

impl core::error::Error for MemblockError {}
