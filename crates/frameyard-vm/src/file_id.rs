//! [`FileId`]: the name of a file of the page cache.

use core::fmt;

use crate::object_id::ObjectId;

/// The name of a file, the same in all processes. A name is reused only after 2²⁴ more files have been created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId(u64);

impl FileId {
    const OBJECT_BITS: u32 = 40;
    const SERIALS: u64 = 1 << (u64::BITS - Self::OBJECT_BITS);

    pub(crate) fn new(object: ObjectId, serial: u64) -> Self {
        Self(object.bits() | ((serial % Self::SERIALS) << Self::OBJECT_BITS))
    }

    pub(crate) const fn object(self) -> ObjectId {
        ObjectId::from_bits(self.0 & ((1 << Self::OBJECT_BITS) - 1))
    }

    /// The name as a number, to send to another process.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The name that [`to_bits`](Self::to_bits) returned as this number.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {:#x}", self.0)
    }
}
