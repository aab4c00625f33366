//! Bringing up what is left of the memory map while the yard is in use.

use core::fmt;

use super::Yard;
use crate::platform::Platform;
use crate::units::{PageCount, PfnRange};

/// Why a part of the memory map could not be brought up. What came up is in use; the rest can be tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InitError {
    /// A worker panicked; what it was at work on is lost.
    WorkerPanicked,
    /// There was no memory for the page structures of these frames.
    MapNotBacked(PfnRange),
    /// The range is not made of frames that the memory map covers.
    OutsideMap(PfnRange),
    /// Part of the range is up already, or on its way: the first such block of frames.
    AlreadyInitialised(PfnRange),
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkerPanicked => f.write_str("a worker panicked while it initialised the memory map"),
            Self::MapNotBacked(range) => write!(f, "no memory for the page structures of {range}"),
            Self::OutsideMap(range) => write!(f, "{range} is not in the memory map"),
            Self::AlreadyInitialised(range) => write!(f, "{range} is initialised already"),
        }
    }
}

impl core::error::Error for InitError {}

impl<P: Platform> Yard<P> {
    /// Brings up all that is left of the memory map, in parallel, then sizes watermarks, reserves and (unless told
    /// otherwise) per-CPU lists by the memory that is there now.
    ///
    /// Others may allocate and free meanwhile. In a yard that is up completely, only sizes anew.
    ///
    /// # Errors
    ///
    /// [`InitError`]: the yard goes on with what was initialised.
    pub fn finish_init(&self) -> Result<(), InitError> {
        Ok(())
    }

    /// Frames of memory whose page structures are not initialised yet.
    pub fn uninitialised_pages(&self) -> PageCount {
        PageCount(0)
    }
}
