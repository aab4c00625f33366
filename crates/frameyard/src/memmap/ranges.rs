//! Ranges of frames, each with its zone, in a table of the control region: ascending, without overlap.

use crate::sync::{AtomicU64, Ordering, all_atomic};
use crate::units::{Pfn, PfnRange, ZoneId};

/// A range. Written when the yard is created.
#[repr(C)]
#[derive(Default)]
pub(crate) struct RangeEntry {
    start: AtomicU64,
    end: AtomicU64,
    zone: AtomicU64,
}

all_atomic!(RangeEntry { start, end, zone });

impl RangeEntry {
    pub(crate) fn set(&self, range: PfnRange, zone: ZoneId) {
        self.start.store(range.start.0, Ordering::Relaxed);
        self.end.store(range.end.0, Ordering::Relaxed);
        self.zone.store(u64::from(zone.0), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> (PfnRange, ZoneId) {
        let pfn = |word: &AtomicU64| Pfn(word.load(Ordering::Relaxed));
        let zone = ZoneId(self.zone.load(Ordering::Relaxed) as u16);
        (PfnRange { start: pfn(&self.start), end: pfn(&self.end) }, zone)
    }
}

/// The entries from the first that ends behind a frame. Binary search.
fn behind(table: &'static [RangeEntry], pfn: Pfn) -> impl Iterator<Item = (PfnRange, ZoneId)> + use<> {
    let first = table.partition_point(|entry| entry.end.load(Ordering::Relaxed) <= pfn.0);
    table[first..].iter().map(RangeEntry::get)
}

/// The range that holds a frame.
pub(crate) fn range_of(table: &'static [RangeEntry], pfn: Pfn) -> Option<(PfnRange, ZoneId)> {
    behind(table, pfn).next().filter(|(range, _)| range.contains(pfn))
}

/// The parts of a table's ranges that lie in a range of frames.
pub(crate) fn ranges_in(
    table: &'static [RangeEntry],
    frames: PfnRange,
) -> impl Iterator<Item = (PfnRange, ZoneId)> + use<> {
    behind(table, frames.start)
        .take_while(move |(range, _)| range.start < frames.end)
        .map(move |(range, zone)| (range.intersection(frames), zone))
}
