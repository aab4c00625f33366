//! Compaction of a yard's zones: on request, for an allocation, and in the background.

use super::{Yard, YardCompaction, YardZone};
use crate::compaction::{
    CompactCaller, CompactEffort, CompactOutcome, CompactRequest, CompactResult, Compaction, SkipHints, fragmentation,
    unusable,
};
use crate::gfp::Gfp;
use crate::owners::Owners;
use crate::platform::Platform;
use crate::units::{MigrateType, NodeId, Order, PageCount, ZoneId, ZoneKind};
use crate::zone::transfer::{self, Collect};
use crate::zone::{CompactEvent, MAX_DEFER_SHIFT, Zone};

/// The pageblocks that one step of the background compactor scans, by both scanners together.
const STEP_BLOCKS: u64 = 64;

/// What the zone remembers and counts about compaction; empty where there is no such zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactStatistics {
    /// Allocations that compacted for themselves, counted at the zone that they preferred (`compact_stall`).
    pub stalls: u64,
    /// Those of them that got a block then (`compact_success`).
    pub successes: u64,
    /// Those of them that did not (`compact_fail`).
    pub failures: u64,
    /// Pages scanned by migrate scanners (`compact_migrate_scanned`).
    pub migrate_scanned: u64,
    /// Pages scanned by free scanners (`compact_free_scanned`).
    pub free_scanned: u64,
    /// Frames isolated by owners, and free frames taken for them (`compact_isolated`).
    pub isolated: u64,
    /// Frames whose contents were moved (`pgmigrate_success`).
    pub migrated: u64,
    /// Frames isolated and not moved (`pgmigrate_fail`).
    pub migrate_failed: u64,
    /// Times a pinned frame was met.
    pub pinned: u64,
    /// Times an unmovable frame was met.
    pub unmovable: u64,
    /// Times the background compactor found something to do (`compact_daemon_wake`).
    pub daemon_wakes: u64,
    /// Pages scanned by its migrate scanner (`compact_daemon_migrate_scanned`).
    pub daemon_migrate_scanned: u64,
    /// Pages scanned by its free scanner (`compact_daemon_free_scanned`).
    pub daemon_free_scanned: u64,
    /// Attempts since the last failure.
    pub considered: u32,
    /// Of `2^defer_shift` attempts one is made.
    pub defer_shift: u32,
    /// The lowest order that failed and was not made since; `None` while none failed. Lower orders are not deferred.
    pub order_failed: Option<Order>,
    /// Pageblocks that the scanners pass by.
    pub skipped_pageblocks: u64,
    /// Whether scanners go on where earlier ones stopped, rather than at the zone's ends.
    pub positions_cached: bool,
}

/// How often requests took blocks of another type, by the type asked for and the type taken from
/// (the kernel's event `mm_page_alloc_extfrag`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExtfragEvents {
    fallbacks: [[u64; MigrateType::PER_CPU]; MigrateType::PER_CPU],
    conversions: [[u64; MigrateType::PER_CPU]; MigrateType::PER_CPU],
}

impl ExtfragEvents {
    /// Requests of type `asked` that were served from blocks of type `taken_from`; 0 for types that never fall back.
    #[must_use]
    pub fn fallbacks(&self, asked: MigrateType, taken_from: MigrateType) -> u64 {
        Self::cell(&self.fallbacks, asked, taken_from)
    }

    /// Pageblocks of type `taken_from` that became `asked` for it.
    #[must_use]
    pub fn conversions(&self, asked: MigrateType, taken_from: MigrateType) -> u64 {
        Self::cell(&self.conversions, asked, taken_from)
    }

    fn cell(
        matrix: &[[u64; MigrateType::PER_CPU]; MigrateType::PER_CPU],
        asked: MigrateType,
        taken_from: MigrateType,
    ) -> u64 {
        matrix.get(asked.index()).and_then(|row| row.get(taken_from.index())).copied().unwrap_or(0)
    }
}

