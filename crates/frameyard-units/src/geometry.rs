//! Geometry: page size, section size, pageblock order and maximum order, fixed when a yard is created.
//!
//! The page size is the size of a frame, the smallest block that a yard allocates. A yard keeps a page structure for
//! each frame, so with larger frames, metadata takes a smaller part of its memory; [`Geometry::of_frames`] has numbers.

use core::fmt;

use crate::{ByteSize, ORDER_SLOTS, Order, PageCount, Pfn, PhysAddr};

/// Page size, section size, pageblock order and maximum order of a yard.
///
/// The default is x86-64's: 4 KiB pages, 128 MiB sections, pageblocks of order 9, blocks up to order 10.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    page_shift: u8,
    section_shift: u8,
    pageblock_order: Order,
    max_order: Order,
}

/// Why a [`Geometry`] was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeometryError {
    /// The page size is not a power of two from 4 KiB to 1 GiB.
    PageSize(ByteSize),
    /// The section size is not a power of two.
    SectionSize(ByteSize),
    /// The maximum order is above 15.
    MaxOrder(Order),
    /// The pageblock order is 0 or above the maximum order.
    PageblockOrder(Order),
    /// The section has less than one maximum-order block or more than 2³² pages.
    SectionPages(ByteSize),
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageSize(size) => write!(f, "page size {size}: must be a power of two from 4K to 1G"),
            Self::SectionSize(size) => write!(f, "section size {size}: must be a power of two"),
            Self::MaxOrder(order) => write!(f, "maximum {order}: must be at most {}", ORDER_SLOTS - 1),
            Self::PageblockOrder(order) => {
                write!(f, "pageblock {order}: must be at least 1 and at most the maximum order")
            }
            Self::SectionPages(size) => {
                write!(f, "section size {size}: must hold at least one maximum-order block and at most 2^32 pages")
            }
        }
    }
}

impl core::error::Error for GeometryError {}

/// Why no order has blocks of a given size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizeError {
    /// The requested size.
    pub size: ByteSize,
    /// The size of the smallest block, a frame.
    pub smallest: ByteSize,
    /// The size of the largest block.
    pub largest: ByteSize,
}

crate::messages!(BlockSizeError {
    Self { size, smallest, largest } => "no block has {size}: the size must be a power of two from {smallest}, a frame, to {largest}",
});

impl Default for Geometry {
    #[inline]
    fn default() -> Self {
        Self::X86_64
    }
}

impl Geometry {
    /// 4 KiB pages, 128 MiB sections, pageblock order 9, maximum order 10.
    pub const X86_64: Self =
        Self { page_shift: 12, section_shift: 27, pageblock_order: Order(9), max_order: Order(10) };

    /// The geometry of a pool of frames of one size: pageblocks of 16 frames, sections of 512, blocks of 1 to 512 frames.
    ///
    /// With frames of 2 MiB, a pageblock is 32 MiB, and a section and the largest block are 1 GiB. Each frame takes
    /// less than 80 bytes of memory map and control region (0.004 %), in addition to what the yard keeps for each CPU
    /// and zone.
    ///
    /// ```
    /// use frameyard_units::{ByteSize, Geometry, Order};
    ///
    /// let geometry = Geometry::of_frames(ByteSize::mib(2)).unwrap();
    /// assert_eq!(geometry.block_order(ByteSize::mib(8)), Ok(Order(2)));
    /// assert_eq!(
    ///     geometry.block_order(ByteSize::kib(64)).unwrap_err().to_string(),
    ///     "no block has 64K: the size must be a power of two from 2M, a frame, to 1G"
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// [`GeometryError::PageSize`] if `frame_size` is not a valid page size.
    pub const fn of_frames(frame_size: ByteSize) -> Result<Self, GeometryError> {
        let (pageblock, largest) = (Order(4), Order(9));
        // `new` refuses a size that overflows here before it looks at the section.
        let section = ByteSize(frame_size.0.saturating_mul(largest.pages().0));
        Self::new(frame_size, section, pageblock, largest)
    }

    /// Builds a geometry.
    ///
    /// # Errors
    ///
    /// [`GeometryError`] names the rejected value and the accepted ones.
    pub const fn new(
        page_size: ByteSize,
        section_size: ByteSize,
        pageblock_order: Order,
        max_order: Order,
    ) -> Result<Self, GeometryError> {
        if !page_size.0.is_power_of_two() || page_size.0 < ByteSize::kib(4).0 || page_size.0 > ByteSize::gib(1).0 {
            return Err(GeometryError::PageSize(page_size));
        }
        if !section_size.0.is_power_of_two() {
            return Err(GeometryError::SectionSize(section_size));
        }
        if max_order.index() >= ORDER_SLOTS {
            return Err(GeometryError::MaxOrder(max_order));
        }
        if pageblock_order.0 == 0 || pageblock_order.0 > max_order.0 {
            return Err(GeometryError::PageblockOrder(pageblock_order));
        }
        let page_shift = page_size.0.trailing_zeros() as u8;
        let section_shift = section_size.0.trailing_zeros() as u8;
        if section_shift < page_shift + max_order.0 || section_shift > page_shift + 32 {
            return Err(GeometryError::SectionPages(section_size));
        }
        Ok(Self { page_shift, section_shift, pageblock_order, max_order })
    }

    /// Binary logarithm of the page size in bytes.
    #[inline(always)]
    #[must_use]
    pub const fn page_shift(self) -> u8 {
        self.page_shift
    }

    /// The size of a page.
    #[inline]
    #[must_use]
    pub const fn page_size(self) -> ByteSize {
        ByteSize(1 << self.page_shift)
    }

    /// The size of a section.
    #[inline]
    #[must_use]
    pub const fn section_size(self) -> ByteSize {
        ByteSize(1 << self.section_shift)
    }

