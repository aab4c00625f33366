//! Which part of the memory map a device takes.

use super::section::Entry;
use super::{DeviceError, DeviceRequest, MapLayout, MapPlacement};
use crate::memmap::Numbering;
use crate::page::Page;
use crate::units::{ByteSize, Geometry, Order, PageCount, Pfn, PfnRange};

/// The largest order of compound pages: 1 GiB with 4 KiB pages.
pub(super) const MAX_ORDER: Order = Order(18);

/// The order of a sub-section: a pageblock, or more if a section has more than 64 pageblocks.
pub(crate) fn part_order(geometry: Geometry) -> Order {
    geometry.pageblock_order().max(Order(geometry.section_pages_shift().saturating_sub(6)))
}

/// The number of page structures in a map page, as an order. (One in models, whose compound pages are small.)
pub(crate) const fn map_page_order(geometry: Geometry) -> Order {
    if cfg!(loom) { Order(0) } else { Order(geometry.page_shift() - 6) }
}

/// An admitted request, and the part of the map that follows from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) request: DeviceRequest,
    /// The frames that have page structures.
    pub(super) data: PfnRange,
    geometry: Geometry,
}

impl Plan {
    /// The plan of a request whose range is aligned.
    pub(super) fn of(request: DeviceRequest, geometry: Geometry) -> Result<Self, DeviceError> {
        let DeviceRequest { range, order, placement, .. } = request;
        let whole = Self { request, data: range, geometry };
        if placement == MapPlacement::Memory {
            return Ok(whole);
        }
        let map = whole.map_bytes();
        let taken = Pfn(range.start.0 + map.0.div_ceil(geometry.page_size().0));
        match taken.align_up(order.max(part_order(geometry))).filter(|start| *start < range.end) {
            Some(start) => Ok(Self { data: PfnRange { start, end: range.end }, ..whole }),
            None => Err(DeviceError::NoRoom { range, map }),
        }
    }

    /// The number of compound pages (or base pages).
    pub(super) fn pages(&self) -> u64 {
        self.data.count().0 >> self.request.order.0
    }

    /// The number of page structures that are written.
    pub(super) fn structures(&self) -> u64 {
        if self.request.layout == MapLayout::Folded || self.has_shared_tails() {
            self.pages()
        } else {
            self.data.count().0
        }
    }

    /// Whether some map pages hold only tails.
    pub(super) fn has_shared_tails(&self) -> bool {
        self.request.layout == MapLayout::Deduplicated && self.request.order > map_page_order(self.geometry)
    }

    /// Memory that the page structures take, in whole pages.
    pub(super) fn map_bytes(&self) -> ByteSize {
        let page = self.geometry.page_size().0;
        let each = if self.has_shared_tails() { page } else { size_of::<Page>() as u64 };
        ByteSize((self.structures() * each).next_multiple_of(page))
    }

    /// The number of bits that the frame number of a head is shifted by.
    pub(super) fn fold(&self) -> u8 {
        if self.request.layout == MapLayout::Folded { self.request.order.0 } else { 0 }
    }

    /// The head of a compound page, by its number.
    pub(super) fn head(&self, number: u64) -> Pfn {
        Pfn(self.data.start.0 + (number << self.request.order.0))
    }

    /// The frame whose place in the map holds the structure of a compound page.
    pub(super) fn place_of(&self, number: u64) -> Pfn {
        // Folded structures are packed from the first place of the range on.
        if self.fold() > 0 { self.request.range.start + PageCount(number) } else { self.head(number) }
    }

    /// The entry of the device's sections.
    pub(super) fn entry(&self, numbering: Numbering) -> Entry {
        let place = numbering.place(self.place_of(0)) as u32;
        Entry::new(self.request.order, self.fold(), self.head(0), place)
    }

    /// The frames of a device with [`MapPlacement::Device`] that hold the structures in these places.
    pub(super) fn frames_holding(&self, places: PfnRange) -> PfnRange {
        let per_page = self.geometry.page_size().0 / size_of::<Page>() as u64;
        let first = self.place_of(0);
        let (from, to) = ((places.start - first).0, (places.end - first).0);
        let order = self.request.order.0;
        let (start, end) = match self.has_shared_tails() {
            true => (from >> order, (to >> order) + 1),
            false => (from / per_page, to.div_ceil(per_page)),
        };
        let range = self.request.range.start;
        PfnRange { start: range + PageCount(start), end: range + PageCount(end) }
    }

    /// The frames whose structures get memory when the page is split: those outside the head's map page.
    pub(super) fn tail_pages_of(&self, head: Pfn) -> PfnRange {
        let end = head + self.request.order.pages();
        let real = if self.has_shared_tails() { map_page_order(self.geometry) } else { self.request.order };
        PfnRange { start: head + real.pages(), end }
    }

    /// The frames whose structures lie in the map page of a head.
    pub(super) fn head_page_of(&self, head: Pfn) -> PfnRange {
        PfnRange::new(head, self.request.order.min(map_page_order(self.geometry)).pages())
    }
}
