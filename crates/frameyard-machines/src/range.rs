//! A range of physical addresses.

use core::fmt;

use frameyard_units::{ByteSize, Geometry, PfnRange, PhysAddr};

/// A half-open range of physical addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AddressRange {
    /// The first address.
    pub start: PhysAddr,
    /// The address behind the last one.
    pub end: PhysAddr,
}

impl AddressRange {
    /// The range from `start` up to and not including `end`.
    #[must_use]
    pub const fn new(start: PhysAddr, end: PhysAddr) -> Self {
        Self { start, end }
    }

    /// The number of bytes. 0 if the end is not behind the start.
    #[must_use]
    pub const fn bytes(self) -> ByteSize {
        ByteSize(self.end.0.saturating_sub(self.start.0))
    }

    /// Whether the range has no bytes.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// The common part of both ranges. Empty if they do not overlap.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// Whether the ranges share a byte.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        !self.intersection(other).is_empty()
    }

    /// The frames that lie entirely in the range.
    #[must_use]
    pub fn whole_frames(self, geometry: Geometry) -> PfnRange {
        PfnRange { start: geometry.frame_at_or_above(self.start), end: geometry.frame_of(self.end) }
    }

    /// The parts before and after `cut`. Either may be empty.
    pub(super) fn without(self, cut: Self) -> [Self; 2] {
        if !self.overlaps(cut) {
            return [self, Self::default()];
        }
        [Self::new(self.start, self.start.max(cut.start)), Self::new(self.end.min(cut.end), self.end)]
    }
}

impl fmt::Display for AddressRange {
    /// In the kernel's format, with both ends inclusive.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[mem {:#x}-{:#x}]", self.start.0, self.end.0.saturating_sub(1))
    }
}

impl fmt::Debug for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(PhysAddr(start), PhysAddr(end))
    }

    #[test]
    fn cutting_a_range_leaves_both_sides() {
        let pieces = range(0x1000, 0x9000).without(range(0x2000, 0x3000));
        assert_eq!(pieces, [range(0x1000, 0x2000), range(0x3000, 0x9000)]);
        assert!(range(0x1000, 0x2000).without(range(0, u64::MAX)).iter().all(|piece| piece.is_empty()));
        assert_eq!(range(0x1000, 0x2000).without(range(0x2000, 0x3000))[0], range(0x1000, 0x2000));
    }

    #[test]
    fn frames_cut_by_an_end_are_excluded() {
        let frames = range(0x800, 0x9fc00).whole_frames(Geometry::X86_64);
        assert_eq!((frames.start.0, frames.end.0), (1, 0x9f));
        assert!(range(0x1800, 0x1900).whole_frames(Geometry::X86_64).is_empty());
    }
}
