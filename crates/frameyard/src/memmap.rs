//! The memory map: a virtually contiguous array with one page structure for each frame of a present section.
//!
//! [`Numbering`] gives each of these frames a place. Holes between sections have no places, no addresses and no memory.
//!
//! # Checked frame numbers
//!
//! A page look-up takes either a [`MapPlace`], which is known to be in the map, or a [`Pfn`], whose place it looks up
//! first. A `MapPlace` comes from one of two sources:
//!
//! - [`MemMap::check`] looks up the place of a frame number.
//! - [`MemMap::next`] and [`MemMap::entry`] check values read from the yard's memory: links and list entries. Another
//!   process that shares the memory may have written anything there.
//!
//! The [head](MemMap::head), the [buddy](MemMap::buddy) and the [parts](MapPlace::part) of a block around a checked
//! place need no further check. Lists, splits and merges work with places, and need no frame numbers.

use core::ops::Range;
use core::ptr::NonNull;

use crate::page::{FrameName, Link, MapContent, Page, PageRef, PageTemplate, ProbedName};
use crate::platform::{Platform, Probe};
use crate::units::{Block, Geometry, Order, Pfn, PfnRange, ZoneId};

mod initialiser;
#[cfg(all(test, not(loom)))]
pub(crate) mod kept;
mod numbering;
mod ranges;
mod writer;

pub use initialiser::Initialiser;
pub(crate) use numbering::{Numbering, OUTSIDE, OtherRuns, RunEntry, SectionSlot, slots_for};
pub(crate) use ranges::{RangeEntry, range_of, ranges_in};
pub(crate) use writer::MapWriter;

/// A place that lies in the memory map.
///
/// Made by [`MemMap`] alone. A yard has one map, so there is no other map that it could be mistaken for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct MapPlace(u32);

impl MapPlace {
    /// The number of the place.
    #[inline(always)]
    pub(crate) fn index(self) -> u32 {
        self.0
    }

    /// The place `offset` frames into the block of `order` that begins here. It lies in the map, because sections hold whole blocks.
    #[inline(always)]
    pub(crate) fn part(self, order: Order, offset: u32) -> Self {
        debug_assert!(u64::from(offset) < order.pages().0, "frame {offset} of a block of order {order}");
        Self(self.0 | (offset & (order.pages().0 as u32 - 1)))
    }

    /// The number as that of a frame: frames and places have the same alignment.
    #[inline(always)]
    pub(crate) fn aligned_alike(self) -> Pfn {
        Pfn(self.0.into())
    }

    /// The link to the frame at this place.
    #[inline(always)]
    pub(crate) fn link(self) -> Link {
        Link(self.0 + 1)
    }
}

/// A block, by the place of its first frame.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct MapBlock {
    pub(crate) head: MapPlace,
    pub(crate) order: Order,
}

impl MapBlock {
    /// A part of the block, by offsets from its head, cut into the largest blocks.
    #[inline(always)]
    pub(crate) fn parts(self, part: Range<u32>) -> impl Iterator<Item = Self> {
        let offsets = PfnRange { start: Pfn(part.start.into()), end: Pfn(part.end.into()) };
        let at = move |offset: Pfn| self.head.part(self.order, offset.0 as u32);
        offsets.blocks(self.order).map(move |Block { pfn, order }| Self { head: at(pfn), order })
    }
}

impl From<MapPlace> for u32 {
    #[inline(always)]
    fn from(MapPlace(place): MapPlace) -> Self {
        place
    }
}

impl From<MapPlace> for u64 {
    #[inline(always)]
    fn from(MapPlace(place): MapPlace) -> Self {
        place.into()
    }
}

/// What a page structure can be looked up by.
pub(crate) trait Located: Copy {
    /// What the look-up knows of the frame's number.
    type Name: FrameName;

    /// The place of the frame in `map`.
    ///
    /// # Panics
    ///
    /// If the frame is outside the map.
    fn place(self, map: &MemMap) -> MapPlace;

    fn name<P: Platform>(self, map: &MemMap, platform: &P) -> Self::Name;
}

impl Located for MapPlace {
    type Name = ProbedName;

    #[inline(always)]
    fn place(self, _map: &MemMap) -> MapPlace {
        self
    }

    #[inline(always)]
    fn name<P: Platform>(self, map: &MemMap, platform: &P) -> ProbedName {
        ProbedName(if platform.probe().sees_pages() { map.pfn(self) } else { Pfn(0) })
    }
}

/// A frame whose place was looked up.
impl Located for (Pfn, MapPlace) {
    type Name = Pfn;

    #[inline(always)]
    fn place(self, _map: &MemMap) -> MapPlace {
        self.1
    }

    #[inline(always)]
    fn name<P: Platform>(self, _map: &MemMap, _platform: &P) -> Pfn {
        self.0
    }
}

