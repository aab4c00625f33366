//! Identities and kinds of small objects.

use frameyard::page::FrameLink;

/// The kind of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub(crate) enum ObjectKind {
    /// An address space.
    Space = 0,
    /// A range of addresses of a space with one kind of mapping.
    Area = 1,
    /// A file of the page cache.
    File = 2,
    /// A node of the tree of a file's pages.
    CacheNode = 3,
}

impl ObjectKind {
    pub(crate) const ALL: [Self; 4] = [Self::Space, Self::Area, Self::File, Self::CacheNode];

    /// The number of words of an object.
    pub(crate) const fn words(self) -> usize {
        match self {
            Self::Space => 64,
            Self::File => 32,
            Self::Area => 16,
            Self::CacheNode => 72,
        }
    }

    /// Whether frames with objects of this kind stay until the root is destroyed.
    pub(crate) const fn is_stable(self) -> bool {
        matches!(self, Self::Space | Self::File)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Space => "address spaces",
            Self::Area => "areas",
            Self::File => "files",
            Self::CacheNode => "nodes of files",
        }
    }
}

/// The identity of an object: the link of its frame in bits 8–39, its slot in bits 0–7. 0 is no object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ObjectId(u64);

impl ObjectId {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn new(frame: FrameLink, slot: u64) -> Self {
        Self(u64::from(frame.bits()) << 8 | slot)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// `None` for [`NONE`](Self::NONE).
    pub(crate) fn some(self) -> Option<Self> {
        if self == Self::NONE { None } else { Some(self) }
    }

    pub(crate) const fn slot(self) -> usize {
        (self.0 & 0xff) as usize
    }

    pub(crate) const fn frame(self) -> FrameLink {
        FrameLink::from_bits((self.0 >> 8) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_none_is_no_object() {
        assert_eq!(ObjectId::NONE.some(), None);
        assert_eq!(ObjectId::from_bits(1).some(), Some(ObjectId::from_bits(1)));
    }
}
