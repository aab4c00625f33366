//! Compaction of a yard's zones: on request, for an allocation, and in the background.

use super::Yard;
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

/// How many pageblocks one step of the background compactor looks at, counting both scanners.
const STEP_BLOCKS: u64 = 64;

/// What is remembered and counted of a zone's compaction, a moment ago. Frames unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactStatistics {
    /// Allocations that compacted for themselves, counted at the zone that they preferred (`compact_stall`).
    pub stalls: u64,
    /// Those of them that got a block then (`compact_success`).
    pub successes: u64,
    /// Those of them that did not (`compact_fail`).
    pub failures: u64,
    /// Pages that migrate scanners looked at (`compact_migrate_scanned`).
    pub migrate_scanned: u64,
    /// Pages that free scanners looked at (`compact_free_scanned`).
    pub free_scanned: u64,
    /// Frames set aside by owners, and free ones taken for them (`compact_isolated`).
    pub isolated: u64,
    /// Frames whose contents were moved (`pgmigrate_success`).
    pub migrated: u64,
    /// Frames that were set aside and not moved (`pgmigrate_fail`).
    pub migrate_failed: u64,
    /// Times a pinned frame was met.
    pub pinned: u64,
    /// Times an unmovable frame was met.
    pub unmovable: u64,
    /// Times the background compactor found something to do (`compact_daemon_wake`).
    pub daemon_wakes: u64,
    /// What its migrate scanner looked at (`compact_daemon_migrate_scanned`).
    pub daemon_migrate_scanned: u64,
    /// What its free scanner looked at (`compact_daemon_free_scanned`).
    pub daemon_free_scanned: u64,
    /// Attempts since the last failure.
    pub considered: u32,
    /// Of `2^defer_shift` attempts one is made.
    pub defer_shift: u32,
    /// The lowest order that failed and was not made since; `None` while none did. Lower ones are not put off.
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

/// What came of compaction for an allocation.
pub(super) struct DirectCompaction {
    pub(super) result: CompactResult,
    /// The zone that had a block, so that it can be told whether it was got.
    pub(super) zone: Option<ZoneId>,
}

impl<P: Platform> Yard<P> {
    /// Moves blocks of a zone together, as the request says.
    ///
    /// A zone that does not exist or has no memory is skipped. Where an order is wanted, the zone is looked at first: if
    /// it has such a block, too little free memory, or failed lately, nothing is done, though with
    /// [`Full`](CompactEffort::Full) effort nothing is deferred. Without an order the whole zone is compacted in any case.
    /// After the kernel's `compact_zone` and `try_to_compact_pages`.
    ///
    /// Cost: a look at the page of every block scanned, the zone lock once for about 32 blocks that are taken and once for
    /// those that are freed. No lock is held while owners are asked.
    pub fn compact_zone(&self, zone: ZoneId, request: CompactRequest, owners: &Owners<'_>) -> CompactOutcome {
        let nothing = |result| CompactOutcome { result, ..CompactOutcome::default() };
        if !self.is_populated(zone) {
            return nothing(CompactResult::Skipped);
        }
        let state = &self.tables.zones[zone.index()].compaction;
        // What is kept in the depot may be all that is lacking. Who does not end in time keeps no more than a few batches.
        let _ = transfer::collect(self.zone_view(zone), Collect::All);
        let Some(order) = request.order else { return self.compaction(zone, request, owners).run() };
        if order > self.geometry.max_order() {
            return nothing(CompactResult::Skipped);
        }
        if request.effort != CompactEffort::Full
            && request.caller != CompactCaller::Proactive
            && state.is_deferred(order)
        {
            return nothing(CompactResult::Deferred);
        }
        let compaction = self.compaction(zone, request, owners);
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

    /// Compacts all zones of a node, whole (a write to the kernel's `/proc/sys/vm/compact_memory`); what came of it, all in
    /// all. A node that does not exist has no zones.
    pub fn compact_node(&self, node: NodeId, owners: &Owners<'_>) -> CompactOutcome {
        self.zones_of(node)
            .map(|zone| self.compact_zone(zone, CompactRequest::WHOLE_ZONE, owners))
            .fold(CompactOutcome::default(), CompactOutcome::and)
    }

    /// One step of a node's background compactor: what it did, `None` where there was nothing to do.
    ///
    /// Where whole pageblocks are few, what is kept between CPUs and a zone is merged first. Then it makes blocks of the order that somebody missed; then, as long as most of a zone's free memory is in small
    /// blocks, it moves blocks together. A step looks at about 64 pageblocks; the next one goes on from there. After the
    /// kernel's `kcompactd`.
    pub fn compact_background(&self, node: NodeId, owners: &Owners<'_>) -> Option<CompactOutcome> {
        let mut done: Option<CompactOutcome> = None;
        for zone in self.zones_of(node) {
            let state = &self.tables.zones[zone.index()].compaction;
            let _ = transfer::collect(self.zone_view(zone), Collect::InBackground);
            if state.take_flush() {
                self.compaction(zone, CompactRequest::WHOLE_ZONE, owners).forget_hints();
            }
            if let Some((order, highest)) = state.wanted() {
                state.count(CompactEvent::DaemonWake, 1);
                let outcome = self.compact_for_waiter(zone, order, highest, owners);
                done = Some(done.unwrap_or_default().and(outcome));
            }
        }
        done.or_else(|| self.compact_scattered(node, owners))
    }

    /// A step for somebody who missed a block of that order (`kcompactd_do_work`).
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
        let outcome = self.compact_zone(zone, request, owners);
        if !matches!(outcome.result, CompactResult::Unfinished | CompactResult::Stalled) {
            self.tables.zones[zone.index()].compaction.forget_wanted();
        }
        if matches!(outcome.result, CompactResult::Complete | CompactResult::PartialSkipped) {
            // Buddies of what is free may be on the lists of any CPU.
            self.drain_zone(zone);
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
            let compaction = self.compaction(zone, request, owners);
            if !compaction.is_scattered() || state.is_resting() {
                continue;
            }
            let before = compaction.score();
            let outcome = self.compact_zone(zone, request, owners);
            let at_end = matches!(outcome.result, CompactResult::Complete | CompactResult::PartialSkipped);
            if (at_end && self.compaction(zone, request, owners).score() >= before)
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
            let outcome = self.compact_zone(zone, CompactRequest::for_allocation(order, gfp, effort), owners);
            best = best.max(outcome.result);
            if outcome.result == CompactResult::Success {
                return DirectCompaction { result: best, zone: Some(zone) };
            }
        }
        DirectCompaction { result: best, zone: None }
    }

