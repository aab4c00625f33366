//! Errors of taking and releasing pages.

use core::fmt;

use frameyard::owners::MigrateProblem;
use frameyard::page::{ReferenceOverflow, ReferenceUnderflow};
use frameyard::{PageCount, Pfn};

use crate::address::{VirtAddr, VirtRange};
use crate::error::VmError;
use crate::space::FaultError;

/// Why no page was pinned. Nothing has changed, except that pages may have been faulted in or moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PinError {
    /// The range is empty, not page-aligned, or beyond the mappable addresses.
    BadRange(VirtRange),
    /// The first page cannot be faulted in.
    Fault(FaultError),
    /// The fast path cannot take the first page, and the request does not allow the slow one.
    NotFast(VirtAddr),
    /// The first address maps frames whose users are not counted, because the device is not mapped in the yard.
    NoPage {
        /// The address.
        addr: VirtAddr,
        /// Its frame.
        pfn: Pfn,
    },
    /// A long-term pin has to move the first page, and the migration failed.
    NotMoved {
        /// Its address.
        addr: VirtAddr,
        /// Its frame.
        pfn: Pfn,
        /// The reason.
        problem: MigrateProblem,
    },
    /// The request is for a long-term pin for writing, and the first address is a shared mapping of a file with a
    /// store.
    WritableFile(VirtAddr),
    /// The reference count of the first page would overflow.
    Overflow(ReferenceOverflow),
    /// The output slice is empty.
    NoRoom,
    /// Any other error.
    Vm(VmError),
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRange(range) => {
                write!(f, "{range} cannot be taken: take at least one whole page below {:#x}", VirtAddr::END.0)
            }
            Self::Fault(error) => error.fmt(f),
            Self::NotFast(addr) => write!(f, "the fast path cannot take the page at {addr}: allow the slow path"),
            Self::NoPage { addr, pfn } => {
                write!(f, "{addr} maps {pfn}, whose users are not counted: map its device in the yard first")
            }
            Self::NotMoved { addr, pfn, problem } => {
                write!(f, "the page at {addr} cannot stay at {pfn} for long, and moving it failed: {problem:?}")
            }
            Self::WritableFile(addr) => write!(
                f,
                "{addr} is a shared mapping of a file, which no long-term pin may write to: pin it for reading, or use shared memory"
            ),
            Self::Overflow(error) => error.fmt(f),
            Self::NoRoom => f.write_str("the output is empty: it needs room for one page"),
            Self::Vm(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PinError {}

impl From<FaultError> for PinError {
    fn from(error: FaultError) -> Self {
        Self::Fault(error)
    }
}

impl From<VmError> for PinError {
    fn from(error: VmError) -> Self {
        Self::Vm(error)
    }
}

/// Why a page was not released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReleaseProblem {
    /// It is not a page of an address space, a file, a device or a pool of huge pages.
    NoUserPage,
    /// It has fewer references or pins than the call would release.
    Underflow(ReferenceUnderflow),
    /// The page of a file could not be marked dirty.
    Vm(VmError),
}

/// Error of releasing pages.
///
/// All pages are checked before the first one is released. If one of them lacks a reference that the call would
/// release, nothing has changed (`released` is 0). A release can still fail after the check: if a page is listed twice,
/// if another caller releases it at the same time, or if a page of a file cannot be marked dirty. Then only the pages
/// before it are released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReleaseError {
    /// The first frame that was not released.
    pub pfn: Pfn,
    /// The reason.
    pub problem: ReleaseProblem,
    /// How many pages were released, from the first on.
    pub released: PageCount,
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pfn, problem, released: PageCount(released) } = self;
        match problem {
            ReleaseProblem::NoUserPage => {
                write!(
                    f,
                    "{pfn} is not a page of an address space: release only pinned pages ({released} pages released)"
                )
            }
            ReleaseProblem::Underflow(error) => write!(f, "{error} ({released} pages released)"),
            ReleaseProblem::Vm(error) => write!(f, "{pfn}: {error} ({released} pages released)"),
        }
    }
}

impl core::error::Error for ReleaseError {}