impl Located for Pfn {
    type Name = Self;

    #[inline(always)]
    fn place(self, map: &MemMap) -> MapPlace {
        match map.check(self) {
            Some(place) => place,
            None => map.outside(self),
        }
    }

    #[inline(always)]
    fn name<P: Platform>(self, _map: &MemMap, _platform: &P) -> Self {
        self
    }
}

/// The base of the memory map and the frames it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemMap {
    /// The page structure at place 0.
    base: NonNull<Page>,
    numbering: Numbering,
    content: MapContent,
    section_shift: u8,
}

// SAFETY: the map is an array of atomics that outlives every view (contract of `MemMap::new`).
unsafe impl Send for MemMap {}
// SAFETY: as above; all access is through atomics.
unsafe impl Sync for MemMap {}

impl MemMap {
    /// # Safety
    ///
    /// `base` points to room for the page structures of all places, aligned to 64 bytes, which stays mapped as long as any copy of
    /// the result is used. If [`head`](Self::head) or [`buddy`](Self::buddy) is called, runs consist of whole sections.
    pub(crate) unsafe fn new(
        base: NonNull<Page>,
        numbering: Numbering,
        content: MapContent,
        geometry: Geometry,
    ) -> Self {
        debug_assert!(numbering.places() < u64::from(u32::MAX));
        Self { base, numbering, content, section_shift: geometry.section_pages_shift() }
    }

    /// Which frames have which places.
    #[inline(always)]
    pub(crate) fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// How many places there are.
    #[inline(always)]
    pub(crate) fn places(&self) -> u64 {
        self.numbering.places()
    }

    /// The place behind the last one: there are fewer than 2^32.
    #[inline(always)]
    fn end(&self) -> u32 {
        self.places() as u32
    }

    /// The content of a fresh page structure.
    #[inline(always)]
    pub(crate) fn content(&self) -> MapContent {
        self.content
    }

    /// The fresh page structure of a frame.
    #[inline]
    pub(crate) fn template(&self, pfn: Pfn, zone: Option<ZoneId>) -> PageTemplate {
        PageTemplate::of(self.content, pfn.0 >> self.section_shift, zone)
    }

    /// As [`template`](Self::template), for the frame at a place.
    #[inline]
    pub(crate) fn template_at(&self, place: MapPlace, zone: Option<ZoneId>) -> PageTemplate {
        match self.content {
            MapContent::Zero => PageTemplate::ZERO,
            MapContent::Kernel => self.template(self.pfn(place), zone),
        }
    }

    /// The place of a frame, if it lies in the map.
    #[inline(always)]
    pub(crate) fn check(&self, pfn: Pfn) -> Option<MapPlace> {
        let place = self.place(pfn);
        (place != OUTSIDE).then_some(MapPlace(place as u32))
    }

    /// The head of the aligned block of `order` around a place. It lies in the map, because sections hold whole blocks.
    #[inline(always)]
    pub(crate) fn head(&self, MapPlace(place): MapPlace, order: Order) -> MapPlace {
        debug_assert!(order.0 <= self.section_shift, "sections hold no block of order {order}");
        MapPlace(place & !(order.pages().0 as u32 - 1))
    }

    /// The buddy of the block of `order` at `head`. It lies in the map, because sections hold whole blocks of the next order.
    #[inline(always)]
    pub(crate) fn buddy(&self, MapPlace(place): MapPlace, order: Order) -> MapPlace {
        debug_assert!(order.0 < self.section_shift, "blocks of order {order} have no buddy in their section");
        MapPlace(place ^ order.pages().0 as u32)
    }

    /// What a look-up of a frame without a place finds. If there are several runs, another process may have damaged their table since the
    /// frame was found: the first page structure stands in for the frame's.
    ///
    /// # Panics
    ///
    /// If there is one run: the caller is wrong.
    #[cold]
    #[inline(never)]
    fn outside(&self, pfn: Pfn) -> MapPlace {
        assert!(self.numbering.has_others(), "{pfn} is not in the memory map {}", self.range());
        MapPlace(0)
    }

    /// The address of a frame's page structure. In a run, those of consecutive frames follow each other.
    #[inline(always)]
    pub(crate) fn address(&self, frame: impl Located) -> NonNull<Page> {
        let MapPlace(place) = frame.place(self);
        // SAFETY: the place is in the map.
        unsafe { self.base.add(place as usize) }
    }

    /// The page structures of a range of frames in one run: the first, and how many. There are fewer than frames if the range would
    /// end behind the map: another process may have damaged the table of runs.
    pub(crate) fn structures(&self, frames: PfnRange) -> (NonNull<Page>, u64) {
        let first = frames.start.place(self);
        (self.address(first), frames.count().0.min(self.places() - u64::from(first)))
    }