/// The outcome of compaction for an allocation.
pub(super) struct DirectCompaction {
    pub(super) result: CompactResult,
    /// The zone that had a block, to be told whether the request got it.
    pub(super) zone: Option<ZoneId>,
}

impl<P: Platform> Yard<P> {
    /// A step for a request that found no block of that order (`kcompactd_do_work`).
    fn compact_for_waiter(
        &self,
        zone: ZoneId,
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
        let outcome = self.compaction().zone(zone, request, owners);
        if !matches!(outcome.result, CompactResult::Unfinished | CompactResult::Stalled) {
            self.tables.zones[zone.index()].compaction.forget_wanted();
        }
        if matches!(outcome.result, CompactResult::Complete | CompactResult::PartialSkipped) {
            // Buddies of what is free may be on the lists of any CPU.
            self.zone(zone).drain();
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
        for zone in self.zones_of(node) {
            let state = &self.tables.zones[zone.index()].compaction;
            let compaction = self.compaction_of(zone, request, owners);
            if !compaction.is_scattered() || state.is_resting() {
                continue;
            }
            let before = compaction.score();
            let outcome = self.compaction().zone(zone, request, owners);
            let at_end = matches!(outcome.result, CompactResult::Complete | CompactResult::PartialSkipped);
            if (at_end && self.compaction_of(zone, request, owners).score() >= before)
                || matches!(outcome.result, CompactResult::Contended | CompactResult::Skipped | CompactResult::Stalled)
            {
                state.rest(1 << MAX_DEFER_SHIFT);
            }
            return Some(outcome);
        }
        None
    }

    fn step(&self) -> PageCount {
        PageCount(STEP_BLOCKS << self.geometry.pageblock_order().0)
    }

    /// Compacts the zones that could serve an allocation, until one has a block (`try_to_compact_pages`).
    pub(super) fn compact_for_allocation(
        &self,
        zones: impl Iterator<Item = ZoneId>,
        order: Order,
        gfp: Gfp,
        effort: CompactEffort,
        owners: &Owners<'_>,
    ) -> DirectCompaction {
        let mut best = CompactResult::Skipped;
        for zone in zones {
            let outcome = self.compaction().zone(zone, CompactRequest::for_allocation(order, gfp, effort), owners);
            best = best.max(outcome.result);
            if outcome.result == CompactResult::Success {
                return DirectCompaction { result: best, zone: Some(zone) };
            }
        }
        DirectCompaction { result: best, zone: None }
    }

    /// Tells the background compactor that a request found no block (`wakeup_kcompactd`).
    pub(super) fn wake_compaction(&self, zones: impl Iterator<Item = ZoneId>, order: Order, highest: ZoneKind) {
        if order.0 > 0 {
            zones.for_each(|zone| self.tables.zones[zone.index()].compaction.want(order, highest));
        }
    }

    fn compaction_of<'a>(&'a self, zone: ZoneId, request: CompactRequest, owners: &'a Owners<'a>) -> Compaction<'a, P> {
        Compaction::new(self.zone_view(zone), self.tables, self.poisoning, owners, request)
    }

    /// The zones of a node that have memory.
    fn zones_of(&self, node: NodeId) -> impl Iterator<Item = ZoneId> {
        let zones = ZoneKind::ALL.into_iter().map(move |kind| ZoneId::new(node, kind));
        zones.filter(move |zone| node.0 < self.nodes() && self.is_populated(*zone))
    }

    fn populated_zone(&self, zone: ZoneId) -> Option<&Zone> {
        self.is_populated(zone).then(|| &self.tables.zones[zone.index()])
    }
}

