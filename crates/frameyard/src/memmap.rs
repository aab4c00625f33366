//! The memory map: one virtually contiguous array of page structures over a range of frame numbers.
//!
//! Frame number to page is an add and a shift. Holes between sections have addresses but need no memory;
//! nothing here touches a page of a section that is not present.

use core::ptr::NonNull;

use crate::page::{Link, MapContent, Page, PageRef, PageTemplate};
use crate::platform::Platform;
use crate::units::{Geometry, PageCount, Pfn, PfnRange, ZoneId};

mod initialiser;
mod writer;

pub use initialiser::Initialiser;
pub(crate) use writer::MapWriter;

/// The base of the memory map and the frames it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemMap {
    /// The page structure of the first frame of `range`.
    base: NonNull<Page>,
    range: PfnRange,
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
    /// `base` points to room for the page structures of all of `range`, aligned to 64 bytes, which stays mapped
    /// (sections without memory apart) as long as any copy of the result is used. What it holds is looked at where it was
    /// brought up alone.
    pub(crate) unsafe fn new(base: NonNull<Page>, range: PfnRange, content: MapContent, geometry: Geometry) -> Self {
        debug_assert!(range.count().0 < u64::from(u32::MAX));
        Self { base, range, content, section_shift: geometry.section_pages_shift() }
    }

    /// What pages hold before anything begins there.
    #[inline(always)]
    pub(crate) fn content(&self) -> MapContent {
        self.content
    }

    /// What the page of a frame holds before anything begins there.
    #[inline]
    pub(crate) fn template(&self, pfn: Pfn, zone: Option<ZoneId>) -> PageTemplate {
        PageTemplate::of(self.content, pfn.0 >> self.section_shift, zone)
    }

    /// Where the page structure of a frame is. Whoever writes there directly has it to himself.
    pub(crate) fn address(&self, pfn: Pfn) -> NonNull<Page> {
        debug_assert!(self.range.contains(pfn), "{pfn} is not in the memory map {}", self.range);
        // SAFETY: the frame is in the map's range, so its page is in the map.
        unsafe { self.base.add((pfn.0 - self.range.start.0) as usize) }
    }

    /// The frames that the map covers, holes included.
    #[inline(always)]
    pub(crate) fn range(&self) -> PfnRange {
        self.range
    }

    /// The page structure of a frame of a present section.
    #[inline(always)]
    pub(crate) fn page<'a, P: Platform>(&self, pfn: Pfn, platform: &'a P) -> PageRef<'a, P> {
        debug_assert!(self.range.contains(pfn), "{pfn} is not in the memory map {}", self.range);
        // SAFETY: callers pass frames that they found on a list, in a tag, or that a public entry point has
        // compared with the range and the section table; all of these lie in the map.
        unsafe { PageRef::new(self.base.add((pfn.0 - self.range.start.0) as usize), pfn, platform) }
    }

    /// The page structure at a place of the map, of whichever frame it is that begins there.
    #[inline(always)]
    pub(crate) fn page_at<'a, P: Platform>(&self, place: u32, pfn: Pfn, platform: &'a P) -> PageRef<'a, P> {
        debug_assert!(u64::from(place) < self.range.count().0, "place {place} is not in the memory map {}", self.range);
        // SAFETY: places come from entries of sections, which whoever mapped a device has computed, or `attach` has
        // checked, to lie in the map.
        unsafe { PageRef::new(self.base.add(place as usize), pfn, platform) }
    }

    /// A frame's place in the map.
    #[inline(always)]
    pub(crate) fn index(&self, pfn: Pfn) -> u32 {
        (pfn.0 - self.range.start.0) as u32
    }

    /// The place in the map that a frame would have. Any frame number may be asked for: those outside the map have places
    /// behind its end.
    #[inline(always)]
    pub(crate) fn place(&self, pfn: Pfn) -> usize {
        pfn.0.wrapping_sub(self.range.start.0) as usize
    }

    /// The number, counted from the map's first, of the section that a place of the map lies in.
    #[inline(always)]
    pub(crate) fn section_number(&self, place: usize) -> usize {
        place >> self.section_shift
    }

    /// The frame at a place of the map.
    #[inline(always)]
    pub(crate) fn pfn(&self, index: u32) -> Pfn {
        self.range.start + PageCount(u64::from(index))
    }

    /// The link that names a frame.
    #[inline(always)]
    pub(crate) fn link(&self, pfn: Pfn) -> Link {
        Link(self.index(pfn) + 1)
    }

    /// The frame that a link names.
    #[inline(always)]
    pub(crate) fn linked(&self, link: Link) -> Option<Pfn> {
        if link == Link::NONE { None } else { Some(self.pfn(link.0 - 1)) }
    }
}