    /// The memory of these page structures, and its bytes.
    pub(crate) fn memory_of(&self, frames: PfnRange) -> (NonNull<u8>, usize) {
        let (first, count) = self.structures(frames);
        (first.cast(), count as usize * size_of::<Page>())
    }

    /// The frames from the first to the last, holes included.
    #[inline(always)]
    pub(crate) fn range(&self) -> PfnRange {
        self.numbering.span()
    }

    /// The page structure of a frame of a present section.
    ///
    /// # Panics
    ///
    /// If the frame is outside the map.
    #[inline(always)]
    pub(crate) fn page<'a, P: Platform, L: Located>(&self, frame: L, platform: &'a P) -> PageRef<'a, P, L::Name> {
        // SAFETY: the address is in the map, and the section has memory: frames without memory are on no list, and public
        // entry points refuse them (`PageblockMap::has_memory`).
        unsafe { PageRef::new(self.address(frame), frame.name(self, platform), platform) }
    }

    /// The page structure at a place of the map, as that of `pfn`. A device whose compound pages share a layout keeps the
    /// structures of heads elsewhere than at their frames.
    ///
    /// # Safety
    ///
    /// The place lies in the map, and in memory.
    #[inline(always)]
    pub(crate) unsafe fn page_at<'a, P: Platform>(&self, place: u32, pfn: Pfn, platform: &'a P) -> PageRef<'a, P> {
        debug_assert!(u64::from(place) < self.places(), "place {place} is not in the memory map");
        // SAFETY: as the caller promises.
        unsafe { PageRef::new(self.base.add(place as usize), pfn, platform) }
    }

    /// The place of a frame of the map.
    #[inline(always)]
    pub(crate) fn index(&self, pfn: Pfn) -> u32 {
        self.place(pfn) as u32
    }

    /// The place of a frame; [`OUTSIDE`] if it has none. Accepts any frame number.
    #[inline(always)]
    pub(crate) fn place(&self, pfn: Pfn) -> usize {
        self.numbering.place(pfn)
    }

    /// The places of a section.
    pub(crate) fn section_pages(&self) -> u64 {
        1 << self.section_shift
    }

    /// The number of a place's section.
    #[inline(always)]
    pub(crate) fn section_number(&self, place: usize) -> usize {
        place >> self.section_shift
    }

    /// The frame at a place of the map.
    #[inline(always)]
    pub(crate) fn pfn(&self, place: impl Into<u32>) -> Pfn {
        self.numbering.pfn(place.into())
    }

    /// A place that the yard's memory holds, if it is a place of the map.
    #[inline(always)]
    pub(crate) fn entry(&self, place: u32) -> Option<MapPlace> {
        (place < self.end()).then_some(MapPlace(place))
    }

    /// The place of an entry of a batch, which was checked when it was read. The first place of the map for any other number.
    #[inline(always)]
    pub(crate) fn checked(&self, place: u32) -> MapPlace {
        self.entry(place).unwrap_or_default()
    }

    /// Whether a block of that order may begin at a place that the yard's memory holds.
    #[inline(always)]
    pub(crate) fn may_begin(&self, place: u32, order: Order) -> bool {
        place < self.end() && u64::from(place).trailing_zeros() >= u32::from(order.0)
    }

    /// As [`may_begin`](Self::may_begin), for all of these places.
    #[inline(always)]
    pub(crate) fn may_all_begin(&self, places: &[u32], order: Order) -> bool {
        // No place is greater than all their bits together. So most of the time no place is compared by itself.
        let bits = places.iter().fold(0, |bits, at| bits | *at);
        let inside = bits < self.end() || places.iter().all(|at| *at < self.end());
        inside && u64::from(bits).trailing_zeros() >= u32::from(order.0)
    }

    /// The link to a frame.
    #[inline(always)]
    pub(crate) fn link(&self, pfn: Pfn) -> Link {
        Link(self.index(pfn).wrapping_add(1))
    }

    /// The link to the frame at a place.
    #[inline(always)]
    pub(crate) fn link_at(&self, place: u32) -> Link {
        Link(place + 1)
    }

    /// The frame that a link names; `None` also if it names no frame of the map.
    #[inline(always)]
    pub(crate) fn linked(&self, link: Link) -> Option<Pfn> {
        self.next(link).map(|place| self.pfn(place))
    }

    /// The frame number that a link names, in the map or behind it. For the validator, which reports it.
    pub(crate) fn named(&self, link: Link) -> Option<Pfn> {
        (link != Link::NONE).then(|| self.pfn(link.0 - 1))
    }

    /// The place that a link names; `None` also if it names no place of the map.
    #[inline(always)]
    pub(crate) fn next(&self, link: Link) -> Option<MapPlace> {
        // `Link::NONE` wraps to a place behind every map.
        self.entry(link.0.wrapping_sub(1))
    }
}
