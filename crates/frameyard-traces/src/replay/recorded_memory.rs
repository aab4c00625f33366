//! The memory of a recording: its zones, and what is known of the blocks in them.

use std::collections::BTreeMap;

use frameyard::units::ZoneKind;
use frameyard::{NodeId, Order, PageCount, Pfn, PfnRange};
use frameyard_formats::TracedBlock;

use crate::snapshot::KernelZone;

/// The largest block of a kernel's allocator.
pub(super) const MAX_ORDER: Order = Order(10);

/// The memory of a zone in a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ReplayZone {
    pub(super) node: NodeId,
    pub(super) kind: ZoneKind,
    pub(super) memory: PfnRange,
    /// Place of its first frame.
    pub(super) base: u32,
    pub(super) kernel: KernelZone,
}

impl ReplayZone {
    /// The aligned blocks of the largest order around the zone.
    fn aligned(&self) -> PfnRange {
        let PfnRange { start, end } = self.memory;
        PfnRange { start: start.align_down(MAX_ORDER), end: end.align_up(MAX_ORDER).unwrap_or(end) }
    }
}

/// Allocations in an aligned block of the largest order, by type.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Votes {
    pub(super) unmovable: u32,
    pub(super) movable: u32,
    pub(super) reclaimable: u32,
}

/// The memory of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedMemory {
    pub(super) zones: Vec<ReplayZone>,
    /// Blocks that are allocated when the recording begins, and freed in it.
    pub(super) held: Vec<TracedBlock>,
    /// By number of an aligned block of the largest order.
    pub(super) votes: BTreeMap<u64, Votes>,
}

impl RecordedMemory {
    /// Frames of all zones.
    pub(super) fn frames(&self) -> usize {
        self.zones.last().map_or(0, |zone| zone.base as usize + zone.memory.count().0 as usize)
    }

    /// The place of a frame.
    pub(super) fn place(&self, pfn: Pfn) -> Option<u32> {
        let zone = self.zones.iter().find(|zone| zone.memory.contains(pfn))?;
        Some(zone.base + (pfn.0 - zone.memory.start.0) as u32)
    }

    /// Frames that a [copy](Self::moved_to) spans.
    pub(super) fn span(&self) -> PageCount {
        PageCount(self.zones.iter().map(|zone| zone.aligned().count().0).sum())
    }

    /// The same memory from another frame on, a multiple of the largest block. The zones follow each other, and each keeps its alignment.
    /// They are parts of a zone `Normal`.
    pub(super) fn moved_to(&self, first: Pfn) -> Self {
        let mut moved = Self::default();
        let mut to = first;
        for zone in &self.zones {
            let from = zone.aligned();
            let at = |pfn: Pfn| Pfn(pfn.0 - from.start.0 + to.0);
            let memory = PfnRange { start: at(zone.memory.start), end: at(zone.memory.end) };
            let held = self.held.iter().filter(|block| zone.memory.contains(block.pfn));
            moved.held.extend(held.map(|block| TracedBlock { pfn: at(block.pfn), order: block.order }));
            for (unit, votes) in self.votes.range(from.start.0 >> MAX_ORDER.0..from.end.0 >> MAX_ORDER.0) {
                let unit = at(Pfn(unit << MAX_ORDER.0)).0 >> MAX_ORDER.0;
                moved.votes.insert(unit, *votes);
            }
            moved.zones.push(ReplayZone { kind: ZoneKind::Normal, memory, ..zone.clone() });
            to = to + from.count();
        }
        moved
    }
}
