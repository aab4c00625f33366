//! Compaction of zones: on request, for an allocation, and in the background.

use crate::compaction::{
    CompactCaller, CompactEffort, CompactOutcome, CompactRequest, CompactResult, Compaction, SkipHints, fragmentation,
    unusable,
};
use crate::gfp::Gfp;
use crate::owners::Owners;
use crate::placement::DefragMode;
use crate::platform::Platform;
use crate::store;
use crate::store::buddy::FreeShape;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{MigrateType, NodeId, Order, PageCount, ZoneId, ZoneKind};
use crate::yard::{Yard, YardCompaction, YardZone};
use crate::zone::{CompactEvent, MAX_DEFER_SHIFT, ZoneView};

/// The pageblocks that one step of the background compactor scans, by both scanners together.
const STEP_BLOCKS: u64 = 64;

/// What a zone remembers and counts about compaction; empty if there is no such zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactStatistics {
    events: [u64; CompactEvent::COUNT],
    /// Attempts considered since the last failure, made or deferred.
    pub considered: u32,
    /// One in `2^defer_shift` attempts is made; the others are deferred.
    pub defer_shift: u32,
    /// The lowest order for which attempts may be deferred, because it failed and compaction has not made such a block
    /// since; `None` while no order has failed.
    pub order_failed: Option<Order>,
    /// Pageblocks that the scanners skip.
    pub skipped_pageblocks: u64,
    /// Whether the scanners will continue where earlier ones stopped, rather than start at the zone's ends.
    pub positions_cached: bool,
}

impl CompactStatistics {
    /// The count of an event.
    #[must_use]
    pub fn count(&self, event: CompactEvent) -> u64 {
        self.events[event as usize]
    }
}

impl<P: Platform> Yard<P> {
    /// A step for a request that found no block of that order (`kcompactd_do_work`).
    fn compact_for_waiter(
        &self,
        view: ZoneView<'_, P>,
        order: Order,
        highest_zone: ZoneKind,
        owners: &Owners<'_>,
    ) -> CompactOutcome {
        let request = CompactRequest {
            caller: CompactCaller::Background,
            highest_zone,
            limit: Some(self.step()),
            ..CompactRequest::for_order(order, CompactEffort::Sync)
        };
        let outcome = self.compaction().zone(view.id, request, owners);
        if !matches!(outcome.result, CompactResult::Unfinished | CompactResult::Stalled) {
            view.zone.compaction.forget_wanted();
        }
        if matches!(outcome.result, CompactResult::Complete | CompactResult::PartialSkipped) {
            // Buddies of what is free may be on the lists of any CPU.
            self.zone(view.id).drain();
        }
        outcome
    }

    /// A step in the first zone whose free memory is scattered (`should_proactive_compact_node`).
    fn compact_scattered(&self, node: NodeId, owners: &Owners<'_>) -> Option<CompactOutcome> {
        let order = self.geometry.pageblock_order();
        let request = CompactRequest {
            caller: CompactCaller::Proactive,
            limit: Some(self.step()),
            ..CompactRequest::for_order(order, CompactEffort::Sync)
        };
        for view in self.zones_of(node) {
            let state = &view.zone.compaction;
            let compaction = self.compaction_of(view, request, owners);
            if !compaction.is_scattered() || state.is_resting() {
                continue;
            }
            let before = compaction.score();
            let outcome = self.compaction().zone(view.id, request, owners);
            let at_end = matches!(outcome.result, CompactResult::Complete | CompactResult::PartialSkipped);
            if (at_end && self.compaction_of(view, request, owners).score() >= before)
                || matches!(outcome.result, CompactResult::Contended | CompactResult::Skipped | CompactResult::Stalled)
            {
                state.rest(1 << MAX_DEFER_SHIFT);
            }
            return Some(outcome);
        }
        None
    }

    pub(crate) fn step(&self) -> PageCount {
        PageCount(STEP_BLOCKS << self.geometry.pageblock_order().0)
    }

    /// Compacts the zones that could serve an allocation, until one has a block (`try_to_compact_pages`). Returns the best
    /// result, and the zone that has a block.
    pub(crate) fn compact_for_allocation(
        &self,
        zones: impl Iterator<Item = ZoneId>,
        order: Order,
        gfp: Gfp,
        effort: CompactEffort,
        owners: &Owners<'_>,
    ) -> (CompactResult, Option<ZoneId>) {
        let mut best = CompactResult::Skipped;
        for zone in zones {
            let outcome = self.compaction().zone(zone, CompactRequest::for_allocation(order, gfp, effort), owners);
            best = best.max(outcome.result);
            if outcome.result == CompactResult::Success {
                return (best, Some(zone));
            }
        }
        (best, None)
    }

