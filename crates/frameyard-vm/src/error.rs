//! What can go wrong, whoever asks.

use core::fmt;

use frameyard::devices::DeviceError;
use frameyard::page::{ReferenceOverflow, ReferenceUnderflow};
use frameyard::{AllocError, FreeError, Pfn};

/// Why something cannot be done. Nothing has changed then, unless it says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VmError {
    /// There is no memory for it.
    OutOfMemory(AllocError),
    /// A frame has no bytes behind it: the yard is phantom.
    NoFrameBytes(Pfn),
    /// A frame was freed or counted wrongly.
    Free(FreeError),
    /// More references were given back than there were.
    Underflow(ReferenceUnderflow),
    /// A device cannot be mapped.
    Device(DeviceError),
    /// More references were asked for than a page can count.
    Overflow(ReferenceOverflow),
    /// The yard has owners' state already.
    AlreadyThere(Pfn),
    /// The yard has no owners' state, or that of another version.
    NotThere,
    /// The configuration asks for something that cannot be: what it is, and what would be right.
    BadConfig(&'static str),
    /// It failed on purpose.
    Injected,
    /// What somebody else is at work on was not finished in time.
    Stalled,
}

impl fmt::Display for VmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(error) => error.fmt(f),
            Self::NoFrameBytes(pfn) => write!(f, "{pfn} has no bytes: address spaces and files need real memory"),
            Self::Free(error) => error.fmt(f),
            Self::Underflow(error) => error.fmt(f),
            Self::Overflow(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::AlreadyThere(pfn) => {
                write!(f, "the yard has address spaces and files already, at {pfn}: attach to them")
            }
            Self::NotThere => {
                f.write_str("the yard has no address spaces and files of this version: create them first")
            }
            Self::BadConfig(what) => f.write_str(what),
            Self::Injected => f.write_str("failed on purpose"),
            Self::Stalled => f.write_str("somebody else is at work on it and does not come to an end"),
        }
    }
}

impl core::error::Error for VmError {}

impl From<AllocError> for VmError {
    fn from(error: AllocError) -> Self {
        Self::OutOfMemory(error)
    }
}

impl From<FreeError> for VmError {
    fn from(error: FreeError) -> Self {
        Self::Free(error)
    }
}

impl From<ReferenceUnderflow> for VmError {
    fn from(error: ReferenceUnderflow) -> Self {
        Self::Underflow(error)
    }
}

/// An equation that does not hold, found while nobody was at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VmValidateError {
    /// A count kept differs from the recount.
    Count {
        /// What is counted.
        what: &'static str,
        /// The count kept.
        kept: u64,
        /// The recount.
        found: u64,
    },
    /// A frame is not what leads to it says.
    Frame {
        /// The frame.
        pfn: Pfn,
        /// What is wrong.
        what: &'static str,
    },
    /// Addresses of a space are not mapped as its words say.
    Addresses {
        /// The first address.
        start: u64,
        /// The first address behind them.
        end: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl fmt::Display for VmValidateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { what, kept, found } => write!(f, "{what}: {kept} kept, {found} found"),
            Self::Frame { pfn, what } => write!(f, "{pfn}: {what}"),
            Self::Addresses { start, end, what } => write!(f, "addresses [{start:#x}, {end:#x}): {what}"),
        }
    }
}

impl core::error::Error for VmValidateError {}
