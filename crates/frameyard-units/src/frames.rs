//! Page frames: numbers, addresses, ranges and blocks.

use core::fmt;
use core::ops::{Add, Sub};

use crate::{Order, PageCount};

/// A page frame number: a physical address divided by the page size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pfn(pub u64);

impl Pfn {
    /// The first frame of the naturally aligned block of order `order` that contains this frame.
    #[inline(always)]
    #[must_use]
    pub const fn align_down(self, order: Order) -> Self {
        Self(self.0 & !((1u64 << order.0) - 1))
    }

    /// The lowest frame at or above this one at which a block of order `order` can start; `None` if it does not fit in
    /// a `u64`.
    #[inline]
    #[must_use]
    pub const fn align_up(self, order: Order) -> Option<Self> {
        match self.0.checked_next_multiple_of(1 << order.0) {
            Some(pfn) => Some(Self(pfn)),
            None => None,
        }
    }

    /// Whether a block of order `order` can start at this frame.
    #[inline(always)]
    #[must_use]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & ((1u64 << order.0) - 1) == 0
    }

    /// The first frame of the buddy of the block of order `order` that starts at this frame.
    #[inline(always)]
    #[must_use]
    pub const fn buddy(self, order: Order) -> Self {
        Self(self.0 ^ (1 << order.0))
    }

    /// The largest order, at most `limit`, of a block that can start at this frame.
    #[inline]
    #[must_use]
    pub const fn natural_order(self, limit: Order) -> Order {
        let zeros = self.0.trailing_zeros();
        if zeros < limit.0 as u32 { Order(zeros as u8) } else { limit }
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {:#x}", self.0)
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Add<PageCount> for Pfn {
    type Output = Self;
    #[inline(always)]
    fn add(self, count: PageCount) -> Self {
        Self(self.0 + count.0)
    }
}

impl Sub for Pfn {
    type Output = PageCount;
    #[inline(always)]
    fn sub(self, other: Self) -> PageCount {
        PageCount(self.0 - other.0)
    }
}

/// A physical address in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct PhysAddr(pub u64);

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A half-open range of frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PfnRange {
    /// The first frame.
    pub start: Pfn,
    /// One past the last frame.
    pub end: Pfn,
}

impl PfnRange {
    /// The range of `count` frames that starts at `start`.
    #[inline]
    #[must_use]
    pub fn new(start: Pfn, count: PageCount) -> Self {
        Self { start, end: start + count }
    }

    /// The number of frames; 0 if `end` is not above `start`.
    #[inline]
    #[must_use]
    pub const fn count(self) -> PageCount {
        PageCount(self.end.0.saturating_sub(self.start.0))
    }

    /// Whether the range contains no frame.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Whether the range contains the frame.
    #[inline]
    #[must_use]
    pub const fn contains(self, pfn: Pfn) -> bool {
        self.start.0 <= pfn.0 && pfn.0 < self.end.0
    }

    /// The frames that both ranges contain.
    #[inline]
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// The largest order, at most `limit`, of a naturally aligned block that starts the range and fits in it; `None` if the
    /// range is empty.
    #[inline]
    #[must_use]
    pub fn first_block(self, limit: Order) -> Option<Order> {
        if self.is_empty() {
            return None;
        }
        let fits = Order((63 - self.count().0.leading_zeros()) as u8);
        Some(self.start.natural_order(limit).min(fits))
    }

    /// Divides the range into the largest naturally aligned blocks of order `limit` at most, in ascending order.
    #[inline]
    pub fn blocks(mut self, limit: Order) -> impl Iterator<Item = Block> {
        core::iter::from_fn(move || {
            let block = Block { pfn: self.start, order: self.first_block(limit)? };
            self.start = block.pfn + block.order.pages();
            Some(block)
        })
    }
}

impl fmt::Debug for PfnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn [{:#x}, {:#x})", self.start.0, self.end.0)
    }
}

impl fmt::Display for PfnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A block: its first frame and its order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Block {
    /// The first frame.
    pub pfn: Pfn,
    /// The order: the block has `2^order` frames.
    pub order: Order,
}

impl Block {
    /// The frames of the block.
    #[inline]
    #[must_use]
    pub fn frames(self) -> PfnRange {
        PfnRange::new(self.pfn, self.order.pages())
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the block at {}, {}", self.pfn, self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_buddy_of_both_halves() {
        assert_eq!(Pfn(0b1000).buddy(Order(3)), Pfn(0));
        assert_eq!(Pfn(0).buddy(Order(3)), Pfn(0b1000));
    }

    #[test]
    fn first_block_is_aligned_and_fits_the_range() {
        let range = PfnRange { start: Pfn(6), end: Pfn(17) };
        assert_eq!(range.first_block(Order(10)), Some(Order(1)));
        assert!(range.blocks(Order(2)).map(|block| block.order.0).eq([1, 2, 2, 0]));
        let range = PfnRange { start: Pfn(8), end: Pfn(15) };
        assert_eq!(range.first_block(Order(10)), Some(Order(2)));
        assert_eq!(PfnRange { start: Pfn(8), end: Pfn(8) }.first_block(Order(10)), None);
    }
}
