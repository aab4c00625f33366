//! What a zone remembers of its compaction: where the scanners were, what failed, what somebody waits for, and counters.
//!
//! All of it are hints and counts. They are read and written without a lock by whoever compacts (relaxed): a hint that is
//! stale or lost costs a scan, or saves one that would have helped; nothing that must hold depends on it.

use super::fallback::{fallbacks, may_convert};
use super::free_area::FreeArea;
use super::{LockedZone, Reserves, WatermarkLevel, Zone};
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{MigrateType, ORDER_SLOTS, Order, PageCount, Pfn, ZoneKind};

/// How far attempts are put off after failures: every `2^6`-th is made (`COMPACT_MAX_DEFER_SHIFT`).
pub(crate) const MAX_DEFER_SHIFT: u32 = 6;

/// The largest order that is nothing special (`PAGE_ALLOC_COSTLY_ORDER`).
pub(crate) const COSTLY_ORDER: Order = Order(3);

/// What is counted of compaction, by zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompactEvent {
    Stall,
    Success,
    Fail,
    MigrateScanned,
    FreeScanned,
    Isolated,
    Migrated,
    MigrateFailed,
    Pinned,
    Unmovable,
    DaemonWake,
    DaemonMigrateScanned,
    DaemonFreeScanned,
}

impl CompactEvent {
    const COUNT: usize = Self::DaemonFreeScanned as usize + 1;
}

/// See the module. Lines of its own, for it is written while others read the zone's limits.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct CompactState {
    /// Where the migrate scanner goes on, for asynchronous runs and for others; outside the zone: at its bottom.
    cached_migrate: [AtomicU64; 2],
    /// Where the free scanner goes on downwards: the end of the pageblock; outside the zone: at its top.
    cached_free: AtomicU64,
    /// Attempts since the last failure.
    considered: AtomicU32,
    /// Of `2^defer_shift` attempts one is made.
    defer_shift: AtomicU32,
    /// The lowest order that failed plus 1; 0: none did.
    order_failed: AtomicU32,
    /// 1 where the scanners of a direct compaction met, so that hints should be forgotten when there is time.
    flush_hints: AtomicU32,
    /// The order that somebody missed plus 1, in bits 0–7, and his highest zone, in bits 8–15; 0: none.
    wanted: AtomicU32,
    /// Steps of the background compactor until it looks at the scattering of free memory again.
    proactive_rest: AtomicU32,
    counters: [AtomicU64; CompactEvent::COUNT],
}

all_atomic!(CompactState {
    cached_migrate,
    cached_free,
    considered,
    defer_shift,
    order_failed,
    flush_hints,
    wanted,
    proactive_rest,
    counters
});

