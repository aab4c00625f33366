//! Addresses of address spaces: [`VirtAddr`], [`VirtRange`], and the three sizes of mappings, [`PageLevel`].

use core::fmt;

use frameyard::units::named;
use frameyard::{ByteSize, Order, Pfn};

/// Address bits that each level of page tables translates. Models use 2, so that a huge page fits.
pub(crate) const LEVEL_BITS: u32 = if cfg!(loom) { 2 } else { 9 };
/// The first frame number that does not fit in a page-table entry.
pub(crate) const ENTRY_FRAMES_END: Pfn = Pfn(1 << 40);

/// An address of an address space, in bytes. The user half is below 2⁴⁷.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VirtAddr(pub u64);

impl VirtAddr {
    /// The lowest address that can be mapped: 64 KiB, the kernel's default `mmap_min_addr`, so that no small number is
    /// a valid address.
    pub const LOWEST: Self = Self(1 << 16);
    /// The end of the addresses that can be mapped: 2⁴⁷, the lower half of what four levels of page tables reach.
    pub const END: Self = Self(1 << (11 + 4 * LEVEL_BITS));

    /// The address rounded down to a multiple of `size`, which must be a power of two.
    #[inline(always)]
    #[must_use]
    pub const fn align_down(self, size: ByteSize) -> Self {
        Self(self.0 & !(size.0 - 1))
    }

    /// The address rounded up to a multiple of `size`, which must be a power of two; `None` past the end of `u64`.
    #[inline]
    #[must_use]
    pub const fn align_up(self, size: ByteSize) -> Option<Self> {
        match self.0.checked_next_multiple_of(size.0) {
            Some(addr) => Some(Self(addr)),
            None => None,
        }
    }

    /// Whether the address is a multiple of `size`, which must be a power of two.
    #[inline(always)]
    #[must_use]
    pub const fn is_aligned(self, size: ByteSize) -> bool {
        self.0 & (size.0 - 1) == 0
    }

    /// The address `size` bytes above; `None` past the end of `u64`.
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

/// The half-open range of addresses from `start` to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VirtRange {
    /// The first address.
    pub start: VirtAddr,
    /// One past the last address.
    pub end: VirtAddr,
}

impl VirtRange {
    /// The range of `size` bytes at `start`; `None` past the end of `u64`.
    #[inline]
    #[must_use]
    pub const fn new(start: VirtAddr, size: ByteSize) -> Option<Self> {
        match start.checked_add(size) {
            Some(end) => Some(Self { start, end }),
            None => None,
        }
    }

    /// The size; 0 if the end is below the start.
    #[inline(always)]
    #[must_use]
    pub const fn size(self) -> ByteSize {
        ByteSize(self.end.0.saturating_sub(self.start.0))
    }

    /// Whether the range is empty.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Whether the range contains the address.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, addr: VirtAddr) -> bool {
        self.start.0 <= addr.0 && addr.0 < self.end.0
    }

    /// Whether the range contains all of `other`, which is not empty.
    #[inline(always)]
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.start.0 <= other.start.0 && other.end.0 <= self.end.0
    }

    /// The addresses that both ranges contain.
    #[inline]
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// Whether both ends are multiples of `size`, which must be a power of two.
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

/// The size that a page-table entry maps, by the level of its table.
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
    /// The number of bytes that an entry of this level maps.
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
    fn rounds_addresses_without_wrapping() {
        let huge = PageLevel::Huge.size();
        assert_eq!(VirtAddr(0x20_1000).align_down(huge), VirtAddr(0x20_0000));
        assert_eq!(VirtAddr(0x20_1000).align_up(huge), Some(VirtAddr(0x40_0000)));
        assert_eq!(VirtAddr(u64::MAX - 1).align_up(huge), None);
        assert_eq!(VirtRange::new(VirtAddr(u64::MAX - 1), ByteSize(2)), None);
    }

    #[test]
    fn level_size_equals_block_size_of_its_order() {
        for level in PageLevel::ALL {
            assert_eq!(level.size().0, level.order().pages().0 << 12, "{level}");
        }
    }
}
