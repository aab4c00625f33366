//! The memory map: one virtually contiguous array of page structures, one for each frame of a present section.
//!
//! [`Numbering`] gives each of these frames a place. Holes between sections have no places, no addresses and no memory.
//!
//! # Checked frame numbers
//!
//! A page look-up takes a [`MapPfn`], a frame number known to lie in the map, or a [`Pfn`], which it compares with the map
//! first. There are two sources of `MapPfn`:
//!
//! - [`MemMap::check`] looks up the place of a frame number.
//! - [`MemMap::next`] and [`MemMap::entry`] compare what the yard's memory holds: links and entries of lists. Another process that
//!   shares the memory may have written anything there.
//!
//! The [head](MemMap::head) and the [buddy](MemMap::buddy) of a checked frame's block are checked. Other frames are plain `Pfn`s
//! again. In the near run a check costs two instructions.

use core::ptr::NonNull;

use crate::page::{Link, MapContent, Page, PageRef, PageTemplate};
use crate::platform::Platform;
use crate::units::{Geometry, Order, Pfn, PfnRange, ZoneId};

mod initialiser;
mod numbering;
mod writer;

pub use initialiser::Initialiser;
pub(crate) use numbering::{Numbering, OUTSIDE, RunEntry};
pub(crate) use writer::MapWriter;

/// A frame number that lies in the memory map.
///
/// Made by [`MemMap`] alone. A yard has one map, so there is no other map that it could be mistaken for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapPfn {
    pfn: Pfn,
    /// Its place in the map.
    place: u32,
}

impl MapPfn {
    /// Its place in the map.
    #[inline(always)]
    pub(crate) fn place(self) -> u32 {
        self.place
    }

    /// Of two blocks in a section, the lower and the upper.
    #[inline(always)]
    pub(crate) fn in_order(self, other: Self) -> (Self, Self) {
        if self.place < other.place { (self, other) } else { (other, self) }
    }
}

impl core::ops::Deref for MapPfn {
    type Target = Pfn;

    #[inline(always)]
    fn deref(&self) -> &Pfn {
        &self.pfn
    }
}

/// What a page structure can be looked up by.
pub(crate) trait Located: Copy {
    /// The frame, known to lie in `map`.
    ///
    /// # Panics
    ///
    /// If the frame is outside the map.
    fn locate(self, map: &MemMap) -> MapPfn;
}

impl Located for MapPfn {
    #[inline(always)]
    fn locate(self, _map: &MemMap) -> MapPfn {
        self
    }
}

impl Located for Pfn {
    #[inline(always)]
    fn locate(self, map: &MemMap) -> MapPfn {
        match map.check(self) {
            Some(pfn) => pfn,
            None => map.outside(self),
        }
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

    /// The frame, if it lies in the map.
    #[inline(always)]
    pub(crate) fn check(&self, pfn: Pfn) -> Option<MapPfn> {
        let place = self.place(pfn);
        (place != OUTSIDE).then_some(MapPfn { pfn, place: place as u32 })
    }

    /// The head of the aligned block of `order` around a frame. It lies in the map, because sections hold whole blocks.
    #[inline(always)]
    pub(crate) fn head(&self, MapPfn { pfn, place }: MapPfn, order: Order) -> MapPfn {
        debug_assert!(order.0 <= self.section_shift, "sections hold no block of order {order}");
        MapPfn { pfn: pfn.align_down(order), place: place & !(order.pages().0 as u32 - 1) }
    }

    /// The buddy of the block of `order` at `head`. It lies in the map, because sections hold whole blocks of the next order.
    #[inline(always)]
    pub(crate) fn buddy(&self, MapPfn { pfn, place }: MapPfn, order: Order) -> MapPfn {
        debug_assert!(order.0 < self.section_shift, "blocks of order {order} have no buddy in their section");
        MapPfn { pfn: pfn.buddy(order), place: place ^ order.pages().0 as u32 }
    }

    /// What a look-up of a frame without a place finds. If there are several runs, a neighbour may have damaged their table since the
    /// frame was found: the first page structure stands in for the frame's.
    ///
    /// # Panics
    ///
    /// If there is one run: the caller is wrong.
    #[cold]
    #[inline(never)]
    fn outside(&self, pfn: Pfn) -> MapPfn {
        assert!(self.numbering.has_others(), "{pfn} is not in the memory map {}", self.range());
        MapPfn { pfn, place: 0 }
    }

    /// The address of a frame's page structure. In a run, those of consecutive frames follow each other.
    #[inline(always)]
    pub(crate) fn address(&self, frame: impl Located) -> NonNull<Page> {
        let MapPfn { place, .. } = frame.locate(self);
        // SAFETY: the place is in the map.
        unsafe { self.base.add(place as usize) }
    }

    /// The page structures of a range of frames in one run: the first, and how many. There are fewer than frames if the range would
    /// end behind the map: a neighbour may have damaged the table of runs.
    pub(crate) fn structures(&self, frames: PfnRange) -> (NonNull<Page>, u64) {
        let first = frames.start.locate(self);
        (self.address(first), frames.count().0.min(self.places() - u64::from(first.place)))
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
    pub(crate) fn page<'a, P: Platform>(&self, frame: impl Located, platform: &'a P) -> PageRef<'a, P> {
        let frame = frame.locate(self);
        // SAFETY: the address is in the map, and the section has memory: frames without memory are on no list, and public
        // entry points refuse them (`PageblockMap::has_memory`).
        unsafe { PageRef::new(self.address(frame), *frame, platform) }
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

    /// The number of a place's section.
    #[inline(always)]
    pub(crate) fn section_number(&self, place: usize) -> usize {
        place >> self.section_shift
    }

    /// The frame at a place of the map.
    #[inline(always)]
    pub(crate) fn pfn(&self, place: u32) -> Pfn {
        self.numbering.pfn(place)
    }

    /// The frame at a place that the yard's memory holds, if it is a place of the map.
    #[inline(always)]
    pub(crate) fn entry(&self, place: u32) -> Option<MapPfn> {
        (u64::from(place) < self.places()).then(|| MapPfn { pfn: self.pfn(place), place })
    }

    /// Whether a block of that order may begin at a place that the yard's memory holds.
    #[inline(always)]
    pub(crate) fn may_begin(&self, place: u32, order: Order) -> bool {
        u64::from(place) < self.places() && u64::from(place).trailing_zeros() >= u32::from(order.0)
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
        self.next(link).map(|MapPfn { pfn, .. }| pfn)
    }

    /// The frame number that a link names, in the map or behind it. For the validator, which reports it.
    pub(crate) fn named(&self, link: Link) -> Option<Pfn> {
        (link != Link::NONE).then(|| self.pfn(link.0 - 1))
    }

    /// As [`linked`](Self::linked).
    #[inline(always)]
    pub(crate) fn next(&self, link: Link) -> Option<MapPfn> {
        // `Link::NONE` wraps to a place behind every map.
        self.entry(link.0.wrapping_sub(1))
    }
}
