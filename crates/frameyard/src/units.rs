//! The units of the whole project: frame numbers, orders, counts, sizes, identities, and the geometry.
//!
//! No bare integer crosses a public interface where one of these exists. Each prints with a prefix or a
//! unit of its own.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

mod geometry;
mod kinds;
mod names;
mod size;

pub use geometry::{Geometry, GeometryError};
pub use kinds::{MigrateType, ZoneId, ZoneKind};
pub use names::UnknownName;
pub(crate) use names::named;
pub use size::{ByteSize, ParseSizeError};

/// A page frame number: a physical address divided by the page size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pfn(pub u64);

impl Pfn {
    /// The frame that an `order` block holding this frame begins with.
    #[inline(always)]
    #[must_use]
    pub const fn align_down(self, order: Order) -> Self {
        Self(self.0 & !((1u64 << order.0) - 1))
    }

    /// The next frame, this one included, on which an `order` block can begin; `None` past the end of `u64`.
    #[inline]
    #[must_use]
    pub const fn align_up(self, order: Order) -> Option<Self> {
        match self.0.checked_next_multiple_of(1 << order.0) {
            Some(pfn) => Some(Self(pfn)),
            None => None,
        }
    }

    /// Whether an `order` block can begin here.
    #[inline(always)]
    #[must_use]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & ((1u64 << order.0) - 1) == 0
    }

    /// The head of the block that this one merges with.
    #[inline(always)]
    #[must_use]
    pub const fn buddy(self, order: Order) -> Self {
        Self(self.0 ^ (1 << order.0))
    }

    /// The largest order, at most `limit`, whose blocks can begin here.
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

/// A number of page frames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageCount(pub u64);

impl fmt::Debug for PageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.0)
    }
}

impl fmt::Display for PageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Add for PageCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for PageCount {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for PageCount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for PageCount {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl core::iter::Sum for PageCount {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        Self(counts.map(|count| count.0).sum())
    }
}

/// The size of a block: `2^order` frames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Order(pub u8);

/// How many orders the tables of a zone have room for: 0 to 15. (Fewer in models, which pay for every word.)
pub const ORDER_SLOTS: usize = if cfg!(loom) { 3 } else { 16 };

impl Order {
    /// A single frame.
    pub const ZERO: Self = Self(0);

    /// How many frames a block of this order has.
    #[inline(always)]
    #[must_use]
    pub const fn pages(self) -> PageCount {
        PageCount(1 << self.0)
    }

    /// This order as an index into a table by order.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The smallest order whose blocks hold `count` frames; `None` where a block of 2⁶³ frames does not.
    #[must_use]
    pub const fn covering(count: PageCount) -> Option<Self> {
        match count.0.checked_next_power_of_two() {
            Some(pages) => Some(Self(pages.trailing_zeros() as u8)),
            None => None,
        }
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A memory node: memory with the same distance to all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub u16);

impl NodeId {
    /// This node as an index into a table by node.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A CPU of the yard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuId(pub u32);

impl CpuId {
    /// This CPU as an index into a table by CPU.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu {}", self.0)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A half-open range of frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PfnRange {
    /// The first frame.
    pub start: Pfn,
    /// The frame behind the last.
    pub end: Pfn,
}

impl PfnRange {
    /// The range of `count` frames from `start` on.
    #[must_use]
    pub fn new(start: Pfn, count: PageCount) -> Self {
        Self { start, end: start + count }
    }

    /// How many frames the range has; 0 where the end is not behind the start.
    #[must_use]
    pub const fn count(self) -> PageCount {
        PageCount(self.end.0.saturating_sub(self.start.0))
    }

    /// Whether the range has no frame.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Whether the frame is in the range.
    #[inline]
    #[must_use]
    pub const fn contains(self, pfn: Pfn) -> bool {
        self.start.0 <= pfn.0 && pfn.0 < self.end.0
    }

    /// What both ranges cover.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// The largest naturally aligned block, of at most `limit`, at the start of the range.
    #[must_use]
    pub fn first_block(self, limit: Order) -> Option<Order> {
        if self.is_empty() {
            return None;
        }
        let fits = Order((63 - self.count().0.leading_zeros()) as u8);
        Some(self.start.natural_order(limit).min(fits))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buddy_is_the_other_half_of_the_next_order() {
        assert_eq!(Pfn(0b1000).buddy(Order(3)), Pfn(0));
        assert_eq!(Pfn(0).buddy(Order(3)), Pfn(0b1000));
    }

    #[test]
    fn blocks_of_a_range_are_aligned_and_fit() {
        let range = PfnRange { start: Pfn(6), end: Pfn(17) };
        assert_eq!(range.first_block(Order(10)), Some(Order(1)));
        let range = PfnRange { start: Pfn(8), end: Pfn(15) };
        assert_eq!(range.first_block(Order(10)), Some(Order(2)));
        assert_eq!(PfnRange { start: Pfn(8), end: Pfn(8) }.first_block(Order(10)), None);
    }

    #[test]
    fn the_covering_order_holds_the_count() {
        assert_eq!(Order::covering(PageCount(1)), Some(Order(0)));
        assert_eq!(Order::covering(PageCount(5)), Some(Order(3)));
        assert_eq!(Order::covering(PageCount(u64::MAX)), None);
    }
}
