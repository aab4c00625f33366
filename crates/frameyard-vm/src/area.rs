//! Areas: ranges of addresses of a space that are mapped alike, as objects in a tree (the kernel's `vm_area_struct`).

use frameyard::{ByteSize, PhysAddr, named};

use crate::address::{PageLevel, VirtRange};
use crate::objects::ObjectId;

/// Whether a range of anonymous memory is to have huge pages (the kernel's `madvise`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum HugeAdvice {
    /// Nothing was said: huge pages only where everybody gets them ([`ThpMode::Always`](crate::ThpMode::Always)).
    #[default]
    Default = 0,
    /// Yes, where that is allowed at all (`MADV_HUGEPAGE`).
    Huge = 1,
    /// No (`MADV_NOHUGEPAGE`).
    Never = 2,
}

named!(HugeAdvice: Default => "default", Huge => "huge", Never => "never");

/// What a range of addresses shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapKind {
    /// Memory that is zero at first, allocated when it is touched.
    Anonymous {
        /// Whether in huge pages.
        huge: HugeAdvice,
    },
    /// Physical addresses that belong to no page of the yard, one after the other.
    Device {
        /// What the first address shows; a multiple of the size of a page.
        first: PhysAddr,
        /// What each entry of the page tables maps.
        page: PageLevel,
    },
}

impl MapKind {
    /// What the borders of such an area are multiples of.
    #[inline]
    #[must_use]
    pub const fn page_size(self) -> ByteSize {
        match self {
            Self::Anonymous { .. } => PageLevel::Small.size(),
            Self::Device { page, .. } => page.size(),
        }
    }

    /// What such an area shows from so many bytes on.
    #[inline]
    #[must_use]
    pub const fn advanced(self, by: ByteSize) -> Self {
        match self {
            Self::Anonymous { .. } => self,
            Self::Device { first, page } => Self::Device { first: PhysAddr(first.0 + by.0), page },
        }
    }
}

/// A range of addresses of a space that are mapped alike: as its words said when the caller, who holds the space's map
/// lock, looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Area {
    pub(crate) id: ObjectId,
    pub(crate) range: VirtRange,
    pub(crate) kind: MapKind,
}
