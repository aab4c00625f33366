//! What can go wrong with a file.

use core::fmt;

use frameyard::ByteSize;

use crate::error::VmError;
use crate::store::StoreError;

/// Why a file was not read, written, written back or cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FileError {
    /// Memory, or somebody who does not come to an end.
    Vm(VmError),
    /// The store did not give or take a page.
    Store(StoreError),
    /// The file was not cut as far as it was to be: the same call again does the rest.
    NotCut {
        /// Where it was to end.
        wanted: ByteSize,
        /// Where it ended then.
        end: ByteSize,
        /// What kept the page before that end from being dropped, or the one in which it is to end from being cut.
        why: VmError,
    },
    /// The bytes would end behind 2⁶⁴.
    TooLarge {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        bytes: u64,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vm(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::NotCut { wanted, end, why } => {
                write!(f, "the file ends at {} and not at {} yet: {why}: cut it again", end.0, wanted.0)
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

/// Why a page was not taken out of its file. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DropProblem {
    /// It is in no file any more, or never was.
    Gone,
    /// It has to be written back first.
    Dirty,
    /// Somebody uses it, or looks at it, just now.
    Busy,
}

impl fmt::Display for DropProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the page is in no file any more",
            Self::Dirty => "the page has to be written back first",
            Self::Busy => "somebody uses the page just now",
        })
    }
}

impl core::error::Error for DropProblem {}