    /// Says that a background reclaimer looks after a node: from now on, watermarks of its zones rise for a while when
    /// pageblocks come to hold frames of several types
    /// ([`watermark_boost_factor`](crate::watermarks::WatermarkOptions::watermark_boost_factor)), until it calls
    /// [`take_boosts_back`](Self::take_boosts_back). A node that does not exist has no zones.
    pub fn announce_reclaimer(&self, node: NodeId) {
        self.zones_of(node).for_each(|zone| self.tables.zones[zone.index()].is_reclaimed_from_now_on());
    }

    /// Lowers the watermarks of a node's zones to where they belong, and has the background compactor make whole
    /// pageblocks of what is free in those that were boosted; by how much they were lowered, together.
    ///
    /// For a background reclaimer that has freed as much, or cannot. After the end of the kernel's `balance_pgdat`. Takes
    /// the lock of each boosted zone.
    pub fn take_boosts_back(&self, node: NodeId) -> PageCount {
        let mut lowered = PageCount(0);
        for zone in self.zones_of(node) {
            let boost = self.tables.zones[zone.index()].boost();
            if boost.0 > 0 {
                self.zone_view(zone).lock().take_boost_back(boost);
                self.wake_compaction(core::iter::once(zone), self.geometry.pageblock_order(), ZoneKind::Movable);
                lowered += boost;
            }
        }
        lowered
    }

    /// Tells the background compactor that somebody missed a block (`wakeup_kcompactd`).
    pub(super) fn wake_compaction(&self, zones: impl Iterator<Item = ZoneId>, order: Order, highest: ZoneKind) {
        if order.0 > 0 {
            zones.for_each(|zone| self.tables.zones[zone.index()].compaction.want(order, highest));
        }
    }

    fn compaction<'a>(&'a self, zone: ZoneId, request: CompactRequest, owners: &'a Owners<'a>) -> Compaction<'a, P> {
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

    /// Why a request of that order fails in a zone, in thousandths (the kernel's `extfrag_index`): towards 0 for want of
    /// memory, towards 1000 because what is free is in small blocks; −1000 where it does not fail. `None` where there is no
    /// such zone or order. A racy look at the counts of all free lists.
    pub fn fragmentation_index(&self, zone: ZoneId, order: Order) -> Option<i64> {
        let max_order = self.geometry.max_order();
        let zone = self.populated_zone(zone).filter(|_| order <= max_order)?;
        Some(fragmentation(zone.free_shape_racy(order, max_order), order))
    }

    /// Which part of a zone's free memory is in blocks too small for that order, in thousandths (the kernel's
    /// `unusable_index`); 1000 where nothing is free. `None` where there is no such zone or order.
    pub fn unusable_index(&self, zone: ZoneId, order: Order) -> Option<u64> {
        let max_order = self.geometry.max_order();
        let zone = self.populated_zone(zone).filter(|_| order <= max_order)?;
        Some(unusable(zone.free_shape_racy(order, max_order), order))
    }

    /// How often requests in a zone took blocks of another type, and of which; nothing where there is no such zone.
    pub fn extfrag_events(&self, zone: ZoneId) -> ExtfragEvents {
        let Some(zone) = self.populated_zone(zone) else { return ExtfragEvents::default() };
        let counters = &zone.events().extfrag;
        let read = |matrix: &[[crate::sync::AtomicU64; MigrateType::PER_CPU]; MigrateType::PER_CPU]| {
            core::array::from_fn(|asked| {
                core::array::from_fn(|from| matrix[asked][from].load(crate::sync::Ordering::Relaxed))
            })
        };
        ExtfragEvents { fallbacks: read(&counters.fallbacks), conversions: read(&counters.conversions) }
    }

    /// What is remembered and counted of a zone's compaction; nothing where there is no such zone.
    pub fn compact_statistics(&self, id: ZoneId) -> CompactStatistics {
        let Some(zone) = self.populated_zone(id) else { return CompactStatistics::default() };
        let state = &zone.compaction;
        let (considered, defer_shift) = state.deferral();
        let hints = SkipHints::new(self.tables.skip_hints, self.map.range().start, self.geometry);
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
