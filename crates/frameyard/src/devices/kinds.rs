//! What a device asks for, and what is known of it.

use core::fmt;

use crate::units::{ByteSize, NodeId, Order, PageCount, PfnRange, named};

/// Which page structures a device has in the memory map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MapLayout {
    /// One for each frame, all of them written.
    #[default]
    Full,
    /// One for each frame, of which only the heads of compound pages are written: map pages that hold nothing but tails
    /// read as zero, and may all be one page of memory. Where every map page holds a head, as with base pages, it is as full.
    Deduplicated,
    /// One for each compound page, one behind the other.
    Folded,
}

named!(MapLayout: Full => "full", Deduplicated => "deduplicated", Folded => "folded");

/// Where the memory of a device's page structures comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MapPlacement {
    /// Ordinary memory ([`MapBacking::back_map`](crate::MapBacking::back_map)).
    #[default]
    Memory,
    /// The first frames of the device itself ([`MapBacking::place_map`](crate::MapBacking::place_map)); what they hold is no
    /// data then.
    Device,
}

named!(MapPlacement: Memory => "mem", Device => "dev");

/// What [`YardDevices::unmap`](crate::views::YardDevices::unmap) does where the device is in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Removal {
    /// It refuses.
    #[default]
    Refuse,
    /// It waits, for a bounded number of rounds of [`Platform::relax`](crate::Platform::relax), and refuses then. As long as it
    /// waits, no new entries of page tables may map the device.
    Wait,
}

named!(Removal: Refuse => "refuse", Wait => "wait");

/// The number of a device in its yard. Used again once the device was removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u16);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

/// A range of device memory that is to get page structures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceRequest {
    /// Its frames. Both ends are multiples of the compound pages and of the yard's sub-sections
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

/// What is known of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Its number.
    pub id: DeviceId,
    /// All its frames.
    pub range: PfnRange,
    /// Those that hold data: without what the memory map takes of it.
    pub data: PfnRange,
    /// The node that it belongs to.
    pub node: NodeId,
    /// The order of its compound pages; 0 for base pages.
    pub order: Order,
    /// Which page structures it has.
    pub layout: MapLayout,
    /// Where they lie.
    pub placement: MapPlacement,
    /// How many page structures were written.
    pub structures: u64,
    /// Memory that they take, in whole pages: full, 64 bytes for each frame; shared tails, a page for each compound page (or all
    /// of them, where a page holds several); folded, 64 bytes for each compound page. Compound pages that were split are
    /// not considered.
    pub map_bytes: ByteSize,
    /// Entries of page tables that map it, a moment ago.
    pub mappings: u64,
}

impl DeviceInfo {
    /// How many compound pages (or base pages) hold its data.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        PageCount(self.data.count().0 >> self.order.0)
    }
}