    /// Tells the background compactor that a request found no block (`wakeup_kcompactd`).
    pub(crate) fn wake_compaction(&self, zones: impl Iterator<Item = ZoneId>, order: Order, highest: ZoneKind) {
        if order.0 > 0 {
            zones.for_each(|zone| self.tables.zones[zone.index()].compaction.want(order, highest));
        }
    }

    fn compaction_of<'a>(
        &'a self,
        view: ZoneView<'a, P>,
        request: CompactRequest,
        owners: &'a Owners<'a>,
    ) -> Compaction<'a, P> {
        Compaction::new(view, self.tables, self.poisoning, owners, request)
    }

    /// The zones of a node that have memory.
    pub(crate) fn zones_of(&self, node: NodeId) -> impl Iterator<Item = ZoneView<'_, P>> {
        self.populated_zones().filter(move |view| view.id.node() == node)
    }
}

impl<'y, P: Platform> YardCompaction<'y, P> {
    /// Compacts a zone as the request says: moves blocks in use together, so that free memory becomes contiguous.
    ///
    /// Skips a zone without memory. A request for an order does nothing if the zone has such a block already, has too
    /// little free memory, or failed recently; [`Full`](CompactEffort::Full) effort ignores earlier failures. A request
    /// without an order compacts the whole zone. Modelled on the kernel's `compact_zone` and `try_to_compact_pages`.
    ///
    /// Cost: one page structure per scanned block, and two acquisitions of the zone lock for about every 32 blocks
    /// moved: one to take the targets and one to free the old places. Owners are called with no lock held.
    pub fn zone(self, zone: ZoneId, request: CompactRequest, owners: &Owners<'_>) -> CompactOutcome {
        let yard = self.yard;
        let nothing = |result| CompactOutcome { result, ..CompactOutcome::default() };
        let Some(view) = yard.zone(zone).populated() else { return nothing(CompactResult::Skipped) };
        let state = &view.zone.compaction;
        store::collect_all(view);
        let compaction = yard.compaction_of(view, request, owners);
        let Some(order) = request.order else { return compaction.run() };
        if order > yard.geometry.max_order() {
            return nothing(CompactResult::Skipped);
        }
        let proactive = matches!(request.caller, CompactCaller::Proactive | CompactCaller::Stock);
        if request.effort != CompactEffort::Full && !proactive && state.is_deferred(order) {
            return nothing(CompactResult::Deferred);
        }
        if let Some(result) = compaction.unsuitable() {
            return nothing(result);
        }
        let outcome = compaction.run();
        match outcome.result {
            _ if proactive => {}
            CompactResult::Success => state.order_can_be_made(order),
            CompactResult::Complete | CompactResult::PartialSkipped if request.effort != CompactEffort::Async => {
                state.defer(order);
            }
            _ => {}
        }
        outcome
    }

    /// Compacts all zones of a node, as a write to the kernel's `/proc/sys/vm/compact_memory` does; returns the sum of
    /// the outcomes. For a node that does not exist this does nothing.
    pub fn node(self, node: NodeId, owners: &Owners<'_>) -> CompactOutcome {
        let zones = self.yard.zones_of(node);
        zones
            .map(|view| self.zone(view.id, CompactRequest::WHOLE_ZONE, owners))
            .fold(CompactOutcome::default(), CompactOutcome::and)
    }

    /// Runs one step of a node's background compactor; returns `None` if there was nothing to do.
    ///
    /// With [`CleanRegions::On`](crate::CleanRegions::On), a step first moves some blocks out of tainted regions that
    /// have little room. Then, if a request has missed a block of some order, the step makes such blocks. Otherwise it
    /// compacts the first zone whose free memory is mostly in small blocks or, with [`DefragMode::On`], that has too
    /// few whole pageblocks. A step scans about 64 pageblocks, and the next step continues from there. Modelled on the
    /// kernel's `kcompactd`.
    pub fn background(self, node: NodeId, owners: &Owners<'_>) -> Option<CompactOutcome> {
        let yard = self.yard;
        let mode = yard.defrag_mode();
        let mut done: Option<CompactOutcome> = None;
        for view in yard.zones_of(node) {
            let state = &view.zone.compaction;
            if state.take_flush() {
                yard.compaction_of(view, CompactRequest::WHOLE_ZONE, owners).forget_hints();
            }
            if let Some((order, highest)) = state.wanted() {
                if mode == DefragMode::On && order >= yard.geometry.pageblock_order() {
                    // The stock is for it.
                    state.forget_wanted();
                    continue;
                }
                state.count(CompactEvent::DaemonWake, 1);
                let outcome = yard.compact_for_waiter(view, order, highest, owners);
                done = Some(done.unwrap_or_default().and(outcome));
            }
        }
        if let Some(outcome) = yard.tend_regions(node, owners) {
            done = Some(done.unwrap_or_default().and(outcome));
        }
        done.or_else(|| match mode {
            DefragMode::Off => yard.compact_scattered(node, owners),
            DefragMode::On => yard.compact_for_stock(node, owners),
        })
    }

