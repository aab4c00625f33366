//! Why a call failed, and the kernel's number for it.

use core::ffi::c_int;
use core::fmt;

use frameyard_memblock::{MemblockError, RegionList};

/// Why a call failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The map refused the operation.
    Map(MemblockError),
    /// The fields of a list cannot be true.
    Broken(RegionList, &'static str),
    /// A list that is neither `memblock.memory` nor `memblock.reserved`.
    OtherList,
    /// The library failed.
    #[cfg(feature = "std")]
    Panicked,
}

impl Failure {
    /// The kernel's error number, negative.
    pub(crate) const fn number(self) -> c_int {
        #[cfg(feature = "std")]
        const EIO: c_int = 5;
        const ENOMEM: c_int = 12;
        const EBUSY: c_int = 16;
        const EINVAL: c_int = 22;
        match self {
            Self::Map(
                MemblockError::ListFull { .. }
                | MemblockError::NoRoomToGrow { .. }
                | MemblockError::Unmapped { .. }
                | MemblockError::OutOfMemory { .. },
            ) => -ENOMEM,
            Self::Map(MemblockError::HoldsRegionArray { .. }) => -EBUSY,
            Self::Map(_) | Self::Broken(..) | Self::OtherList => -EINVAL,
            #[cfg(feature = "std")]
            Self::Panicked => -EIO,
        }
    }
}

impl From<MemblockError> for Failure {
    fn from(error: MemblockError) -> Self {
        Self::Map(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map(error) => error.fmt(f),
            Self::Broken(list, what) => write!(f, "the {list} list has {what}: restore it"),
            Self::OtherList => f.write_str("the list is neither memblock.memory nor memblock.reserved"),
            #[cfg(feature = "std")]
            Self::Panicked => f.write_str("the library failed"),
        }
    }
}
