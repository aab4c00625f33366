//! Addresses of address spaces: [`VirtAddr`], [`VirtRange`], and the three sizes of mappings, [`PageLevel`].

use core::fmt;

use frameyard::units::named;
use frameyard::{ByteSize, Order};

/// How many bits of an address each level of page tables translates. In models there are few, so that a huge page fits.
pub(crate) const LEVEL_BITS: u32 = if cfg!(loom) { 2 } else { 9 };

/// An address of an address space, in bytes. Those of the user half are below 2⁴⁷.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VirtAddr(pub u64);

impl VirtAddr {
    /// The lowest address that can be mapped: 64 KiB (the kernel's default `mmap_min_addr`), so that no small number is
    /// a valid address.
    pub const LOWEST: Self = Self(1 << 16);
    /// Where the addresses that can be mapped end: 2⁴⁷, the lower half of what four levels of page tables reach.
    pub const END: Self = Self(1 << (11 + 4 * LEVEL_BITS));

    /// The nearest multiple of `size`, a power of two, at or below.
    #[inline(always)]
    #[must_use]
    pub const fn align_down(self, size: ByteSize) -> Self {
        Self(self.0 & !(size.0 - 1))
    }

    /// The nearest multiple of `size`, a power of two, at or above; `None` past the end of `u64`.
    #[inline]
    #[must_use]
    pub const fn align_up(self, size: ByteSize) -> Option<Self> {
        match self.0.checked_next_multiple_of(size.0) {
            Some(addr) => Some(Self(addr)),
            None => None,
        }
    }

    /// Whether it is a multiple of `size`, a power of two.
    #[inline(always)]
    #[must_use]
    pub const fn is_aligned(self, size: ByteSize) -> bool {
        self.0 & (size.0 - 1) == 0
    }

    /// The address so many bytes on; `None` past the end of `u64`.
    #[inline]
    #[must_use]
    pub const fn checked_add(self, size: ByteSize) -> Option<Self> {
        match self.0.checked_add(size.0) {
            Some(addr) => Some(Self(addr)),
            None => None,
        }
    }
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address {:#x}", self.0)
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Addresses from `start` up to, not including, `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VirtRange {
    /// The first address.
    pub start: VirtAddr,
    /// The first address behind it.
    pub end: VirtAddr,
}

impl VirtRange {
    /// The range of that many bytes; `None` past the end of `u64`.
    #[inline]
    #[must_use]
    pub const fn new(start: VirtAddr, size: ByteSize) -> Option<Self> {
        match start.checked_add(size) {
            Some(end) => Some(Self { start, end }),
            None => None,
        }
    }

    /// How many bytes it has; none where it ends before it begins.
    #[inline(always)]
    #[must_use]
    pub const fn size(self) -> ByteSize {
        ByteSize(self.end.0.saturating_sub(self.start.0))
    }

    /// Whether there is no address in it.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Whether the address is in it.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, addr: VirtAddr) -> bool {
        self.start.0 <= addr.0 && addr.0 < self.end.0
    }

    /// Whether all of the other, which is not empty, is in it.
    #[inline(always)]
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.start.0 <= other.start.0 && other.end.0 <= self.end.0
    }

    /// What both cover.
    #[inline]
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// Whether it begins and ends at multiples of `size`, a power of two.
    #[inline(always)]
    #[must_use]
    pub const fn is_aligned(self, size: ByteSize) -> bool {
        self.start.is_aligned(size) && self.end.is_aligned(size)
    }
}

impl fmt::Debug for VirtRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "addresses [{:#x}, {:#x})", self.start.0, self.end.0)
    }
}

impl fmt::Display for VirtRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What an entry of page tables maps, by the level that it stands at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum PageLevel {
    /// 4 KiB, by an entry of a page table (PTE).
    #[default]
    Small = 0,
    /// 2 MiB, by an entry of a page middle directory (PMD).
    Huge = 1,
    /// 1 GiB, by an entry of a page upper directory (PUD).
    Gigantic = 2,
}

named!(PageLevel: Small => "4K", Huge => "2M", Gigantic => "1G");

impl PageLevel {
    /// How many bytes an entry of this level maps.
    #[inline(always)]
    #[must_use]
    pub const fn size(self) -> ByteSize {
        ByteSize(1 << (12 + LEVEL_BITS * self as u32))
    }

    /// The order of a block of that size: 0, 9 or 18.
    #[inline(always)]
    #[must_use]
    pub const fn order(self) -> Order {
        Order(LEVEL_BITS as u8 * self as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_rounded_both_ways_and_do_not_wrap() {
        let huge = PageLevel::Huge.size();
        assert_eq!(VirtAddr(0x20_1000).align_down(huge), VirtAddr(0x20_0000));
        assert_eq!(VirtAddr(0x20_1000).align_up(huge), Some(VirtAddr(0x40_0000)));
        assert_eq!(VirtAddr(u64::MAX - 1).align_up(huge), None);
        assert_eq!(VirtRange::new(VirtAddr(u64::MAX - 1), ByteSize(2)), None);
    }

    #[test]
    fn a_level_maps_as_many_bytes_as_a_block_of_its_order_has() {
        for level in PageLevel::ALL {
            assert_eq!(level.size().0, level.order().pages().0 << 12, "{level}");
        }
    }
}
