//! The addresses of each kind of zone, and the memory of each node.

use frameyard::memblock::Region;
use frameyard::units::ZoneKind;
use frameyard::{Geometry, NodeId, Pfn, PfnRange};

use crate::boot::BootedYard;
use crate::machine::AddressRange;

/// The frames of each address-limited kind of zone and of Normal: from the first frame of memory to the limit of the kind or
/// the last frame, holes included (`free_area_init`).
pub(super) fn zone_ranges(booted: &BootedYard) -> Vec<(ZoneKind, PfnRange)> {
    let ranges = node_ranges(booted);
    let (geometry, zones) = (booted.machine.geometry, booted.machine.zones);
    let first = ranges.iter().map(|(_, range)| range.start).min().unwrap_or_default();
    let last = ranges.iter().map(|(_, range)| range.end).max().unwrap_or_default();
    let limit = |address: Option<_>| address.map(|address| geometry.frame_of(address));
    split(first, last, limit(zones.dma), limit(zones.dma32))
}

/// A machine lacks the kinds without a limit.
fn split(first: Pfn, last: Pfn, dma: Option<Pfn>, dma32: Option<Pfn>) -> Vec<(ZoneKind, PfnRange)> {
    let mut start = first;
    let limits = [(ZoneKind::Dma, dma.unwrap_or(first)), (ZoneKind::Dma32, dma32.unwrap_or(first))];
    let kinds = limits.into_iter().chain([(ZoneKind::Normal, last)]).map(|(kind, limit)| {
        let range = PfnRange { start, end: limit.min(last).max(start) };
        start = range.end;
        (kind, range)
    });
    kinds.collect()
}

/// The memory of the nodes in whole frames, lowest first.
pub(super) fn node_ranges(booted: &BootedYard) -> Vec<(NodeId, PfnRange)> {
    let geometry = booted.machine.geometry;
    booted
        .early_memory
        .iter()
        .map(|region| whole_frames(geometry, region))
        .filter(|(_, range)| !range.is_empty())
        .collect()
}

fn whole_frames(geometry: Geometry, region: &Region) -> (NodeId, PfnRange) {
    let range = AddressRange::new(region.base, region.end()).whole_frames(geometry);
    (region.node.id().unwrap_or_default(), range)
}

/// A range as the boot log prints it: all digits, both ends inclusive.
fn addresses(start: u64, end: u64) -> String {
    format!("[mem {start:#018x}-{:#018x}]", end.saturating_sub(1))
}

/// Whole frames as the boot log prints them.
pub(super) fn frames(geometry: Geometry, range: PfnRange) -> String {
    let address = |pfn: Pfn| geometry.address_of(pfn);
    let AddressRange { start, end } = AddressRange::new(address(range.start), address(range.end));
    addresses(start.0, end.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> PfnRange {
        PfnRange { start: Pfn(start), end: Pfn(end) }
    }

    #[test]
    fn kinds_follow_each_other_up_to_their_limits() {
        let ranges = split(Pfn(1), Pfn(0x24_0000), Some(Pfn(0x1000)), Some(Pfn(0x10_0000)));
        let expected = [range(1, 0x1000), range(0x1000, 0x10_0000), range(0x10_0000, 0x24_0000)];
        assert_eq!(ranges.iter().map(|(_, range)| *range).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn kinds_beyond_the_last_frame_and_those_without_a_limit_are_empty() {
        let ranges = split(Pfn(1), Pfn(0x800), Some(Pfn(0x1000)), Some(Pfn(0x10_0000)));
        assert_eq!(ranges[0], (ZoneKind::Dma, range(1, 0x800)));
        assert!(ranges[1].1.is_empty() && ranges[2].1.is_empty());
        let ranges = split(Pfn(0x2000), Pfn(0x3000), None, None);
        assert!(ranges[0].1.is_empty() && ranges[1].1.is_empty());
        assert_eq!(ranges[2], (ZoneKind::Normal, range(0x2000, 0x3000)));
    }
}
