//! Amounts of frames: counts, and orders as powers of two.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

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
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for PageCount {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for PageCount {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for PageCount {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl core::iter::Sum for PageCount {
    #[inline]
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self(0), |sum, count| sum + count)
    }
}

/// The size of a block: `2^order` frames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Order(pub u8);

/// The number of orders in a zone's tables: 0 to 15. Loom models have only 3, because every word costs them time.
pub const ORDER_SLOTS: usize = if cfg!(loom) { 3 } else { 16 };

impl Order {
    /// A single frame.
    pub const ZERO: Self = Self(0);

    /// The number of frames in a block of this order.
    #[inline(always)]
    #[must_use]
    pub const fn pages(self) -> PageCount {
        PageCount(1 << self.0)
    }

    /// Index of this order in a table with one entry per order.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The smallest order whose blocks have at least `count` frames; `None` if even a block of 2⁶³ frames is too small.
    #[inline]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_order_holds_the_count() {
        assert_eq!(Order::covering(PageCount(1)), Some(Order(0)));
        assert_eq!(Order::covering(PageCount(5)), Some(Order(3)));
        assert_eq!(Order::covering(PageCount(u64::MAX)), None);
    }
}
