//! Requests to map devices, and facts about mapped ones.

use core::fmt;

use crate::units::{ByteSize, NodeId, Order, PageCount, PfnRange, named};

/// Which page structures a device has in the memory map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MapLayout {
    /// One per frame, all written.
    #[default]
    Full,
    /// One per frame, of which only the heads of compound pages are written (deduplicated vmemmap, HVO). One map page
    /// remains per compound page, the one with its head (of 8 for 2 MiB, of 4096 for 1 GiB). The other map pages
    /// contain only tails. They read as zero, and may all share one page of memory. A device of base pages has a head
    /// in every map page, so nothing is saved.
    Deduplicated,
    /// As deduplicated, except that two map pages remain per compound page: the one with its head and the next, which
    /// are written (of 8 for 2 MiB, of 4096 for 1 GiB). Linux keeps the same number for device memory
    /// (`vmemmap_populate_compound_pages`). There the tails of a compound page share its own first map page of tails;
    /// here all share the page of zeroes.
    DeduplicatedTwo,
    /// One per compound page, packed. A compound page takes 64 bytes of the map.
    Folded,
}

named!(MapLayout: Full => "full", Deduplicated => "deduplicated", DeduplicatedTwo => "deduplicated-two", Folded => "folded");

/// Where the memory of a device's page structures comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MapPlacement {
    /// Ordinary memory ([`MemoryBacking::back_map`](crate::platform::MemoryBacking::back_map)).
    #[default]
    Memory,
    /// The first frames of the device itself ([`MemoryBacking::place_map`](crate::platform::MemoryBacking::place_map)). These frames
    /// hold no data.
    Device,
}

named!(MapPlacement: Memory => "mem", Device => "dev");

/// What [`YardDevices::unmap`](crate::views::YardDevices::unmap) does if the device is in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Removal {
    /// Fails at once.
    #[default]
    Refuse,
    /// Waits up to 4096 rounds of [`Platform::wait`](crate::Platform::wait), and then fails. While it waits, page
    /// tables cannot map the device.
    Wait,
}

named!(Removal: Refuse => "refuse", Wait => "wait");

/// A device of a yard: its number, and the generation of its mapping.
///
/// The number is reused after a removal; the generation distinguishes the removed device from later ones. Generations
/// repeat after 2^20 - 1 devices have been mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId {
    number: u16,
    generation: u32,
}

impl DeviceId {
    pub(super) const fn new(number: u16, generation: u32) -> Self {
        Self { number, generation }
    }

    /// The number: less than 64.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.number
    }

    /// Never 0 for a device that was mapped.
    pub(super) const fn generation(self) -> u32 {
        self.generation
    }

    /// Number and generation in one word.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.number as u64 | (self.generation as u64) << 16
    }

    /// The device with these [`bits`](Self::bits). Any bits are allowed, whether or not there is such a device.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { number: bits as u16, generation: (bits >> 16) as u32 }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.number)
    }
}

/// A request to map a range of device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceRequest {
    /// Its frames. Both ends must be multiples of the size of its compound pages and of the yard's sub-sections
    /// ([`YardDevices::unit`](crate::views::YardDevices::unit)).
    pub range: PfnRange,
    /// The node that it belongs to.
    pub node: NodeId,
    /// The order of its compound pages; 0 for base pages.
    pub order: Order,
    /// Which page structures it has.
    pub layout: MapLayout,
    /// Where they lie.
    pub placement: MapPlacement,
}

/// Facts about a mapped device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Its number.
    pub id: DeviceId,
    /// All its frames.
    pub range: PfnRange,
    /// The frames that hold data: all except those that hold its page structures.
    pub data: PfnRange,
    /// The node that it belongs to.
    pub node: NodeId,
    /// The order of its compound pages; 0 for base pages.
    pub order: Order,
    /// Which page structures it has.
    pub layout: MapLayout,
    /// Where they lie.
    pub placement: MapPlacement,
    /// The number of page structures that were written.
    pub structures: u64,
    /// The memory that they take, in whole pages. Full: 64 bytes per frame. Deduplicated: one page per compound page
    /// (two for [`MapLayout::DeduplicatedTwo`]), or the same as full if no map page has only tails. Folded: 64 bytes
    /// per compound page. What splits have added is not included.
    pub map_bytes: ByteSize,
    /// The number of page-table entries that map it. Possibly stale.
    pub mappings: u64,
}

impl DeviceInfo {
    /// The number of compound pages (or base pages) with its data.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        PageCount(self.data.count().0 >> self.order.0)
    }
}
