//! Errors of mapping, unmapping and using addresses.

use core::fmt;

use frameyard::ByteSize;
use frameyard::units::PhysAddr;

use crate::address::{VirtAddr, VirtRange};
use crate::cache::FileError;
use crate::error::VmError;
use crate::file_id::FileId;
use crate::store::StoreError;

/// Error of mapping or unmapping. Nothing has changed, unless the variant says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MapError {
    /// The range overlaps areas that exist. The value is the first overlap.
    Overlap(VirtRange),
    /// Part of the range is not mapped. The value is the first such part.
    NotMapped(VirtRange),
    /// A number of the request is not aligned.
    Misaligned {
        /// What the number is, such as "the address".
        what: &'static str,
        /// The number.
        value: u64,
        /// The required alignment.
        align: ByteSize,
    },
    /// The range is empty.
    Empty,
    /// The range extends beyond the mappable addresses.
    BeyondAddressSpace {
        /// The first address.
        start: VirtAddr,
        /// The size.
        bytes: ByteSize,
    },
    /// The physical addresses go beyond 52 bits, and do not fit in a page-table entry.
    BeyondPhysicalAddresses {
        /// The first address.
        first: PhysAddr,
        /// The size.
        bytes: ByteSize,
    },
    /// No file has this name.
    NoFile(FileId),
    /// The pages go beyond the end of the largest possible file, page 2⁵².
    BeyondFile {
        /// The number of the first page.
        first: u64,
        /// The size.
        bytes: ByteSize,
    },
    /// The space has no gap that is large enough.
    NoRoom(ByteSize),
    /// The page at this address is in migration, and the wait for it timed out. The areas of the range still exist, but
    /// other pages of it may already be freed.
    Moving(VirtAddr),
    /// Any other error.
    Vm(VmError),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap(range) => write!(f, "{range} are mapped already: unmap them first, or map elsewhere"),
            Self::NotMapped(range) => write!(f, "{range} are not mapped: unmap only what is mapped"),
            Self::Misaligned { what, value, align } => {
                write!(f, "{what} {value:#x} is not a multiple of {align}")
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
            Self::NoFile(file) => write!(f, "{file} does not exist: map one with a handle"),
            Self::BeyondFile { first, bytes } => {
                write!(f, "{bytes} from page {first} of a file: page numbers must be below 2^52")
            }
            Self::Moving(addr) => {
                write!(f, "the page at {addr} is still in migration: unmap again")
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

/// Error of using an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultError {
    /// The address is not mapped.
    NotMapped(VirtAddr),
    /// The access is a write and the area is read-only.
    ReadOnly(VirtAddr),
    /// The address maps a device that has no bytes.
    NoFrameBytes(VirtAddr),
    /// The address maps a page past the end of its file (the kernel's `SIGBUS`).
    BehindFile(VirtAddr),
    /// The store could not fill the page of the file.
    Store(StoreError),
    /// The page is in migration, and the wait for it timed out.
    Moving(VirtAddr),
    /// Any other error.
    Vm(VmError),
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMapped(addr) => write!(f, "{addr} is not mapped: map it first"),
            Self::ReadOnly(addr) => {
                write!(f, "{addr} is mapped read-only: only read there, or map it read-write")
            }
            Self::NoFrameBytes(addr) => write!(f, "{addr} maps a device without bytes: read and write memory only"),
            Self::BehindFile(addr) => {
                write!(f, "{addr} maps a page behind the end of its file: make the file larger first")
            }
            Self::Store(error) => error.fmt(f),
            Self::Moving(addr) => write!(f, "the page at {addr} is still in migration: try again"),
            Self::Vm(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FaultError {}

impl From<FileError> for FaultError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Vm(error) => Self::Vm(error),
            FileError::Store(error) => Self::Store(error),
            // Only of truncations and of transfers by offset.
            FileError::NotTruncated { why, .. } => Self::Vm(why),
            FileError::TooLarge { .. } => Self::Vm(VmError::Stalled),
        }
    }
}

impl From<VmError> for FaultError {
    fn from(error: VmError) -> Self {
        Self::Vm(error)
    }
}
