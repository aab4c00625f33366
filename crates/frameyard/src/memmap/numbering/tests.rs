//! Places and frames of runs that lie far apart, in a sound table and in one that another process overwrites.

use core::ptr::NonNull;
use std::vec::Vec;

use crate::memmap::MemMap;
use crate::memmap::kept::kept;
use crate::memmap::numbering::*;
use crate::page::{MapContent, Page};
use crate::units::Geometry;

const SHIFT: u8 = 4;

fn frames(start: u64, end: u64) -> PfnRange {
    PfnRange { start: Pfn(start), end: Pfn(end) }
}

/// The largest run lies between two runs. A third is 2^50 frames away.
fn runs() -> [PfnRange; 4] {
    let distant = 1 << 50;
    [frames(0x1000, 0x1100), frames(0x20, 0x40), frames(0x2000, 0x2010), frames(distant, distant + 0x80)]
}

fn numbering_of(runs: &[PfnRange]) -> (&'static [RunEntry], Numbering) {
    let (entries, _, numbering) = tables_of(runs);
    (entries, numbering)
}

fn tables_of(runs: &[PfnRange]) -> (&'static [RunEntry], &'static [SectionSlot], Numbering) {
    let (mut entries, mut next) = (Vec::new(), 0);
    for run in runs {
        let entry = RunEntry::default();
        entry.set(*run, next);
        entries.push(entry);
        next += run.count().0;
    }
    let entries = kept(entries);
    let start = runs.iter().map(|run| run.start).min().unwrap();
    let end = runs.iter().map(|run| run.end).max().unwrap();
    let slots = slots_for((next >> SHIFT) as usize, runs.len());
    let slots = kept((0..slots).map(|_| SectionSlot::default()).collect());
    let numbering = Numbering::new((entries, slots), SHIFT, PageCount(next), PfnRange { start, end }).unwrap();
    numbering.write_sections();
    (entries, slots, numbering)
}

#[test]
fn every_frame_of_a_run_has_a_place_of_its_own_and_holes_have_none() {
    let (_, numbering) = numbering_of(&runs());
    assert!(numbering.is_sound());
    let mut places = Vec::new();
    for pfn in runs().into_iter().flat_map(|run| run.start.0..run.end.0).map(Pfn) {
        let place = numbering.place(pfn);
        assert_eq!(numbering.pfn(place as u32), pfn);
        assert_eq!(place as u64 % 16, pfn.0 % 16, "{pfn}: blocks are aligned alike");
        places.push(place);
    }
    assert!(places.iter().copied().eq(0..numbering.places() as usize));
    for run in runs() {
        for hole in [run.start.0 - 1, run.end.0, run.end.0 + (1 << 32), run.start.0 ^ 1 << 49].map(Pfn) {
            assert_eq!(numbering.place(hole), OUTSIDE, "{hole}");
        }
    }
    for place in [numbering.places() as u32, u32::MAX - 1, u32::MAX] {
        assert!(numbering.pfn(place) >= numbering.span().end, "{place}");
    }
}

#[test]
fn two_hundred_runs_at_any_distance_are_found() {
    for distance in [0x20, 0x30, 0x1000, 0x1230, 1 << 20, 1 << 44, (1 << 44) + 0x10] {
        let runs: Vec<_> = (1..=200).map(|at| frames(at * distance, at * distance + 0x10)).collect();
        let (_, numbering) = numbering_of(&runs);
        assert!(numbering.is_sound(), "{distance:#x}");
        for (at, run) in runs.iter().enumerate() {
            assert_eq!(numbering.place(run.start), 16 * at);
            assert_eq!(numbering.pfn(16 * at as u32 + 15) + PageCount(1), run.end);
            assert_eq!(numbering.place(run.end), OUTSIDE);
        }
    }
}

#[test]
fn the_places_of_a_range_leave_out_holes() {
    let (_, numbering) = numbering_of(&runs());
    let places = |range| numbering.places_of(range).collect::<Vec<_>>();
    assert_eq!(places(frames(0, u64::MAX)), [0..0x100, 0x100..0x120, 0x120..0x130, 0x130..0x1b0]);
    assert_eq!(places(frames(0x3f, 0x1001)), [0..1, 0x11f..0x120]);
    assert_eq!(places(frames(0x40, 0x1000)), []);
    assert_eq!(places(frames(0x1010, 0x1008)), []);
}

