//! Numbers the frames of present sections: the *places* of their page structures in the memory map, and of their entries in all
//! tables that have one for each frame, pageblock or section.
//!
//! A section is present if it has memory, or room for devices. Places are numbered without gaps, so a hole takes no
//! page structures and no table entries, however large it is. A *run* is a range of present sections without a hole,
//! and the places in a run are in the order of its frames. The run with the most memory, the *largest* one, has the
//! first places, and its start and length are kept in the view. So a look-up costs one comparison for every frame on a
//! machine without holes, and for most frames on any other. The other runs follow in ascending order in a table
//! ([`RunEntry`]), and a second table leads to their sections ([`OtherRuns`]). Block arithmetic works on places as it
//! does on frame numbers, because sections consist of whole blocks and the first place of a section is a multiple of
//! its size.
//!
//! # Processes that write at random
//!
//! The tables are in the control region, where other processes may write, so a look-up treats them as hints:
//! [`Numbering::place`] always returns a place in the map or [`OUTSIDE`], and [`Numbering::pfn`] returns a frame that
//! is in a hole only if a table is wrong.

use core::ops::Range;

use crate::sync::{AtomicU64, Ordering, all_atomic};
use crate::units::{Order, PageCount, Pfn, PfnRange};

mod sections;

pub(crate) use sections::{OtherRuns, SectionSlot, slots_for};

/// The place of frames that have none. Behind the end of every table, even as the place of a pageblock or section.
pub(crate) const OUTSIDE: usize = usize::MAX;

/// A run, in the table of runs. Written when the yard is created.
#[repr(C)]
#[derive(Default)]
pub(crate) struct RunEntry {
    start: AtomicU64,
    end: AtomicU64,
    /// The place of its first frame.
    place: AtomicU64,
}

all_atomic!(RunEntry { start, end, place });

