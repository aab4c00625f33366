//! Errors of files.

use core::fmt;

use frameyard::ByteSize;

use crate::error::VmError;
use crate::store::StoreError;

/// Error of an operation on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FileError {
    /// Anything else, such as too little memory, or a bounded wait that timed out.
    Vm(VmError),
    /// The store failed.
    Store(StoreError),
    /// The truncation is incomplete. Repeat the call to complete it.
    NotTruncated {
        /// The end that was requested.
        wanted: ByteSize,
        /// The end that the file has now.
        end: ByteSize,
        /// Why the page before that end was not dropped, or the last page not shortened.
        why: VmError,
    },
    /// The range ends beyond 2⁶⁴.
    TooLarge {
        /// Its start.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vm(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::NotTruncated { wanted, end, why } => {
                write!(f, "the file ends at {} and not at {} yet: {why}: truncate it again", end.0, wanted.0)
            }
            Self::TooLarge { offset, bytes } => {
                write!(f, "{bytes} bytes at {offset} of a file: they must end below 2^64")
            }
        }
    }
}

impl core::error::Error for FileError {}

impl From<VmError> for FileError {
    fn from(error: VmError) -> Self {
        Self::Vm(error)
    }
}

impl From<StoreError> for FileError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Why a page was not removed from its file. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DropProblem {
    /// It is no longer in a file.
    Gone,
    /// It is dirty.
    Dirty,
    /// It is in use.
    Busy,
}

impl fmt::Display for DropProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the page is in no file",
            Self::Dirty => "the page is dirty: write it back first",
            Self::Busy => "the page is in use",
        })
    }
}

impl core::error::Error for DropProblem {}