#[test]
fn a_walk_passes_a_hole_in_one_step() {
    let (_, numbering) = numbering_of(&runs());
    let distant = 1 << 50;
    for (pfn, next) in
        [(0, 0x20), (0x25, 0x25), (0x40, 0x1000), (0x1100, 0x2000), (0x2010, distant), (distant + 0x80, u64::MAX)]
    {
        assert_eq!(numbering.next_present(Pfn(pfn)), Pfn(next));
    }
    for (end, behind) in
        [(u64::MAX, distant + 0x80), (distant + 1, distant + 1), (distant, 0x2010), (0x1000, 0x40), (0x20, 0), (0, 0)]
    {
        assert_eq!(numbering.present_before(Pfn(end)), Pfn(behind));
    }
}

#[test]
fn a_table_that_contradicts_itself_is_not_sound() {
    let good = runs();
    let damaged = [
        (1, frames(0x20, 0x48)),
        (2, frames(0x1080, 0x1180)),
        (1, frames(0x3000, 0x3020)),
        (3, frames(1 << 50, 1 << 50)),
        (2, good[1]),
        (0, frames(0x1008, 0x1108)),
    ];
    for (at, run) in damaged {
        let mut runs = good;
        runs[at] = run;
        assert!(!numbering_of(&runs).1.is_sound(), "{runs:?}");
    }
    let (entries, numbering) = numbering_of(&good);
    for place in [0, 0x11f, 0x121, u64::MAX] {
        entries[2].set(good[2], place);
        assert!(!numbering.is_sound(), "{place}");
    }
}

#[test]
fn no_look_up_in_overwritten_sections_leads_out_of_the_map_or_takes_long() {
    let (_, slots, numbering) = tables_of(&runs());
    let values = [0, 1, 0x1000, 1 << 50, u64::MAX];
    for (start, count, place) in values
        .iter()
        .flat_map(|start| values.iter().map(move |count| (start, count)))
        .flat_map(|(start, count)| values.iter().map(move |place| (*start, *count as u32, *place as u32)))
    {
        slots.iter().for_each(|slot| slot.set(Pfn(start), count, place));
        for pfn in [0, 0x20, 0x2000, 1 << 32, (1 << 50) + 5, u64::MAX].map(Pfn) {
            let found = numbering.place(pfn);
            assert!(found == OUTSIDE || (found as u64) < numbering.places(), "{start:#x} {count:#x} {place:#x}");
        }
        for at in [0x100, 0x11f, 0x120, 0x130, 0x1af, u32::MAX] {
            let (pfn, span) = (numbering.pfn(at), numbering.span());
            assert!(pfn < span.end + PageCount(1 << 32) && pfn >= span.start, "{start:#x} {place:#x}: {pfn}");
        }
        assert!(!numbering.is_sound());
    }
}

#[test]
fn no_look_up_in_an_overwritten_table_leads_out_of_the_map() {
    let (entries, numbering) = numbering_of(&runs());
    let pages: Vec<Page> = (0..numbering.places()).map(|_| Page::default()).collect();
    // SAFETY: a page for each place, which outlive the map.
    let map = unsafe { MemMap::new(NonNull::from(&pages[0]), numbering, MapContent::Zero, Geometry::X86_64) };
    let values = [0, 1, 0x1a8, 0x1000, 0x1100, 1 << 32, 1 << 50, u64::MAX - 1, u64::MAX];
    let pfns = [0, 0x20, 0x1fff, 0x2000, 1 << 32, (1 << 50) + 5, u64::MAX].map(Pfn);
    for entry in &entries[1..] {
        let (run, place) = entry.get();
        for (start, end, at) in values
            .iter()
            .flat_map(|start| values.iter().map(move |end| (start, end)))
            .flat_map(|(start, end)| values.iter().map(move |at| (*start, *end, *at)))
        {
            entry.set(frames(start, end), at);
            for place in pfns.map(|pfn| numbering.place(pfn)) {
                assert!(place == OUTSIDE || (place as u64) < numbering.places(), "{start:#x}..{end:#x}: {place:#x}");
            }
            for range in runs() {
                let (first, count) = map.structures(range);
                let place = (first.addr().get() - pages.as_ptr().addr()) / size_of::<Page>();
                assert!(place as u64 + count <= numbering.places(), "{start:#x}..{end:#x}: {place:#x}, {count:#x}");
            }
            let parts = numbering.places_of(frames(0, u64::MAX));
            assert!(parts.into_iter().all(|part| part.end <= numbering.places()), "{start:#x}..{end:#x}, {at:#x}");
            for at in [0x100, 0x11f, 0x120, 0x130, 0x1af, u32::MAX] {
                let pfn = numbering.pfn(at);
                let span = numbering.span();
                assert!(pfn < span.end + PageCount(1 << 32) && pfn >= span.start, "{start:#x}..{end:#x}: {pfn}");
            }
        }
        entry.set(run, place);
    }
}