impl<'y, P: Platform> YardCompaction<'y, P> {
    /// Compacts a zone: moves blocks in use together, as the request says.
    ///
    /// Skips a zone without memory. A request for an order does nothing if the zone has such a block, has too little
    /// free memory, or failed lately; [`Full`](CompactEffort::Full) effort ignores earlier failures. A request without
    /// an order compacts the whole zone. After the kernel's `compact_zone` and `try_to_compact_pages`.
    ///
    /// Cost: one page structure per scanned block; one acquisition of the zone lock for about 32 blocks taken, and one
    /// for those freed. Owners are called with no lock held.
    pub fn zone(self, zone: ZoneId, request: CompactRequest, owners: &Owners<'_>) -> CompactOutcome {
        let yard = self.yard;
        let nothing = |result| CompactOutcome { result, ..CompactOutcome::default() };
        if !yard.is_populated(zone) {
            return nothing(CompactResult::Skipped);
        }
        let state = &yard.tables.zones[zone.index()].compaction;
        // The depot may hold the missing frames. A collection that stalls leaves at most a few batches behind.
        let _ = transfer::collect(yard.zone_view(zone), Collect::All);
        let Some(order) = request.order else { return yard.compaction_of(zone, request, owners).run() };
        if order > yard.geometry.max_order() {
            return nothing(CompactResult::Skipped);
        }
        if request.effort != CompactEffort::Full
            && request.caller != CompactCaller::Proactive
            && state.is_deferred(order)
        {
            return nothing(CompactResult::Deferred);
        }
        let compaction = yard.compaction_of(zone, request, owners);
        if let Some(result) = compaction.unsuitable() {
            return nothing(result);
        }
        let outcome = compaction.run();
        match outcome.result {
            _ if request.caller == CompactCaller::Proactive => {}
            CompactResult::Success => state.order_can_be_made(order),
            CompactResult::Complete | CompactResult::PartialSkipped if request.effort != CompactEffort::Async => {
                state.defer(order);
            }
            _ => {}
        }
        outcome
    }

    /// Compacts all zones of a node (a write to the kernel's `/proc/sys/vm/compact_memory`); returns the sum of the
    /// outcomes. A node that does not exist has no zones.
    pub fn node(self, node: NodeId, owners: &Owners<'_>) -> CompactOutcome {
        let yard = self.yard;
        yard.zones_of(node)
            .map(|zone| yard.compaction().zone(zone, CompactRequest::WHOLE_ZONE, owners))
            .fold(CompactOutcome::default(), CompactOutcome::and)
    }

    /// One step of a node's background compactor; `None` where there was nothing to do.
    ///
    /// A step first merges stored batches where whole pageblocks are few. Then it makes blocks of the order that a
    /// request missed. Otherwise it compacts the first zone whose free memory is mostly in small blocks. A step scans
    /// about 64 pageblocks, and the next one continues there. After the kernel's `kcompactd`.
    pub fn background(self, node: NodeId, owners: &Owners<'_>) -> Option<CompactOutcome> {
        let yard = self.yard;
        let mut done: Option<CompactOutcome> = None;
        for zone in yard.zones_of(node) {
            let state = &yard.tables.zones[zone.index()].compaction;
            let _ = transfer::collect(yard.zone_view(zone), Collect::InBackground);
            if state.take_flush() {
                yard.compaction_of(zone, CompactRequest::WHOLE_ZONE, owners).forget_hints();
            }
            if let Some((order, highest)) = state.wanted() {
                state.count(CompactEvent::DaemonWake, 1);
                let outcome = yard.compact_for_waiter(zone, order, highest, owners);
                done = Some(done.unwrap_or_default().and(outcome));
            }
        }
        done.or_else(|| yard.compact_scattered(node, owners))
    }

    /// Announces a background reclaimer of a node. From now on the watermarks of its zones rise for a while when
    /// pageblocks come to hold frames of several types
    /// ([`watermark_boost_factor`](crate::watermarks::WatermarkOptions::watermark_boost_factor)), until the reclaimer
    /// calls [`take_boosts_back`](Self::take_boosts_back). A node that does not exist has no zones.
    pub fn announce_reclaimer(self, node: NodeId) {
        self.yard.zones_of(node).for_each(|zone| self.yard.tables.zones[zone.index()].is_reclaimed_from_now_on());
    }