impl RunEntry {
    pub(crate) fn set(&self, range: PfnRange, place: u64) {
        self.start.store(range.start.0, Ordering::Relaxed);
        self.end.store(range.end.0, Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> (PfnRange, u64) {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        (PfnRange { start: Pfn(word(&self.start)), end: Pfn(word(&self.end)) }, word(&self.place))
    }
}

/// Which frames have places, and which.
#[derive(Clone, Copy)]
pub(crate) struct Numbering {
    /// The first frame of the largest run, whose places begin at 0.
    start: Pfn,
    /// The frames of the largest run.
    largest: u64,
    /// The other runs.
    others: &'static [RunEntry],
    /// The table of sections; see [`OtherRuns`].
    sections: &'static [SectionSlot],
    /// Sections have `1 << shift` frames.
    shift: u8,
    /// The frames of all runs.
    places: u64,
    /// From the first frame of any run to the last.
    span: PfnRange,
}

impl Numbering {
    /// The numbering of tables of runs, the largest run first, then the rest, ascending, and of sections of `1 << shift` frames.
    pub(crate) fn new(
        (runs, sections): (&'static [RunEntry], &'static [SectionSlot]),
        shift: u8,
        places: PageCount,
        span: PfnRange,
    ) -> Option<Self> {
        let (largest, others) = runs.split_first()?;
        let (largest, first) = largest.get();
        let (start, largest) = (largest.start, largest.count().0);
        (first == 0).then_some(Self { start, largest, others, sections, shift, places: places.0, span })
    }

    /// Writes the table of sections of a new yard.
    pub(crate) fn write_sections(&self) {
        self.for_each_section(|start, place, is_in_largest| self.other_runs().enter(start, place, is_in_largest));
    }

    /// Calls `visit` with each section of a yard with several runs: its first frame, that frame's place, and whether it is in the
    /// largest run.
    fn for_each_section(&self, mut visit: impl FnMut(Pfn, u64, bool)) {
        for (at, (run, first)) in self.runs().enumerate().filter(|_| self.has_others()) {
            for offset in (0..run.count().0.min(self.places)).step_by(1 << self.shift) {
                visit(run.start + PageCount(offset), first + offset, at == 0);
            }
        }
    }

    /// Where the sections of the runs other than the largest lie.
    #[inline(always)]
    pub(crate) fn other_runs(&self) -> OtherRuns {
        OtherRuns::new(self.sections, self.places, self.shift)
    }

    /// The numbering of a machine without holes.
    #[cfg(test)]
    pub(crate) fn without_holes(frames: PfnRange) -> Self {
        let (start, count) = (frames.start, frames.count().0);
        Self { start, largest: count, others: &[], sections: &[], shift: 0, places: count, span: frames }
    }

    /// How many places there are: frames of present sections.
    #[inline(always)]
    pub(crate) fn places(&self) -> u64 {
        self.places
    }

    /// Whether there are runs beside the largest one.
    pub(crate) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// From the first frame to the last, holes included.
    #[inline(always)]
    pub(crate) fn span(&self) -> PfnRange {
        self.span
    }

    /// The largest run, whose places begin at 0.
    #[inline(always)]
    pub(crate) fn largest_run(&self) -> PfnRange {
        PfnRange::new(self.start, PageCount(self.largest))
    }

    /// The place of a frame; [`OUTSIDE`] in a hole. Accepts any frame number.
    #[inline(always)]
    pub(crate) fn place(&self, pfn: Pfn) -> usize {
        let offset = pfn.0.wrapping_sub(self.start.0);
        if offset < self.largest {
            offset as usize
        } else {
            place_in_other_run(self.sections, self.places, self.shift, pfn)
        }
    }

    /// The frame at a place of the map; a frame behind the last one for any other place.
    #[inline(always)]
    pub(crate) fn pfn(&self, place: u32) -> Pfn {
        if u64::from(place) < self.largest {
            self.start + PageCount(u64::from(place))
        } else {
            pfn_in_other_run(self.sections, self.places, self.shift, self.span, place)
        }
    }

    /// All runs with their first places, by place.
    fn runs(&self) -> impl Iterator<Item = (PfnRange, u64)> + use<> {
        core::iter::once((self.largest_run(), 0)).chain(self.others.iter().map(RunEntry::get))
    }

    /// The places of a range of frames, run by run.
    pub(crate) fn places_of(&self, range: PfnRange) -> impl Iterator<Item = Range<u64>> + use<> {
        let places = self.places;
        self.runs().filter_map(move |(run, first)| {
            let part = run.intersection(range);
            let start = first.checked_add(part.start.0.checked_sub(run.start.0)?)?;
            let end = start.checked_add(part.count().0)?.min(places);
            (start < end).then_some(start..end)
        })
    }

    /// The numbers of the blocks of an order that a range of frames touches, run by run: a block's number is its first place, in
    /// blocks. Holes have none.
    pub(crate) fn blocks_of(&self, range: PfnRange, order: Order) -> impl Iterator<Item = Range<u64>> + use<> {
        self.places_of(range).map(move |places| places.start >> order.0..((places.end - 1) >> order.0) + 1)
    }

    /// The first frame of a block, by its number.
    pub(crate) fn block_start(&self, number: u64, order: Order) -> Pfn {
        self.pfn((number << order.0) as u32)
    }

    /// The first frame with a place, from this one on; the largest number if there is none. Reads all runs in a hole.
    pub(crate) fn next_present(&self, pfn: Pfn) -> Pfn {
        if self.place(pfn) != OUTSIDE {
            return pfn;
        }
        self.runs().map(|(run, _)| run.start).filter(|start| *start > pfn).min().unwrap_or(Pfn(u64::MAX))
    }

    /// The frame behind the last one with a place before `end`; the first number if there is none. Reads all runs in a hole.
    pub(crate) fn present_before(&self, end: Pfn) -> Pfn {
        if end.0.checked_sub(1).is_some_and(|last| self.place(Pfn(last)) != OUTSIDE) {
            return end;
        }
        self.runs().map(|(run, _)| run.end).filter(|behind| *behind < end).max().unwrap_or(Pfn(0))
    }

    /// Whether the runs consist of whole sections, lie apart, make up the span, ascend behind the largest run, and have places without
    /// gaps, and whether the table of sections leads to them.
    pub(crate) fn is_sound(&self) -> bool {
        let largest = self.largest_run();
        let (mut next_place, mut last_end) = (0, Pfn(0));
        let mut span = largest;
        let are_runs = self.runs().enumerate().all(|(at, (run, place))| {
            let whole = (run.start.0 | run.end.0).trailing_zeros() >= u32::from(self.shift) && !run.is_empty();
            let apart = at == 0 || (run.start >= last_end && run.intersection(largest).is_empty());
            span = PfnRange { start: span.start.min(run.start), end: span.end.max(run.end) };
            let expected = core::mem::replace(&mut next_place, place.saturating_add(run.count().0));
            if at > 0 {
                last_end = run.end;
            }
            whole && apart && place == expected
        });
        are_runs && next_place == self.places && span == self.span && self.sections_are_sound()
    }
}

impl Numbering {
    fn sections_are_sound(&self) -> bool {
        let mut are_sound = !self.has_others() || self.other_runs().fits(self.places);
        self.for_each_section(|start, place, is_in_largest| {
            let by_number = if is_in_largest { place as usize } else { self.other_runs().place(start) };
            are_sound &= by_number == place as usize && self.other_runs().pfn(place as u32) == Some(start);
        });
        are_sound
    }
}

impl core::fmt::Debug for Numbering {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Numbering")
            .field("span", &self.span)
            .field("places", &self.places)
            .field("runs", &(1 + self.others.len()))
            .finish()
    }
}

/// The place of a frame outside the largest run.
// By value, so that no caller keeps a `Numbering` in memory only for this call.
#[cold]
#[inline(never)]
fn place_in_other_run(sections: &'static [SectionSlot], places: u64, shift: u8, pfn: Pfn) -> usize {
    let place = OtherRuns::new(sections, places, shift).place(pfn);
    if (place as u64) < places { place } else { OUTSIDE }
}

/// The frame at a place behind those of the largest run.
#[cold]
#[inline(never)]
fn pfn_in_other_run(sections: &'static [SectionSlot], places: u64, shift: u8, span: PfnRange, place: u32) -> Pfn {
    let others = OtherRuns::new(sections, places, shift);
    let behind = || span.end + PageCount(u64::from(place).saturating_sub(places));
    others.pfn(place).filter(|pfn| span.contains(*pfn)).unwrap_or_else(behind)
}

#[cfg(all(test, not(loom)))]
mod tests;
