//! Why pages are not taken, or not given back.

use core::fmt;

use frameyard::owners::MigrateProblem;
use frameyard::page::{ReferenceOverflow, ReferenceUnderflow};
use frameyard::{PageCount, Pfn};

use crate::address::{VirtAddr, VirtRange};
use crate::error::VmError;
use crate::space::FaultError;

/// Why no page of a range was taken. Nothing has changed then, but for pages that were mapped or moved on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PinError {
    /// The range is empty, begins or ends inside a page, or reaches beyond the addresses that can be mapped.
    BadRange(VirtRange),
    /// The first page cannot be mapped.
    Fault(FaultError),
    /// The first page is not to be had without a lock, and only such pages were asked for.
    NotFast(VirtAddr),
    /// The first address shows frames of which nobody counts the users: a device that is not mapped in the yard.
    NoPage {
        /// The address.
        addr: VirtAddr,
        /// Its frame.
        pfn: Pfn,
    },
    /// The first page has to be moved, to be taken for long, and could not be.
    NotMoved {
        /// Its address.
        addr: VirtAddr,
        /// Where it lies.
        pfn: Pfn,
        /// Why it stays there.
        problem: MigrateProblem,
    },
    /// The first page has as many references as can be counted.
    Overflow(ReferenceOverflow),
    /// There is no room for what is taken.
    NoRoom,
    /// Anything else, as everywhere.
    Vm(VmError),
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRange(range) => {
                write!(f, "{range} cannot be taken: whole pages below {:#x} can, at least one", VirtAddr::END.0)
            }
            Self::Fault(error) => error.fmt(f),
            Self::NotFast(addr) => write!(f, "the page at {addr} is not to be had without a lock: take the slow path"),
            Self::NoPage { addr, pfn } => {
                write!(f, "{addr} shows {pfn}, of which nobody counts the users: map its device in the yard first")
            }
            Self::NotMoved { addr, pfn, problem } => {
                write!(f, "the page at {addr} cannot stay at {pfn} for long and is not moved: {problem:?}")
            }
            Self::Overflow(error) => error.fmt(f),
            Self::NoRoom => f.write_str("there is no room for the pages taken: one place at least is needed"),
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

/// What is wrong with a page that is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReleaseProblem {
    /// It is no page of an address space, nor one of a device.
    NoUserPage,
    /// It has fewer references or pins than are given back.
    Underflow(ReferenceUnderflow),
}

/// Why pages were not given back.
///
/// All pages are looked at before the first one is given back, so nothing has changed where one of them has not what is
/// given back of it (`released` is 0). Where that shows later, because one page stands in the list several times or somebody
/// else gives it back meanwhile, the pages before it are given back and no others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReleaseError {
    /// The first frame that could not be given back.
    pub pfn: Pfn,
    /// Why.
    pub problem: ReleaseProblem,
    /// How many pages were given back: the first ones.
    pub released: PageCount,
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pfn, problem, released: PageCount(released) } = self;
        match problem {
            ReleaseProblem::NoUserPage => {
                write!(f, "{pfn} is no page of an address space: give back what was taken ({released} pages were)")
            }
            ReleaseProblem::Underflow(error) => write!(f, "{error} ({released} pages were)"),
        }
    }
}

impl core::error::Error for ReleaseError {}
