//! One run of compaction over a zone: where it begins, when it ends, and what it remembers for later runs.

use crate::boot::{Poisoning, Tables};
use crate::compaction::Compaction;
use crate::compaction::hints::SkipHints;
use crate::compaction::index::{EXTFRAG_THRESHOLD, fragmentation, unusable};
use crate::compaction::request::{CompactCaller, CompactEffort, CompactOutcome, CompactRequest, CompactResult};
use crate::compaction::sources::{Sources, Supply, is_movable_block};
use crate::compaction::targets::Targets;
use crate::lists::lock_each;
use crate::owners::Owners;
use crate::page::{FrameState, Tag};
use crate::placement::defrag::stock_racy;
use crate::platform::Platform;
use crate::store::{self, Quiescence};
use crate::units::{CpuId, MigrateType, Order, PageCount, Pfn};
use crate::zone::{COSTLY_ORDER, CompactEvent, Patience, Zone, ZoneView};

/// The part of free memory in small blocks, in hundredths, at which the proactive compactor stops. It starts ten above
/// (`compaction_proactiveness` of 20).
const PROACTIVE_LOW: u64 = 80;
const PROACTIVE_HIGH: u64 = PROACTIVE_LOW + 10;

/// Whether clean regions have one in this number of a region's frames free.
const ROOM: u64 = 16;

fn has_room_in_clean_regions<P: Platform>(view: ZoneView<'_, P>) -> bool {
    let clean = view.own_regions().filter(|(_, region)| view.zone.keeps_regions() && region.tainting() == 0);
    clean.map(|region| view.free_in_region_racy(region)).sum::<PageCount>().0
        >= view.geometry.largest_order().pages().0 / ROOM
}

impl<'a, P: Platform> Compaction<'a, P> {
    /// A run over a zone that has memory.
    pub(crate) fn new(
        view: ZoneView<'a, P>,
        tables: Tables,
        poisoning: Poisoning,
        owners: &'a Owners<'a>,
        request: CompactRequest,
    ) -> Self {
        let span = view.span();
        Self {
            view,
            tables,
            poisoning,
            defrag: tables.defrag_mode(),
            spares_tainted: request.effort != CompactEffort::Full && has_room_in_clean_regions(view),
            owners,
            request,
            span,
            migrate_at: span.start,
            taken_in_block: 0,
            free_end: Pfn(0),
            free_next: Pfn(0),
            whole_zone: true,
            moved_in: None,
            sources: Sources::new(),
            targets: Targets::new(),
            outcome: CompactOutcome::default(),
        }
    }

