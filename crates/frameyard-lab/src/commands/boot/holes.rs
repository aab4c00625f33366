//! Frames with page structures and without memory.

use frameyard::{Geometry, Pfn, PfnRange, ZoneId};
use serde::Serialize;

/// Page structures without memory, before a range of memory or after the last one.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub(super) struct Hole {
    pub(super) node: u16,
    pub(super) zone: &'static str,
    pub(super) pages: u64,
}

/// The holes as the kernel reports them (`memmap_init`, `init_unavailable_range`). A hole belongs to the zone of the memory
/// after it, the last hole to the zone of the memory before it. A section without memory has no page structures.
///
/// `ranges` are the ascending ranges of memory, split at the limits of zones.
pub(super) fn holes(geometry: Geometry, ranges: &[(PfnRange, ZoneId)]) -> Vec<Hole> {
    let shift = geometry.section_pages_shift();
    // A range of no frames marks the end of the last section.
    let end = ranges.last().map(|(range, zone)| {
        let end = Pfn(range.end.0.next_multiple_of(1 << shift));
        (PfnRange { start: end, end }, *zone)
    });
    let mut holes = Vec::new();
    let mut hole = Pfn(0);
    for (range, zone) in ranges.iter().copied().chain(end) {
        let pages = with_page_structures(shift, PfnRange { start: hole, end: range.start }, ranges);
        if pages > 0 {
            holes.push(Hole { node: zone.node().0, zone: zone.kind().name(), pages });
        }
        hole = hole.max(range.end);
    }
    holes
}

/// Frames of a hole in sections that have memory. Only the sections at its ends can have any.
fn with_page_structures(shift: u8, hole: PfnRange, ranges: &[(PfnRange, ZoneId)]) -> u64 {
    if hole.is_empty() {
        return 0;
    }
    let has_memory = |section: u64| {
        let section = PfnRange { start: Pfn(section << shift), end: Pfn((section + 1) << shift) };
        ranges.iter().any(|(range, _)| !range.intersection(section).is_empty())
    };
    let (first, last) = (hole.start.0 >> shift, (hole.end.0 - 1) >> shift);
    if first == last {
        return if has_memory(first) { hole.count().0 } else { 0 };
    }
    let head = if has_memory(first) { ((first + 1) << shift) - hole.start.0 } else { 0 };
    let tail = if has_memory(last) { hole.end.0 - (last << shift) } else { 0 };
    head + tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use frameyard::NodeId;
    use frameyard::units::ZoneKind;

    fn range(start: u64, end: u64, kind: ZoneKind) -> (PfnRange, ZoneId) {
        (PfnRange { start: Pfn(start), end: Pfn(end) }, ZoneId::new(NodeId(0), kind))
    }

    fn found(ranges: &[(PfnRange, ZoneId)]) -> Vec<(&'static str, u64)> {
        holes(Geometry::X86_64, ranges).into_iter().map(|hole| (hole.zone, hole.pages)).collect()
    }

    #[test]
    fn holes_are_those_that_a_kernel_reports_on_a_pc() {
        let ranges = [
            range(0x1, 0x9f, ZoneKind::Dma),
            range(0x100, 0x1000, ZoneKind::Dma),
            range(0x1000, 0xbffe0, ZoneKind::Dma32),
            range(0x10_0000, 0x44_0000, ZoneKind::Normal),
        ];
        assert_eq!(found(&ranges), [("DMA", 1), ("DMA", 97), ("Normal", 32)]);
    }

    #[test]
    fn the_last_section_is_filled_up_and_sections_without_memory_do_not_count() {
        let ranges = [range(0x10_0010, 0x10_8000, ZoneKind::Normal), range(0x20_0000, 0x20_7fff, ZoneKind::Normal)];
        assert_eq!(found(&ranges), [("Normal", 16), ("Normal", 1)]);
        assert_eq!(found(&[]), []);
    }
}