    /// Announces that a node has a background reclaimer. From now on, when a pageblock comes to hold frames of several
    /// types, the watermarks of its zone rise
    /// ([`watermark_boost_factor`](crate::watermarks::WatermarkOptions::watermark_boost_factor)), until the reclaimer
    /// calls [`take_boosts_back`](Self::take_boosts_back). For a node that does not exist this does nothing.
    pub fn announce_reclaimer(self, node: NodeId) {
        self.yard.zones_of(node).for_each(|view| view.zone.is_reclaimed_from_now_on());
    }

    /// Ends the watermark boosts of a node's zones; returns the sum of the boosts. The background compactor then makes
    /// whole pageblocks from the free memory of these zones.
    ///
    /// A background reclaimer calls this once it has freed that much memory, or has found that it cannot. Modelled on
    /// the end of the kernel's `balance_pgdat`. Takes the lock of each boosted zone.
    pub fn take_boosts_back(self, node: NodeId) -> PageCount {
        let yard = self.yard;
        let mut lowered = PageCount(0);
        for view in yard.zones_of(node) {
            let boost = view.zone.boost();
            if boost.0 > 0 {
                let Ok(mut locked) = view.lock() else { continue };
                locked.take_boost_back(boost);
                drop(locked);
                yard.wake_compaction(core::iter::once(view.id), yard.geometry.pageblock_order(), ZoneKind::Movable);
                lowered += boost;
            }
        }
        lowered
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// The fragmentation index of a zone for an order, in thousandths (the kernel's `extfrag_index`): towards 0 a
    /// request would fail for lack of memory, towards 1000 because free memory is in small blocks. −1000 means that it
    /// would not fail. `None` if there is no such zone or order. Reads the counts of all free lists without a lock.
    pub fn fragmentation_index(self, order: Order) -> Option<i64> {
        Some(fragmentation(self.free_shape(order)?, order))
    }

    /// How much of the zone's free memory is in blocks too small for an order, in thousandths (the kernel's
    /// `unusable_index`); 1000 if nothing is free. `None` if there is no such zone or order.
    pub fn unusable_index(self, order: Order) -> Option<u64> {
        Some(unusable(self.free_shape(order)?, order))
    }

    fn free_shape(self, order: Order) -> Option<FreeShape> {
        let max_order = self.yard.geometry.max_order();
        let view = self.populated().filter(|_| order <= max_order)?;
        Some(store::free_shape_racy(view, order))
    }

    /// The number of requests of type `asked` that were served from blocks of type `taken_from` (the kernel's event
    /// `mm_page_alloc_extfrag`); 0 for types that never fall back, or if there is no such zone.
    pub fn fallbacks(self, asked: MigrateType, taken_from: MigrateType) -> u64 {
        self.populated().map_or(0, |view| cell(&view.zone.events().extfrag.fallbacks, asked, taken_from))
    }

    /// The number of pageblocks of type `taken_from` that such requests turned into type `asked`.
    pub fn conversions(self, asked: MigrateType, taken_from: MigrateType) -> u64 {
        self.populated().map_or(0, |view| cell(&view.zone.events().extfrag.conversions, asked, taken_from))
    }

    /// What the zone remembers and counts about compaction; empty if there is no such zone.
    pub fn compaction(self) -> CompactStatistics {
        let Some(view) = self.populated() else { return CompactStatistics::default() };
        let (state, span) = (&view.zone.compaction, view.span());
        let (considered, defer_shift) = state.deferral();
        let hints = SkipHints::new(self.yard.tables.skip_hints, view.map.numbering(), view.geometry);
        CompactStatistics {
            events: state.all_counted(),
            considered,
            defer_shift,
            order_failed: state.order_failed(),
            skipped_pageblocks: hints.count(span),
            positions_cached: state.cached_migrate(1) > span.start || state.cached_free() > span.start,
        }
    }
}

fn cell(
    counters: &[[AtomicU64; MigrateType::PER_CPU]; MigrateType::PER_CPU],
    asked: MigrateType,
    taken_from: MigrateType,
) -> u64 {
    let counter = counters.get(asked.index()).and_then(|of_asked| of_asked.get(taken_from.index()));
    counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
}
