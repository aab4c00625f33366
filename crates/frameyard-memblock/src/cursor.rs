//! Walks whose position is a single number, for callers that keep no borrow between two steps.
//!
//! Semantics and numbers are those of the kernel's `__next_mem_range` and `__next_mem_range_rev`: the lower half of the
//! number is the index of a region, the upper half the index of a gap between excluded regions. Gap `n` ends where
//! excluded region `n` starts. In Rust code, [`Memblock::free_ranges`](crate::Memblock::free_ranges) does the same with
//! less arithmetic.

use super::ranges::RegionFilter;
use super::region::Span;
use super::{MovableNodes, NodeFilter, Region, RegionFlags};

/// A position in a [`RangeWalk`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RangeCursor(pub u64);

impl RangeCursor {
    /// Before the lowest range.
    pub const FRONT: Self = Self(0);
    /// Above the highest range.
    pub const BACK: Self = Self(u64::MAX);
    /// Where a walk ends, in either direction.
    pub const END: Self = Self(u64::MAX);

    const fn new(region: usize, gap: usize) -> Self {
        Self((region as u32 as u64) | ((gap as u64) << 32))
    }

    const fn region(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    const fn gap(self) -> usize {
        (self.0 >> 32) as usize
    }
}

/// The parts of some regions that do not overlap the excluded regions.
#[derive(Clone, Copy, Debug)]
pub struct RangeWalk<'a> {
    regions: &'a [Region],
    excluded: Option<&'a [Region]>,
    filter: Option<RegionFilter>,
}

impl<'a> RangeWalk<'a> {
    /// All regions, without the parts in excluded ones.
    #[must_use]
    pub const fn new(regions: &'a [Region], excluded: Option<&'a [Region]>) -> Self {
        Self { regions, excluded, filter: None }
    }

    /// Visits only the regions that the kernel's `should_skip_region` does not skip.
    #[must_use]
    pub const fn only(self, node: NodeFilter, flags: RegionFlags, movable_nodes: MovableNodes) -> Self {
        Self { filter: Some(RegionFilter { node, flags, movable_nodes }), ..self }
    }

    fn admits(&self, region: &Region) -> bool {
        self.filter.is_none_or(|filter| filter.admits(region))
    }

    fn gap(excluded: &[Region], index: usize) -> Span {
        let start = index.checked_sub(1).map_or(0, |before| excluded[before].end().0);
        Span { start, end: excluded.get(index).map_or(u64::MAX, |region| region.base.0) }
    }

    fn part(region: &Region, gap: Span) -> Region {
        let part = Span { start: region.base.0.max(gap.start), end: region.end().0.min(gap.end) };
        Region { base: part.base(), size: part.size(), ..*region }
    }

    /// The next range above the cursor, which moves past it. At the end the cursor becomes [`RangeCursor::END`].
    ///
    /// As in the kernel, there is an empty range between two adjacent excluded regions.
    pub fn next(&self, cursor: &mut RangeCursor) -> Option<Region> {
        let (first, mut index) = (cursor.region(), cursor.gap());
        for (at, region) in self.regions.iter().enumerate().skip(first) {
            if !self.admits(region) {
                continue;
            }
            let Some(excluded) = self.excluded else {
                *cursor = RangeCursor::new(at + 1, index);
                return Some(*region);
            };
            while index <= excluded.len() {
                let gap = Self::gap(excluded, index);
                if gap.start >= region.end().0 {
                    break;
                }
                if region.base.0 < gap.end {
                    let done = region.end().0 <= gap.end;
                    *cursor = if done { RangeCursor::new(at + 1, index) } else { RangeCursor::new(at, index + 1) };
                    return Some(Self::part(region, gap));
                }
                index += 1;
            }
        }
        *cursor = RangeCursor::END;
        None
    }

    /// The next range below the cursor, which moves past it. At the end the cursor becomes [`RangeCursor::END`].
    pub fn next_back(&self, cursor: &mut RangeCursor) -> Option<Region> {
        let gaps = self.excluded.map_or(0, <[Region]>::len);
        // The position below region 0 has the index of the last number of 32 bits.
        let below_all = *cursor != RangeCursor::BACK && cursor.region() == u32::MAX as usize;
        let (last, mut index) = match *cursor {
            RangeCursor::BACK => (self.regions.len(), Some(gaps)),
            _ if below_all => (0, None),
            at => (at.region().saturating_add(1).min(self.regions.len()), Some(at.gap().min(gaps))),
        };
        for (at, region) in self.regions[..last].iter().enumerate().rev() {
            if !self.admits(region) {
                continue;
            }
            let Some(excluded) = self.excluded else {
                *cursor = RangeCursor::new(at.wrapping_sub(1), 0);
                return Some(*region);
            };
            while let Some(gap_index) = index {
                let gap = Self::gap(excluded, gap_index);
                if gap.end <= region.base.0 {
                    break;
                }
                if region.end().0 > gap.start {
                    *cursor = if region.base.0 >= gap.start {
                        RangeCursor::new(at.wrapping_sub(1), gap_index)
                    } else {
                        RangeCursor::new(at, gap_index - 1)
                    };
                    return Some(Self::part(region, gap));
                }
                index = gap_index.checked_sub(1);
            }
        }
        *cursor = RangeCursor::END;
        None
    }
}
