//! Look-ups outside the largest run, in constant time.
//!
//! A table in the control region has two parts. The first has an entry for each section, by its place: it leads from
//! places to frames. The second leads from frames to places: a hash table, at most half full, of the sections outside
//! the largest run, by their numbers. A look-up probes entries one after the other from the section's own slot on,
//! until it finds the section or a free slot.
//!
//! The table takes 48 to 80 bytes for each section. For comparison, the page structures of a section of 128 MiB take 2
//! MiB. Holes take nothing, and a machine without holes has no table.

use crate::memmap::numbering::OUTSIDE;
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::Pfn;

/// A section, in either part of the table. Written when the yard is created.
#[repr(C)]
#[derive(Default)]
pub(crate) struct SectionSlot {
    /// Its first frame.
    start: AtomicU64,
    /// How many frames it has; 0 in a free slot.
    frames: AtomicU32,
    /// The place of its first frame.
    place: AtomicU32,
}

all_atomic!(SectionSlot { start, frames, place });

impl SectionSlot {
    pub(super) fn set(&self, start: Pfn, frames: u32, place: u32) {
        self.start.store(start.0, Ordering::Relaxed);
        self.frames.store(frames, Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
    }

    /// The place of a frame of this section.
    #[inline(always)]
    fn place_of(&self, pfn: Pfn) -> Option<usize> {
        let offset = pfn.0.wrapping_sub(self.start.load(Ordering::Relaxed));
        let is_inside = offset < u64::from(self.frames.load(Ordering::Relaxed));
        is_inside.then(|| self.place.load(Ordering::Relaxed) as usize + offset as usize)
    }
}

/// How many entries the table has.
pub(crate) const fn slots_for(sections: usize, runs: usize) -> usize {
    if runs < 2 { 0 } else { sections + (2 * sections).next_power_of_two() }
}

/// The table, in its two parts: where the runs other than the largest lie. Other processes may write there, so what it says is a hint.
#[derive(Clone, Copy)]
pub(crate) struct OtherRuns {
    by_place: &'static [SectionSlot],
    by_number: &'static [SectionSlot],
    /// The last slot by number, which masks hashes.
    mask: usize,
    shift: u8,
}

impl OtherRuns {
    /// The parts of the table of a yard with that number of places, in sections of `1 << shift` frames.
    #[inline(always)]
    pub(super) fn new(table: &'static [SectionSlot], places: u64, shift: u8) -> Self {
        let (by_place, by_number) = table.split_at_checked((places >> shift) as usize).unwrap_or_default();
        Self { by_place, by_number, mask: by_number.len().saturating_sub(1), shift }
    }

    /// Whether the table is large enough for that many places.
    pub(super) fn fits(&self, places: u64) -> bool {
        self.by_place.len() as u64 == places >> self.shift && self.by_number.len().is_power_of_two()
    }

    /// Enters a section. Sections of the largest run are not looked up by number.
    pub(super) fn enter(&self, start: Pfn, place: u64, is_in_largest: bool) {
        let set = |slot: &SectionSlot| slot.set(start, 1 << self.shift, place as u32);
        self.by_place.get((place >> self.shift) as usize).into_iter().for_each(set);
        if !is_in_largest {
            let is_free = |slot: &&SectionSlot| slot.frames.load(Ordering::Relaxed) == 0;
            self.slots_of(start).find(is_free).into_iter().for_each(set);
        }
    }

    /// The slot where a frame's section should be.
    #[inline(always)]
    fn hash(&self, pfn: Pfn) -> usize {
        // Fibonacci hashing, which spreads sections at equal distances: the multiplier is 2^64 divided by the golden ratio.
        ((pfn.0 >> self.shift).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & self.mask
    }

    /// The slots where a frame's section may be, the likeliest first.
    fn slots_of(&self, pfn: Pfn) -> impl Iterator<Item = &'static SectionSlot> {
        let Self { by_number, mask, .. } = *self;
        let first = self.hash(pfn);
        (0..by_number.len()).filter_map(move |step| by_number.get((first + step) & mask))
    }

    /// The place of a frame outside the largest run, possibly one behind the map; [`OUTSIDE`] for a frame that the table does not name.
    #[inline(always)]
    pub(crate) fn place(&self, pfn: Pfn) -> usize {
        match self.by_number.get(self.hash(pfn)).and_then(|slot| slot.place_of(pfn)) {
            Some(place) => place,
            None => self.place_behind(pfn),
        }
    }

    /// As [`place`](Self::place), of a frame whose section is not in its first slot.
    #[cold]
    #[inline(never)]
    fn place_behind(&self, pfn: Pfn) -> usize {
        let in_use = |slot: &&SectionSlot| slot.frames.load(Ordering::Relaxed) != 0;
        self.slots_of(pfn).take_while(in_use).find_map(|slot| slot.place_of(pfn)).unwrap_or(OUTSIDE)
    }

    /// The frame at a place, possibly outside the map; `None` for a place behind the map.
    #[inline(always)]
    pub(crate) fn pfn(&self, place: u32) -> Option<Pfn> {
        let slot = self.by_place.get(place as usize >> self.shift)?;
        let offset = place.wrapping_sub(slot.place.load(Ordering::Relaxed));
        Some(Pfn(slot.start.load(Ordering::Relaxed).wrapping_add(u64::from(offset))))
    }
}
