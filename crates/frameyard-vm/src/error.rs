//! Errors that all parts of the crate share, and those of the validator.

use core::fmt;

use frameyard::devices::DeviceError;
use frameyard::page::{ReferenceOverflow, ReferenceUnderflow};
use frameyard::platform::LockError;
use frameyard::units::named;
use frameyard::{AllocError, FreeError, Pfn, PfnRange};

/// The kind of state that was found damaged: its contents make no sense, because another process or a bug has
/// overwritten them.
///
/// A call that finds damage records it in the root. From then on, [`Vm::attach`](crate::Vm::attach),
/// [`Vm::validate`](crate::Vm::validate), and calls that create or map something return it. The frames of the damaged
/// part are lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Damage {
    /// The name of a small object, or a list of frames with such objects.
    Object = 1,
    /// A tree of areas.
    Area = 2,
    /// A page table.
    PageTable = 3,
    /// An entry of a page table.
    Entry = 4,
    /// A tree of a file's pages.
    File = 5,
    /// An LRU list, or the place of a page on one.
    Lru = 6,
    /// A batch of pages for an LRU list.
    Batch = 7,
    /// The users or the state of a frame.
    Frame = 8,
    /// A list of runs of a memory region.
    Region = 9,
}

named!(Damage: Object => "small objects", Area => "areas", PageTable => "page table", Entry => "page-table entry",
    File => "file tree", Lru => "LRU list", Batch => "LRU batch", Frame => "frame", Region => "memory region");

/// Error of an operation. Nothing has changed, unless the variant or the method says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VmError {
    /// Out of memory.
    OutOfMemory(AllocError),
    /// The frame has no bytes, because the yard is phantom.
    NoFrameBytes(Pfn),
    /// A frame was freed or counted wrongly.
    Free(FreeError),
    /// More references were to be released than are held.
    Underflow(ReferenceUnderflow),
    /// A device cannot be mapped.
    Device(DeviceError),
    /// The frame is not part of a huge page that a pool has handed out.
    NotPooled(Pfn),
    /// A page's reference count would overflow.
    Overflow(ReferenceOverflow),
    /// The yard already has a root.
    AlreadyThere(Pfn),
    /// The yard has no root, or one of another version.
    NotThere,
    /// The yard has frame numbers, in the range of its memory map, that do not fit in a page-table entry.
    BeyondEntries(PfnRange),
    /// The configuration is invalid. The text says what is valid.
    BadConfig(&'static str),
    /// There are still spaces, files or pinned pages. The text says what to release.
    InUse(&'static str),
    /// A failure made by a [`FaultInjector`](crate::FaultInjector).
    Injected,
    /// The wait for another CPU's work timed out.
    Stalled,
    /// Another process holds a lock and does not release it, or has damaged the yard. The change that the call was
    /// making may be half done, and frames that it worked on may be lost.
    Lock(LockError),
    /// The state in frames is damaged. The consequences are those of `Lock`.
    Damaged(Damage),
}

impl fmt::Display for VmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(error) => error.fmt(f),
            Self::NoFrameBytes(pfn) => {
                write!(f, "{pfn} has no bytes: address spaces and files need a yard with real memory")
            }
            Self::Free(error) => error.fmt(f),
            Self::Underflow(error) => error.fmt(f),
            Self::Overflow(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::NotPooled(pfn) => {
                write!(f, "{pfn} is in no huge page that a pool has handed out: allocate the page first")
            }
            Self::AlreadyThere(pfn) => {
                write!(f, "the yard already has address spaces and files, at {pfn}: attach to them")
            }
            Self::NotThere => {
                f.write_str("the yard has no address spaces and files of this version: create them first")
            }
            Self::BeyondEntries(frames) => {
                write!(f, "the yard's frames are {frames}: frame numbers of address spaces must be below 2^40")
            }
            Self::BadConfig(what) | Self::InUse(what) => f.write_str(what),
            Self::Injected => f.write_str("injected failure"),
            Self::Stalled => f.write_str("the wait for another CPU timed out: repeat the call"),
            Self::Lock(error) => error.fmt(f),
            Self::Damaged(what) => damaged(f, *what),
        }
    }
}

fn damaged(f: &mut fmt::Formatter<'_>, what: Damage) -> fmt::Result {
    write!(f, "the state of address spaces and files is damaged ({what}): end all processes of the yard")
}

impl core::error::Error for VmError {}

impl From<LockError> for VmError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

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

/// An equation that does not hold although the yard is quiet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VmValidateError {
    /// A stored count differs from the recount.
    Count {
        /// What was counted.
        what: &'static str,
        /// The stored count.
        kept: u64,
        /// The recount.
        found: u64,
    },
    /// A frame is not what the reference to it says.
    Frame {
        /// The frame.
        pfn: Pfn,
        /// What differs.
        what: &'static str,
    },
    /// What these addresses map differs from what the space's words say.
    Addresses {
        /// The first address.
        start: u64,
        /// One past the last address.
        end: u64,
        /// What differs.
        what: &'static str,
    },
    /// Another process holds a lock and does not release it, or has damaged the yard.
    Lock(LockError),
    /// A call has found damage, just now or earlier.
    Damaged(Damage),
    /// Any other error.
    Vm(VmError),
}

impl From<VmError> for VmValidateError {
    fn from(error: VmError) -> Self {
        match error {
            VmError::Lock(error) => Self::Lock(error),
            VmError::Damaged(what) => Self::Damaged(what),
            other => Self::Vm(other),
        }
    }
}

impl fmt::Display for VmValidateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { what, kept, found } => write!(f, "{what}: {kept} kept, {found} found"),
            Self::Frame { pfn, what } => write!(f, "{pfn}: {what}"),
            Self::Addresses { start, end, what } => write!(f, "addresses [{start:#x}, {end:#x}): {what}"),
            Self::Lock(error) => error.fmt(f),
            Self::Damaged(what) => damaged(f, *what),
            Self::Vm(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for VmValidateError {}