impl CompactState {
    /// Adds to a counter.
    pub(crate) fn count(&self, event: CompactEvent, amount: u64) {
        if amount > 0 {
            self.counters[event as usize].fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// What a counter stands at.
    pub(crate) fn counted(&self, event: CompactEvent) -> u64 {
        self.counters[event as usize].load(Ordering::Relaxed)
    }

    /// Where the migrate scanner of an asynchronous run (0) or another (1) goes on; may be outside the zone.
    pub(crate) fn cached_migrate(&self, scanner: usize) -> Pfn {
        Pfn(self.cached_migrate[scanner].load(Ordering::Relaxed))
    }

    /// Where the free scanner goes on; may be outside the zone.
    pub(crate) fn cached_free(&self) -> Pfn {
        Pfn(self.cached_free.load(Ordering::Relaxed))
    }

    /// All frames below `to` are looked at (`update_cached_migrate`): for all runs, or for asynchronous ones alone (1).
    pub(crate) fn advance_migrate(&self, to: Pfn, scanners: usize) {
        for cached in &self.cached_migrate[..scanners] {
            cached.fetch_max(to.0, Ordering::Relaxed);
        }
    }

    /// The free scanner of some run goes on at `to`.
    pub(crate) fn set_free(&self, to: Pfn) {
        self.cached_free.store(to.0, Ordering::Relaxed);
    }

    /// Both scanners begin at the zone's ends again (`reset_cached_positions`).
    pub(crate) fn reset_positions(&self) {
        self.cached_migrate.iter().for_each(|cached| cached.store(0, Ordering::Relaxed));
        self.cached_free.store(0, Ordering::Relaxed);
    }

    /// Whether an attempt for that order is put off; counts it as considered (`compaction_deferred`).
    pub(crate) fn is_deferred(&self, order: Order) -> bool {
        if self.order_failed().is_none_or(|failed| order < failed) {
            return false;
        }
        let limit = 1 << self.defer_shift.load(Ordering::Relaxed).min(MAX_DEFER_SHIFT);
        let considered = self.considered.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if considered >= limit {
            self.considered.store(limit, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// An attempt for that order failed: the next ones are put off for longer (`defer_compaction`).
    pub(crate) fn defer(&self, order: Order) {
        self.considered.store(0, Ordering::Relaxed);
        let shift = self.defer_shift.load(Ordering::Relaxed);
        self.defer_shift.store((shift + 1).min(MAX_DEFER_SHIFT), Ordering::Relaxed);
        if self.order_failed().is_none_or(|failed| order < failed) {
            self.order_failed.store(u32::from(order.0) + 1, Ordering::Relaxed);
        }
    }

    /// Compaction made a block of that order (`compaction_defer_reset`).
    pub(crate) fn order_can_be_made(&self, order: Order) {
        if self.order_failed().is_some_and(|failed| order >= failed) {
            self.order_failed.store(u32::from(order.0) + 2, Ordering::Relaxed);
        }
    }

    /// The lowest order that failed; `None`: none did.
    pub(crate) fn order_failed(&self) -> Option<Order> {
        let word = self.order_failed.load(Ordering::Relaxed).min(ORDER_SLOTS as u32 + 1);
        word.checked_sub(1).map(|order| Order(order as u8))
    }

    /// As [`order_can_be_made`](Self::order_can_be_made), and an allocation got it: nothing is put off any more.
    pub(crate) fn order_was_allocated(&self, order: Order) {
        self.considered.store(0, Ordering::Relaxed);
        self.defer_shift.store(0, Ordering::Relaxed);
        self.flush_hints.store(0, Ordering::Relaxed);
        self.order_can_be_made(order);
    }

    /// Whether attempts were put off as long as can be, so that this one should begin anew (`compaction_restarting`).
    pub(crate) fn is_restarting(&self, order: Order) -> bool {
        let shift = self.defer_shift.load(Ordering::Relaxed);
        self.order_failed().is_some_and(|failed| order >= failed)
            && shift >= MAX_DEFER_SHIFT
            && self.considered.load(Ordering::Relaxed) >= 1 << shift.min(MAX_DEFER_SHIFT)
    }

    /// Attempts considered since the last failure, and the shift.
    pub(crate) fn deferral(&self) -> (u32, u32) {
        (self.considered.load(Ordering::Relaxed), self.defer_shift.load(Ordering::Relaxed))
    }

    /// Says that hints should be forgotten when there is time.
    pub(crate) fn want_flush(&self) {
        self.flush_hints.store(1, Ordering::Relaxed);
    }

    /// Whether hints should be forgotten; whoever is told forgets them.
    pub(crate) fn take_flush(&self) -> bool {
        let wanted = self.flush_hints.load(Ordering::Relaxed) != 0;
        if wanted {
            self.flush_hints.store(0, Ordering::Relaxed);
        }
        wanted
    }

    /// Says that somebody missed a block of that order (`wakeup_kcompactd`).
    pub(crate) fn want(&self, order: Order, highest: ZoneKind) {
        let word = (u32::from(order.0) + 1) | ((highest as u32) << 8);
        if self.wanted.load(Ordering::Relaxed) != word {
            self.wanted.fetch_max(word, Ordering::Relaxed);
        }
    }

    /// What somebody missed, and the highest zone that would serve him.
    pub(crate) fn wanted(&self) -> Option<(Order, ZoneKind)> {
        let word = self.wanted.load(Ordering::Relaxed);
        let order = (word as u8).checked_sub(1)?;
        Some((Order(order), *ZoneKind::ALL.get((word >> 8) as usize)?))
    }

    /// Nobody misses anything any more.
    pub(crate) fn forget_wanted(&self) {
        self.wanted.store(0, Ordering::Relaxed);
    }

    /// Leaves the scattering of free memory alone for so many steps.
    pub(crate) fn rest(&self, steps: u32) {
        self.proactive_rest.store(steps, Ordering::Relaxed);
    }

    /// Whether the scattering of free memory is left alone, for one step less from now on.
    pub(crate) fn is_resting(&self) -> bool {
        let rest = self.proactive_rest.load(Ordering::Relaxed);
        self.proactive_rest.store(rest.saturating_sub(1), Ordering::Relaxed);
        rest > 0
    }
}

/// How the free memory of a zone is cut (the kernel's `struct contig_page_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FreeShape {
    /// Free frames.
    pub(crate) pages: u64,
    /// Free blocks.
    pub(crate) blocks: u64,
    /// Blocks of the order asked for that they would make.
    pub(crate) suitable: u64,
}

impl Zone {
    /// How free memory is cut, as seen by who wants a block of `order` (`fill_contig_page_info`). What waits to be
    /// initialised is left out: it is whole.
    pub(crate) fn free_shape_racy(&self, order: Order, max_order: Order) -> FreeShape {
        let mut shape = FreeShape::default();
        for at in 0..=max_order.index() {
            let blocks = self.ordinary_blocks_racy(at);
            shape.blocks += blocks;
            shape.pages += blocks << at;
            if at >= order.index() {
                shape.suitable += blocks << (at - order.index());
            }
        }
        shape
    }

    /// Frames on the free lists in blocks of at least that order, without those of isolated pageblocks; a moment ago.
    pub(crate) fn pages_in_blocks_from_racy(&self, order: Order, max_order: Order) -> PageCount {
        PageCount((order.index()..=max_order.index()).map(|at| self.ordinary_blocks_racy(at) << at).sum())
    }

    /// The free lists of some orders, for who says that he looks at them.
    pub(crate) fn areas_between(&self, first: Order, last: Order) -> &[FreeArea] {
        self.areas.get(first.index()..=last.index()).unwrap_or_default()
    }

    /// Free blocks of an order, without those of isolated pageblocks.
    fn ordinary_blocks_racy(&self, order: usize) -> u64 {
        let ordinary = MigrateType::ALL.into_iter().filter(|migrate_type| *migrate_type != MigrateType::Isolate);
        ordinary.map(|migrate_type| self.free_blocks_racy(order, migrate_type)).sum()
    }

    /// Whether there is enough free memory to move blocks to, while one of `order` is made (`compaction_suitable`):
    /// twice its size above the watermark.
    pub(crate) fn has_room_to_compact_racy(&self, order: Order, highest: ZoneKind) -> bool {
        let mark = if order > COSTLY_ORDER { WatermarkLevel::Low } else { WatermarkLevel::Min };
        let needed = self.watermark(mark).0 + 2 * order.pages().0 + self.protection(highest).0;
        self.free_pages_racy().0 > needed
    }

    /// Whether a request of that order and type would find a block (`zone_watermark_ok` with the minimum).
    pub(crate) fn would_serve_racy(&self, order: Order, highest: ZoneKind, migrate_type: MigrateType) -> bool {
        let reserves = Reserves { cma: migrate_type == MigrateType::Movable, ..Reserves::default() };
        self.watermark_ok_with_racy(order, WatermarkLevel::Min, highest, reserves, PageCount(0))
    }

    /// Whether there is a free block for a request of that order and type, without spoiling pageblocks of other types
    /// (the second half of `__compact_finished`).
    pub(crate) fn has_suitable_block_racy(
        &self,
        order: Order,
        migrate_type: MigrateType,
        pageblock_order: Order,
    ) -> bool {
        let orders = |migrate_type: MigrateType| self.nonempty[migrate_type.index()].load(Ordering::Relaxed) >> order.0;
        if orders(migrate_type) != 0 || (migrate_type == MigrateType::Movable && orders(MigrateType::Cma) != 0) {
            return true;
        }
        let convertible = |other: MigrateType| {
            orders(other)
                .checked_ilog2()
                .is_some_and(|highest| may_convert(Order(order.0 + highest as u8), migrate_type, pageblock_order))
        };
        fallbacks(migrate_type).into_iter().any(convertible)
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Takes a free block off the lists to move another block to it; its order, where it is one below `limit` and of the
    /// types allowed. Leaves the minimum watermark alone (`__isolate_free_page`).
    pub(crate) fn isolate_free_block(
        &mut self,
        pfn: Pfn,
        limit: Order,
        allowed: fn(MigrateType) -> bool,
    ) -> Option<Tag> {
        let tag = self.settled_tag(pfn);
        if !tag.is(FrameState::BuddyFree)
            || tag.zone() != self.id
            || tag.order() >= limit
            || !allowed(tag.migrate_type())
        {
            return None;
        }
        let PageCount(pages) = tag.order().pages();
        if self.free_pages().0 <= self.zone.watermark(WatermarkLevel::Min).0 + pages {
            return None;
        }
        self.remove_block(pfn, tag);
        let isolated = tag.without_cluster().without_merge_skipped().with_state(FrameState::Isolated);
        self.page(pfn).set_tag(isolated);
        self.count_moved(PageCount(pages));
        Some(isolated)
    }

    /// Puts a block that its only user gives up on the free lists.
    pub(crate) fn free_compacted(&mut self, pfn: Pfn, order: Order) {
        self.free_by_type(pfn, order);
        self.count_moved(order.pages());
    }
}
