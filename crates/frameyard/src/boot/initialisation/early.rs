//! The part of the memory map that is initialised when a yard is created.

use crate::boot::initialisation::{Grain, InitResult, Initialisation};
use crate::boot::{InitError, InitMode, MapInit};
use crate::platform::Platform;
use crate::units::{NodeId, PageCount, Pfn, PfnRange, ZoneId};

impl<P: Platform> Initialisation<'_, P> {
    /// Initialises the part of the map that the mode requires, other than contiguous memory areas.
    pub(crate) fn at_creation(&self, init: &MapInit) -> Result<(), InitError> {
        match init.mode {
            InitMode::Eager => self.pass(init.jobs, Grain::Chunk),
            InitMode::Deferred => self.early().not_backed.map_or(Ok(()), |range| Err(InitError::MapNotBacked(range))),
            InitMode::Lazy => Ok(()),
        }
    }

    /// Initialises the memory that early boot needs: all zones below the highest of each node, and the first sections of
    /// the highest (the kernel's `defer_init`).
    fn early(&self) -> InitResult {
        let mut result = InitResult::default();
        for node in 0..self.tables.nodes() {
            let Some(highest) = self.highest_zone(NodeId(node)) else { continue };
            let mut wanted = self.zone_tables.geometry.section_pages();
            for (range, _) in self.tables.ranges().filter(|(_, zone)| zone.node() == NodeId(node) && *zone != highest) {
                result.add(self.initialise_sections(range));
            }
            for (range, _) in self.tables.ranges().filter(|(_, zone)| *zone == highest) {
                let needed = self.first_sections(range, wanted);
                result.add(self.initialise_sections(needed));
                if needed.end < range.end {
                    break;
                }
                wanted = PageCount(wanted.0.saturating_sub(needed.count().0));
            }
        }
        result
    }

    /// The highest zone of a node.
    fn highest_zone(&self, node: NodeId) -> Option<ZoneId> {
        self.tables.ranges().map(|(_, zone)| zone).filter(|zone| zone.node() == node).max()
    }

    /// The part of a range that is not deferred. It ends at the first section boundary at or after `wanted` frames.
    fn first_sections(&self, range: PfnRange, wanted: PageCount) -> PfnRange {
        let enough = range.start + wanted;
        let boundary =
            enough.0.checked_next_multiple_of(self.zone_tables.geometry.section_pages().0).map_or(range.end, Pfn);
        PfnRange { start: range.start, end: boundary.min(range.end) }
    }
}