    /// Binary logarithm of the number of frames in a section.
    #[inline(always)]
    #[must_use]
    pub const fn section_pages_shift(self) -> u8 {
        self.section_shift - self.page_shift
    }

    /// The number of frames in a section.
    #[inline]
    #[must_use]
    pub const fn section_pages(self) -> PageCount {
        PageCount(1 << self.section_pages_shift())
    }

    /// The order of a pageblock, and of a huge page.
    #[inline(always)]
    #[must_use]
    pub const fn pageblock_order(self) -> Order {
        self.pageblock_order
    }

    /// The largest order of a free block.
    #[inline(always)]
    #[must_use]
    pub const fn max_order(self) -> Order {
        self.max_order
    }

    /// The largest order of an allocated block: the order of 1 GiB, or [`max_order`](Self::max_order) if that is
    /// larger.
    ///
    /// ```
    /// use frameyard_units::{Geometry, Order};
    ///
    /// assert_eq!((Geometry::X86_64.max_order(), Geometry::X86_64.largest_order()), (Order(10), Order(18)));
    /// ```
    #[inline]
    #[must_use]
    pub const fn largest_order(self) -> Order {
        let gib = ByteSize::gib(1).0.trailing_zeros() as u8 - self.page_shift;
        if gib > self.max_order.0 { Order(gib) } else { self.max_order }
    }

    /// The frame that contains an address.
    #[inline]
    #[must_use]
    pub const fn frame_of(self, address: PhysAddr) -> Pfn {
        Pfn(address.0 >> self.page_shift)
    }

    /// The first frame that starts at or above an address.
    #[inline]
    #[must_use]
    pub const fn frame_at_or_above(self, address: PhysAddr) -> Pfn {
        Pfn(address.0.div_ceil(1 << self.page_shift))
    }

    /// The address of a frame's first byte.
    #[inline]
    #[must_use]
    pub const fn address_of(self, pfn: Pfn) -> PhysAddr {
        PhysAddr(pfn.0 << self.page_shift)
    }

    /// The number of whole pages in a size.
    #[inline]
    #[must_use]
    pub const fn pages_in(self, size: ByteSize) -> PageCount {
        PageCount(size.0 >> self.page_shift)
    }

    /// The order of the blocks that have exactly this size.
    ///
    /// # Errors
    ///
    /// [`BlockSizeError`] if the size is smaller than a frame, larger than the largest block, or not a power of two.
    pub const fn block_order(self, size: ByteSize) -> Result<Order, BlockSizeError> {
        let (smallest, largest) = (self.page_size(), self.size_of(self.largest_order().pages()));
        if !size.0.is_power_of_two() || size.0 < smallest.0 || size.0 > largest.0 {
            return Err(BlockSizeError { size, smallest, largest });
        }
        Ok(Order(size.0.trailing_zeros() as u8 - self.page_shift))
    }

    /// The size of `count` pages; saturates at `u64::MAX` bytes.
    #[inline]
    #[must_use]
    pub const fn size_of(self, count: PageCount) -> ByteSize {
        ByteSize(count.0.saturating_mul(1 << self.page_shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_default_values() {
        let built = Geometry::new(ByteSize::kib(4), ByteSize::mib(128), Order(9), Order(10));
        assert_eq!(built, Ok(Geometry::X86_64));
    }

    #[test]
    fn error_names_the_rejected_value() {
        let new = |page, section, pageblock, max| {
            Geometry::new(ByteSize(page), ByteSize(section), Order(pageblock), Order(max)).unwrap_err()
        };
        assert!(matches!(new(4095, 1 << 27, 9, 10), GeometryError::PageSize(_)));
        assert!(matches!(new(2048, 1 << 27, 9, 10), GeometryError::PageSize(_)));
        assert!(matches!(new(2 << 30, 1 << 50, 9, 10), GeometryError::PageSize(_)));
        assert!(matches!(new(4096, 3 << 27, 9, 10), GeometryError::SectionSize(_)));
        assert!(matches!(new(4096, 1 << 27, 9, 16), GeometryError::MaxOrder(_)));
        assert!(matches!(new(4096, 1 << 27, 11, 10), GeometryError::PageblockOrder(_)));
        assert!(matches!(new(4096, 1 << 21, 9, 10), GeometryError::SectionPages(_)));
    }

    #[test]
    fn frames_have_each_power_of_two_from_4_kib_to_1_gib() {
        for shift in 12..=30 {
            let geometry = Geometry::of_frames(ByteSize(1 << shift)).unwrap();
            assert_eq!((geometry.page_size(), geometry.section_pages()), (ByteSize(1 << shift), PageCount(512)));
            assert_eq!(geometry.address_of(Pfn(3)), PhysAddr(3 << shift));
        }
        for size in [0, 2048, 3 << 20, 2 << 30, 1 << 63, u64::MAX] {
            assert_eq!(Geometry::of_frames(ByteSize(size)), Err(GeometryError::PageSize(ByteSize(size))));
        }
    }

    #[test]
    fn sizes_between_a_frame_and_the_largest_block_have_an_order() {
        let geometry = Geometry::of_frames(ByteSize::mib(2)).unwrap();
        for order in 0..=9 {
            assert_eq!(geometry.block_order(ByteSize(2 << 20 << order)), Ok(Order(order)));
        }
        let (smallest, largest) = (ByteSize::mib(2), ByteSize::gib(1));
        for size in [0, 4096, 1 << 20, 3 << 20, (4 << 20) + 1, 2 << 30, u64::MAX].map(ByteSize) {
            assert_eq!(geometry.block_order(size), Err(BlockSizeError { size, smallest, largest }));
        }
    }
}
