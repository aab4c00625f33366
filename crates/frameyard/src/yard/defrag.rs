//! Defrag mode: keeping a stock of whole free pageblocks, and the background step that refills it.

use crate::boot::HeaderWord;
use crate::compaction::{CompactCaller, CompactEffort, CompactOutcome, CompactRequest, CompactResult};
use crate::owners::Owners;
use crate::placement::defrag::stock_racy;
use crate::placement::{DefragMode, Stock};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::NodeId;
use crate::yard::{Yard, YardZone};
use crate::zone::{EMPTINESS_LEVELS, ZoneView};

/// The steps that a zone rests after it was searched in vain.
const REST: u32 = 4;

impl<P: Platform> Yard<P> {
    /// Whether the yard keeps a stock of whole free pageblocks. Cost: one load.
    pub fn defrag_mode(&self) -> DefragMode {
        self.tables.defrag_mode()
    }

    /// Changes whether the yard keeps a stock of whole free pageblocks, for all its views (the kernel's
    /// `vm.defrag_mode`). The change takes effect at once.
    ///
    /// Calls in progress may finish in the old mode. Cost: one store.
    pub fn set_defrag_mode(&self, mode: DefragMode) {
        self.tables.word(HeaderWord::DefragMode).store(mode as u64, Ordering::Relaxed);
    }

    /// A step that refills the stock of a node's zones; `None` where there is nothing to do, or too few free frames to move blocks to.
    pub(crate) fn compact_for_stock(&self, node: NodeId, owners: &Owners<'_>) -> Option<CompactOutcome> {
        let request = CompactRequest {
            caller: CompactCaller::Stock,
            limit: Some(self.step()),
            ..CompactRequest::for_order(self.geometry.pageblock_order(), CompactEffort::Sync)
        };
        for view in self.zones_of(node) {
            let state = &view.zone.compaction;
            let stock = stock_racy(view);
            state.set_refills(stock.free < if state.refills() { stock.high } else { stock.low });
            if !state.refills() || state.is_resting() {
                continue;
            }
            let outcome = self.compaction().zone(view.id, request, owners);
            self.adjust_emptiness(view, stock, outcome.result);
            if !matches!(outcome.result, CompactResult::Skipped | CompactResult::Stalled) {
                return Some(outcome);
            }
        }
        None
    }

    /// After a step: fuller pageblocks are emptied after a search without gain, emptier ones alone when the stock is full.
    fn adjust_emptiness(&self, view: ZoneView<'_, P>, before: Stock, result: CompactResult) {
        let state = &view.zone.compaction;
        let level = state.emptiness();
        match result {
            CompactResult::Success => state.set_emptiness(level.saturating_sub(1)),
            CompactResult::Complete | CompactResult::PartialSkipped if stock_racy(view).free <= before.free => {
                if level + 1 >= EMPTINESS_LEVELS {
                    state.rest(REST);
                }
                state.set_emptiness(level + 1);
            }
            _ => {}
        }
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// The zone's stock of whole free pageblocks; `None` if the yard keeps none or there is no such zone.
    ///
    /// Cost: without a lock, reads the counts of the free lists of large orders and, if free frames are bits, all bits.
    pub fn stock(self) -> Option<Stock> {
        let view = self.populated().filter(|_| self.yard.defrag_mode() == DefragMode::On)?;
        Some(stock_racy(view))
    }
}
