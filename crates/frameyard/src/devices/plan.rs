//! Which part of the memory map a device takes.

use crate::devices::section::Entry;
use crate::devices::{DeviceError, DeviceRequest, MapLayout, MapPlacement};
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
        match self.request.layout {
            MapLayout::Folded => self.pages(),
            MapLayout::Deduplicated if self.has_shared_tails() => self.pages(),
            _ if self.has_shared_tails() => self.pages() << self.kept_order().0,
            _ => self.data.count().0,
        }
    }

    /// Whether some map pages hold only tails.
    pub(super) fn has_shared_tails(&self) -> bool {
        let is_deduplicated = matches!(self.request.layout, MapLayout::Deduplicated | MapLayout::DeduplicatedTwo);
        is_deduplicated && self.request.order > self.kept_order()
    }

    /// With shared tails, the number of page structures in the map pages that remain per compound page, as an order.
    fn kept_order(&self) -> Order {
        let pages = if self.request.layout == MapLayout::DeduplicatedTwo { Order(1) } else { Order::ZERO };
        Order(map_page_order(self.geometry).0 + pages.0)
    }

    /// With shared tails, the number of map pages that remain per compound page.
    fn kept_pages(&self) -> u64 {
        1 << (self.kept_order().0 - map_page_order(self.geometry).0)
    }

    /// Memory that the page structures take, in whole pages.
    pub(super) fn map_bytes(&self) -> ByteSize {
        let page = self.geometry.page_size().0;
        ByteSize(match self.has_shared_tails() {
            true => self.pages() * self.kept_pages() * page,
            false => (self.structures() * size_of::<Page>() as u64).next_multiple_of(page),
        })
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
            // Places of one compound page.
            true => {
                let page = map_page_order(self.geometry);
                let first = (from >> order) * self.kept_pages() + ((from & ((1 << order) - 1)) >> page.0);
                (first, first + (to - from).div_ceil(1 << page.0))
            }
            false => (from / per_page, to.div_ceil(per_page)),
        };
        let range = self.request.range.start;
        PfnRange { start: range + PageCount(start), end: range + PageCount(end) }
    }

    /// The frames whose structures get memory when the page is split: those outside the map pages that remain.
    pub(super) fn tail_pages_of(&self, head: Pfn) -> PfnRange {
        let end = head + self.request.order.pages();
        let real = if self.has_shared_tails() { self.kept_order() } else { self.request.order };
        PfnRange { start: head + real.pages(), end }
    }

    /// With shared tails, the frames whose structures lie in each map page that remains for a compound page.
    pub(super) fn kept_pages_of(&self, head: Pfn) -> impl Iterator<Item = PfnRange> + use<> {
        let frames = map_page_order(self.geometry).pages();
        (0..self.kept_pages()).map(move |page| PfnRange::new(head + PageCount(page * frames.0), frames))
    }
}
