//! Why a range of addresses cannot be mapped, unmapped or used.

use core::fmt;

use frameyard::ByteSize;
use frameyard::units::PhysAddr;

use crate::address::{VirtAddr, VirtRange};
use crate::error::VmError;

/// Why addresses are not mapped or unmapped. Nothing has changed then, unless it says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MapError {
    /// What was asked for is mapped already, in part or wholly: the first such range.
    Overlap(VirtRange),
    /// A part of what is to be unmapped is not mapped: the first such range.
    NotMapped(VirtRange),
    /// A number is not a multiple of what it has to be one of.
    Misaligned {
        /// Which number.
        what: &'static str,
        /// The number.
        value: u64,
        /// What it has to be a multiple of.
        align: ByteSize,
    },
    /// There are no bytes in the range.
    Empty,
    /// The range reaches outside what can be mapped.
    BeyondAddressSpace {
        /// Where it begins.
        start: VirtAddr,
        /// How many bytes it has.
        bytes: ByteSize,
    },
    /// Physical addresses beyond 52 bits, for which entries of page tables have no room.
    BeyondPhysicalAddresses {
        /// The first address.
        first: PhysAddr,
        /// How many bytes there are.
        bytes: ByteSize,
    },
    /// No gap is large enough.
    NoRoom(ByteSize),
    /// The page at this address is being moved, and that does not come to an end. The areas of the range are there still,
    /// its other pages may be gone.
    Moving(VirtAddr),
    /// Anything else, as everywhere.
    Vm(VmError),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap(range) => write!(f, "{range} are mapped already: unmap them first, or map elsewhere"),
            Self::NotMapped(range) => write!(f, "{range} are not mapped: unmap only what is mapped"),
            Self::Misaligned { what, value, align } => {
                write!(f, "{what} {value:#x} is no multiple of {align}: it must be one")
            }
            Self::Empty => f.write_str("a range of 0 bytes: must be at least one page"),
            Self::BeyondAddressSpace { start, bytes } => write!(
                f,
                "{bytes} bytes from {start}: addresses must be from {:#x} up to {:#x}",
                VirtAddr::LOWEST.0,
                VirtAddr::END.0
            ),
            Self::BeyondPhysicalAddresses { first, bytes } => {
                write!(f, "{bytes} bytes from physical address {first}: physical addresses must be below 2^52")
            }
            Self::Moving(addr) => {
                write!(f, "the page at {addr} is being moved, and that does not come to an end: unmap again")
            }
            Self::NoRoom(bytes) => write!(f, "no gap of {bytes} bytes is left: unmap something first, or map less"),
            Self::Vm(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for MapError {}

impl From<VmError> for MapError {
    fn from(error: VmError) -> Self {
        Self::Vm(error)
    }
}

/// Why an address cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultError {
    /// It is not mapped.
    NotMapped(VirtAddr),
    /// It is to be written, and its area is mapped to be read alone.
    ReadOnly(VirtAddr),
    /// It is mapped to what has no bytes here: a device.
    NoFrameBytes(VirtAddr),
    /// The page there is being moved, and that did not come to an end in time.
    Moving(VirtAddr),
    /// Anything else, as everywhere.
    Vm(VmError),
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMapped(addr) => write!(f, "{addr} is not mapped: map it first"),
            Self::ReadOnly(addr) => {
                write!(f, "{addr} is mapped read-only: only read there, or map it read-write")
            }
            Self::NoFrameBytes(addr) => write!(f, "{addr} shows a device, which has no bytes: read and write memory"),
            Self::Moving(addr) => write!(f, "the page at {addr} is being moved, and that does not come to an end"),
            Self::Vm(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FaultError {}

impl From<VmError> for FaultError {
    fn from(error: VmError) -> Self {
        Self::Vm(error)
    }
}
