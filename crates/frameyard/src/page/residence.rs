//! Whether a free block's bytes are in memory or were given back to the host.

/// Where the bytes of a free block are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Residence {
    /// In memory, as far as the yard knows.
    Resident,
    /// With the host, which gives other bytes when the frames are used again.
    Reported,
}

impl Residence {
    /// Of a block made of two.
    #[inline(always)]
    pub(crate) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Reported, Self::Reported) => Self::Reported,
            _ => Self::Resident,
        }
    }
}