    pub(super) fn zone(&self) -> &'a Zone {
        self.view.zone
    }

    pub(super) fn hints(&self) -> SkipHints<'static> {
        SkipHints::new(self.tables.skip_hints, self.view.map.numbering(), self.view.geometry)
    }

    /// Whether the run uses hints of earlier runs and leaves hints to later ones.
    pub(super) fn uses_hints(&self) -> bool {
        self.request.order.is_some() && self.request.effort != CompactEffort::Full
    }

    /// The pageblocks that blocks may move to: movable ones, or with full effort any ordinary one (`ignore_block_suitable`).
    pub(super) fn target_types(&self) -> fn(MigrateType) -> bool {
        match (self.request.order, self.request.effort) {
            (Some(_), CompactEffort::Full) => |of| is_movable_block(of) || of.index() < MigrateType::PER_CPU,
            _ => is_movable_block,
        }
    }

    /// The result if there is nothing to do (`compaction_suit_allocation_order`).
    pub(crate) fn unsuitable(&self) -> Option<CompactResult> {
        let order = self.request.order?;
        let CompactRequest { highest_zone, migrate_type, caller, .. } = self.request;
        if caller == CompactCaller::Proactive {
            return (!self.is_scattered()).then_some(CompactResult::Skipped);
        }
        let zone = self.zone();
        if caller == CompactCaller::Stock {
            let useless = self.has_stock() || !self.has_room(order);
            return useless.then_some(CompactResult::Skipped);
        }
        if zone.would_serve_racy(order, highest_zone, migrate_type) {
            return Some(CompactResult::Success);
        }
        if store::unmerged_pages_racy(zone) >= order.pages() {
            // Deferred merges need no room, and may suffice.
            return None;
        }
        if !self.has_room(order) {
            return Some(CompactResult::Skipped);
        }
        let index = fragmentation(store::free_shape_racy(self.view, order), order);
        let want = order > COSTLY_ORDER && (0..=EXTFRAG_THRESHOLD).contains(&index);
        want.then_some(CompactResult::Skipped)
    }

    /// Whether the zone has free frames enough to move blocks to, those that are bits included.
    fn has_room(&self, order: Order) -> bool {
        self.zone().has_room_to_compact_racy(order, self.request.highest_zone, self.view.bits_pages_racy())
    }

    /// Compacts, whether or not the zone is [suitable](Self::unsuitable).
    ///
    /// Transfer mechanisms are quiesced during the run: frames move between lists and zone one by one, and merge when freed.
    pub(crate) fn run(mut self) -> CompactOutcome {
        let Ok(_quiescence) = Quiescence::begin(self.view, Patience::Sleeps) else {
            return CompactOutcome { result: CompactResult::Stalled, ..self.outcome };
        };
        self.begin();
        self.outcome.result = self.until_finished();
        self.give_back_targets();
        if !self.uses_hints() {
            // The run has changed what the hints say.
            self.forget_hints();
        }
        self.count();
        self.outcome
    }

    /// Places the scanners where those of earlier runs stopped, or at the zone's ends.
    fn begin(&mut self) {
        let state = &self.zone().compaction;
        if self.request.order.is_some_and(|order| state.is_restarting(order)) {
            self.forget_hints();
        }
        let pageblock = self.view.geometry.pageblock_order();
        let top = self.span.end.align_up(pageblock).unwrap_or(self.span.end);
        self.free_end = top;
        if !self.uses_hints() {
            self.drain_all();
            store::collect_all(self.view);
            return;
        }
        let scanner = usize::from(self.request.effort != CompactEffort::Async);
        let cached = state.cached_migrate(scanner);
        if self.span.contains(cached) {
            self.migrate_at = cached;
            self.whole_zone = cached <= self.end_of_block(self.span.start);
        }
        let cached = state.cached_free();
        if cached > self.span.start && cached <= top {
            self.free_end = cached.align_up(pageblock).unwrap_or(top);
        }
    }

    fn until_finished(&mut self) -> CompactResult {
        // Ends, because each iteration moves the migrate scanner up or the free scanner down. No owner waits without a bound.
        loop {
            if let Some(result) = self.finished() {
                return result;
            }
            let began_at = self.migrate_at;
            self.isolate_sources();
            if !self.sources.is_empty() {
                self.moved_in = Some(self.view.blocks.start_of(began_at));
                if self.migrate_sources() == Supply::Exhausted && !self.scanners_met() {
                    return CompactResult::Contended;
                }
            }
            self.drain_behind();
        }
    }

    /// The result if the run has ended (`__compact_finished`).
    fn finished(&self) -> Option<CompactResult> {
        let state = &self.zone().compaction;
        if self.scanners_met() {
            if self.uses_hints() {
                state.reset_positions();
            }
            if self.request.caller == CompactCaller::Direct {
                state.want_flush();
            }
            return Some(if self.whole_zone { CompactResult::Complete } else { CompactResult::PartialSkipped });
        }
        if self.is_over_limit() {
            return Some(CompactResult::Unfinished);
        }
        let order = self.request.order?;
        let pageblock = self.view.geometry.pageblock_order();
        // Finish a pageblock once begun, so that fewer pageblocks hold several types.
        if !self.migrate_at.is_aligned(pageblock) {
            return None;
        }
        let done = match self.request.caller {
            CompactCaller::Proactive => self.score() <= PROACTIVE_LOW,
            CompactCaller::Stock => self.has_stock(),
            _ => self.zone().has_suitable_block_racy(order, self.request.migrate_type, pageblock),
        };
        done.then_some(CompactResult::Success)
    }

    /// Whether the zone has its stock of whole pageblocks.
    fn has_stock(&self) -> bool {
        let stock = stock_racy(self.view);
        stock.free >= stock.high
    }

    /// The part of free memory in blocks too small for a huge page, in hundredths (`fragmentation_score_zone`).
    pub(crate) fn score(&self) -> u64 {
        let order = self.view.geometry.pageblock_order();
        unusable(store::free_shape_racy(self.view, order), order) / 10
    }

    /// Whether the zone is fragmented enough for the proactive compactor, and has enough free memory.
    pub(crate) fn is_scattered(&self) -> bool {
        let order = self.view.geometry.pageblock_order();
        self.score() > PROACTIVE_HIGH && self.has_room(order)
    }

    pub(super) fn scanners_met(&self) -> bool {
        self.migrate_at >= self.span.end || self.free_end <= self.end_of_block(self.migrate_at)
    }

    pub(super) fn is_over_limit(&self) -> bool {
        let scanned = self.outcome.migrate_scanned + self.outcome.free_scanned;
        self.request.limit.is_some_and(|limit| scanned >= limit)
    }

    pub(super) fn end_of_block(&self, pfn: Pfn) -> Pfn {
        self.view.blocks.start_of(pfn) + self.view.blocks.pages()
    }

    /// The distance from a frame to the next one that can be a head, by a tag that may be stale.
    pub(super) fn length_at(&self, pfn: Pfn, tag: Tag) -> PageCount {
        let order = tag.order();
        let sound = order <= self.view.geometry.max_order() && pfn.is_aligned(order);
        match tag.state() {
            FrameState::Interior => PageCount(1),
            _ if sound => order.pages(),
            _ => PageCount(1),
        }
    }

    /// Drains this CPU's lists once the scanner has passed a block of the wanted order, so that its frames merge.
    fn drain_behind(&mut self) {
        let Some((order, moved_in)) = self.request.order.zip(self.moved_in).filter(|(order, _)| order.0 > 0) else {
            return;
        };
        if moved_in < self.migrate_at.align_down(order) {
            let cpu = self.view.platform.current_cpu();
            self.drain(CpuId(cpu.0 % self.tables.cpus()));
            self.moved_in = None;
        }
    }

    fn drain_all(&self) {
        let all = self.tables.pcps_of(self.view.id).map(|(_, pcp)| pcp);
        lock_each(all, self.view.platform, |pcp| !pcp.is_empty_racy(), |mut lists| lists.drain(self.view));
    }

    fn drain(&self, cpu: CpuId) {
        if let Some(pcp) = self.tables.pcp_of(self.view.id, cpu).filter(|pcp| !pcp.is_empty_racy()) {
            let lists = pcp.lock(self.view.platform);
            lists.into_iter().for_each(|mut lists| lists.drain(self.view));
        }
    }

    /// Makes the next run scan the whole zone (`__reset_isolation_suitable`).
    pub(crate) fn forget_hints(&self) {
        self.zone().compaction.reset_positions();
        self.hints().clear(self.span);
    }

    fn count(&self) {
        let CompactOutcome { migrated, discarded, failed, pinned, unmovable, .. } = self.outcome;
        let CompactOutcome { migrate_scanned, free_scanned, isolated, .. } = self.outcome;
        let state = &self.zone().compaction;
        for (event, amount) in [
            (CompactEvent::MigrateScanned, migrate_scanned),
            (CompactEvent::FreeScanned, free_scanned),
            (CompactEvent::Isolated, isolated),
            (CompactEvent::Migrated, migrated),
            (CompactEvent::Discarded, discarded),
            (CompactEvent::MigrateFailed, failed),
            (CompactEvent::Pinned, pinned),
            (CompactEvent::Unmovable, unmovable),
        ] {
            state.count(event, amount.0);
        }
        if self.request.caller.is_in_background() {
            state.count(CompactEvent::DaemonMigrateScanned, migrate_scanned.0);
            state.count(CompactEvent::DaemonFreeScanned, free_scanned.0);
            state.count(CompactEvent::DaemonMigrated, migrated.0);
        }
    }
}