    /// Ends the watermark boosts of a node's zones, and has the background compactor make whole pageblocks of the free
    /// memory in boosted zones. Returns the sum of the boosts.
    ///
    /// For a background reclaimer that has freed this amount, or cannot. After the end of the kernel's `balance_pgdat`.
    /// Takes the lock of each boosted zone.
    pub fn take_boosts_back(self, node: NodeId) -> PageCount {
        let yard = self.yard;
        let mut lowered = PageCount(0);
        for zone in yard.zones_of(node) {
            let boost = yard.tables.zones[zone.index()].boost();
            if boost.0 > 0 {
                yard.zone_view(zone).lock().take_boost_back(boost);
                yard.wake_compaction(core::iter::once(zone), yard.geometry.pageblock_order(), ZoneKind::Movable);
                lowered += boost;
            }
        }
        lowered
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// The fragmentation index of a zone for an order, in thousandths (the kernel's `extfrag_index`): towards 0 a
    /// request fails for lack of memory, towards 1000 because free memory is in small blocks; −1000 where it does not
    /// fail. `None` where there is no such zone or order. Reads the counts of all free lists without a lock.
    pub fn fragmentation_index(self, order: Order) -> Option<i64> {
        let Self { yard, id: zone } = self;
        let max_order = yard.geometry.max_order();
        let zone = yard.populated_zone(zone).filter(|_| order <= max_order)?;
        Some(fragmentation(zone.free_shape_racy(order, max_order), order))
    }

    /// The part of a zone's free memory in blocks too small for an order, in thousandths (the kernel's
    /// `unusable_index`); 1000 where nothing is free. `None` where there is no such zone or order.
    pub fn unusable_index(self, order: Order) -> Option<u64> {
        let Self { yard, id: zone } = self;
        let max_order = yard.geometry.max_order();
        let zone = yard.populated_zone(zone).filter(|_| order <= max_order)?;
        Some(unusable(zone.free_shape_racy(order, max_order), order))
    }

    /// How often requests in a zone took blocks of another type, by type; empty where there is no such zone.
    pub fn extfrag_events(self) -> ExtfragEvents {
        let Self { yard, id: zone } = self;
        let Some(zone) = yard.populated_zone(zone) else { return ExtfragEvents::default() };
        let counters = &zone.events().extfrag;
        let read = |matrix: &[[crate::sync::AtomicU64; MigrateType::PER_CPU]; MigrateType::PER_CPU]| {
            core::array::from_fn(|asked| {
                core::array::from_fn(|from| matrix[asked][from].load(crate::sync::Ordering::Relaxed))
            })
        };
        ExtfragEvents { fallbacks: read(&counters.fallbacks), conversions: read(&counters.conversions) }
    }

    /// What is remembered and counted of a zone's compaction; nothing where there is no such zone.
    pub fn compaction(self) -> CompactStatistics {
        let Self { yard, id } = self;
        let Some(zone) = yard.populated_zone(id) else { return CompactStatistics::default() };
        let state = &zone.compaction;
        let (considered, defer_shift) = state.deferral();
        let hints = SkipHints::new(yard.tables.skip_hints, yard.map.range().start, yard.geometry);
        let span = zone.span();
        CompactStatistics {
            stalls: state.counted(CompactEvent::Stall),
            successes: state.counted(CompactEvent::Success),
            failures: state.counted(CompactEvent::Fail),
            migrate_scanned: state.counted(CompactEvent::MigrateScanned),
            free_scanned: state.counted(CompactEvent::FreeScanned),
            isolated: state.counted(CompactEvent::Isolated),
            migrated: state.counted(CompactEvent::Migrated),
            migrate_failed: state.counted(CompactEvent::MigrateFailed),
            pinned: state.counted(CompactEvent::Pinned),
            unmovable: state.counted(CompactEvent::Unmovable),
            daemon_wakes: state.counted(CompactEvent::DaemonWake),
            daemon_migrate_scanned: state.counted(CompactEvent::DaemonMigrateScanned),
            daemon_free_scanned: state.counted(CompactEvent::DaemonFreeScanned),
            considered,
            defer_shift,
            order_failed: state.order_failed(),
            skipped_pageblocks: hints.count(span),
            positions_cached: state.cached_migrate(1) > span.start || state.cached_free() > span.start,
        }
    }
}
