//! What a zone remembers of its compaction: scanner positions, failures, missing orders, and counters.
//!
//! All of these are hints and counts, which compacting CPUs read and write without a lock (relaxed). A stale or lost
//! hint costs a scan, or skips one that would have helped; correctness never depends on it.

use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{ORDER_SLOTS, Order, Pfn, ZoneKind};

/// The longest deferral after failures: every `2^6`-th attempt is made (`COMPACT_MAX_DEFER_SHIFT`).
pub(crate) const MAX_DEFER_SHIFT: u32 = 6;

/// The levels of [`CompactState::emptiness`].
pub(crate) const EMPTINESS_LEVELS: u32 = 4;

/// The largest ordinary order (`PAGE_ALLOC_COSTLY_ORDER`).
pub(crate) const COSTLY_ORDER: Order = Order(3);

/// Events of compaction, counted by zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CompactEvent {
    /// Allocations that ran compaction themselves, counted at the zone that they preferred (`compact_stall`).
    Stall,
    /// Those of them that then got a block (`compact_success`).
    Success,
    /// Those of them that did not (`compact_fail`).
    Fail,
    /// Pages scanned by migrate scanners (`compact_migrate_scanned`).
    MigrateScanned,
    /// Pages scanned by free scanners (`compact_free_scanned`).
    FreeScanned,
    /// Frames isolated by owners, and free frames taken for them (`compact_isolated`).
    Isolated,
    /// Frames whose contents were moved (`pgmigrate_success`).
    Migrated,
    /// Frames that were isolated but not moved (`pgmigrate_fail`).
    MigrateFailed,
    /// How often a pinned frame was met.
    Pinned,
    /// How often an unmovable frame was met.
    Unmovable,
    /// How often the background compactor found something to do (`compact_daemon_wake`).
    DaemonWake,
    /// Pages scanned by its migrate scanner (`compact_daemon_migrate_scanned`).
    DaemonMigrateScanned,
    /// Pages scanned by its free scanner (`compact_daemon_free_scanned`).
    DaemonFreeScanned,
    /// The part of [`Migrated`](Self::Migrated) that the background compactor moved.
    DaemonMigrated,
    /// Frames whose contents owners dropped instead, because memory was short.
    Discarded,
}

impl CompactEvent {
    /// The number of events.
    pub(crate) const COUNT: usize = Self::Discarded as usize + 1;
}

/// See the module. On cache lines of its own: it is written while other CPUs read the zone's limits.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct CompactState {
    /// Where the migrate scanner continues, for asynchronous runs and for all other runs; outside the zone: at its bottom.
    cached_migrate: [AtomicU64; 2],
    /// Where the free scanner continues downwards: the end of the pageblock; outside the zone: at its top.
    cached_free: AtomicU64,
    /// Attempts since the last failure.
    considered: AtomicU32,
    /// Of `2^defer_shift` attempts one is made.
    defer_shift: AtomicU32,
    /// The lowest order that failed plus 1; 0: none did.
    order_failed: AtomicU32,
    /// 1 if the scanners of a direct compaction met, so that the background compactor should forget the hints.
    flush_hints: AtomicU32,
    /// The order that a request missed plus 1 in bits 0–7, and its highest zone in bits 8–15; 0: none.
    wanted: AtomicU32,
    /// Steps of the background compactor until it checks the fragmentation of free memory again.
    proactive_rest: AtomicU32,
    /// 1 while the background refills the stock of whole pageblocks.
    refills: AtomicU32,
    /// How many free frames a pageblock needs before the stock is refilled from it: the level of `defrag::least_free`.
    emptiness: AtomicU32,
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
    refills,
    emptiness,
    counters
});

impl CompactState {
    /// Adds to a counter.
    pub(crate) fn count(&self, event: CompactEvent, amount: u64) {
        if amount > 0 {
            self.counters[event as usize].fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// The values of all counters.
    pub(crate) fn all_counted(&self) -> [u64; CompactEvent::COUNT] {
        core::array::from_fn(|event| self.counters[event].load(Ordering::Relaxed))
    }

    /// Where the migrate scanner of an asynchronous run (0) or another (1) continues; may be outside the zone.
    pub(crate) fn cached_migrate(&self, scanner: usize) -> Pfn {
        Pfn(self.cached_migrate[scanner].load(Ordering::Relaxed))
    }

    /// Where the free scanner continues; may be outside the zone.
    pub(crate) fn cached_free(&self) -> Pfn {
        Pfn(self.cached_free.load(Ordering::Relaxed))
    }

    /// Records that all frames below `to` were scanned (`update_cached_migrate`): for all runs, or for asynchronous ones only (1).
    pub(crate) fn advance_migrate(&self, to: Pfn, scanners: usize) {
        for cached in &self.cached_migrate[..scanners] {
            cached.fetch_max(to.0, Ordering::Relaxed);
        }
    }

    /// Records where the free scanner of a run continues.
    pub(crate) fn set_free(&self, to: Pfn) {
        self.cached_free.store(to.0, Ordering::Relaxed);
    }

    /// Makes both scanners start at the zone's ends again (`reset_cached_positions`).
    pub(crate) fn reset_positions(&self) {
        self.cached_migrate.iter().for_each(|cached| cached.store(0, Ordering::Relaxed));
        self.cached_free.store(0, Ordering::Relaxed);
    }

    /// Whether an attempt for that order is deferred; counts it as considered (`compaction_deferred`).
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

    /// An attempt for that order failed: defers the next ones for longer (`defer_compaction`).
    pub(crate) fn defer(&self, order: Order) {
        self.considered.store(0, Ordering::Relaxed);
        let shift = self.defer_shift.load(Ordering::Relaxed);
        self.defer_shift.store(shift.saturating_add(1).min(MAX_DEFER_SHIFT), Ordering::Relaxed);
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

    /// As [`order_can_be_made`](Self::order_can_be_made), and an allocation got the block: ends the deferral.
    pub(crate) fn order_was_allocated(&self, order: Order) {
        self.considered.store(0, Ordering::Relaxed);
        self.defer_shift.store(0, Ordering::Relaxed);
        self.flush_hints.store(0, Ordering::Relaxed);
        self.order_can_be_made(order);
    }

    /// Whether attempts were deferred for the longest time, so that this one should start over (`compaction_restarting`).
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

    /// Asks the background compactor to forget the hints.
    pub(crate) fn want_flush(&self) {
        self.flush_hints.store(1, Ordering::Relaxed);
    }

    /// Whether the hints should be forgotten; clears the request.
    pub(crate) fn take_flush(&self) -> bool {
        let wanted = self.flush_hints.load(Ordering::Relaxed) != 0;
        if wanted {
            self.flush_hints.store(0, Ordering::Relaxed);
        }
        wanted
    }

    /// Records that a request missed a block of that order (`wakeup_kcompactd`).
    pub(crate) fn want(&self, order: Order, highest: ZoneKind) {
        let word = (u32::from(order.0) + 1) | ((highest as u32) << 8);
        if self.wanted.load(Ordering::Relaxed) != word {
            self.wanted.fetch_max(word, Ordering::Relaxed);
        }
    }

    /// The order that a request missed, and its highest zone.
    pub(crate) fn wanted(&self) -> Option<(Order, ZoneKind)> {
        let word = self.wanted.load(Ordering::Relaxed);
        let order = (word as u8).checked_sub(1)?;
        Some((Order(order.min(ORDER_SLOTS as u8 - 1)), *ZoneKind::ALL.get((word >> 8) as usize)?))
    }

    /// Clears the missed order.
    pub(crate) fn forget_wanted(&self) {
        self.wanted.store(0, Ordering::Relaxed);
    }

    /// Whether the background refills the stock.
    pub(crate) fn refills(&self) -> bool {
        self.refills.load(Ordering::Relaxed) != 0
    }

    /// Begins or ends a refill of the stock.
    pub(crate) fn set_refills(&self, refills: bool) {
        self.refills.store(refills.into(), Ordering::Relaxed);
    }

    /// The level of emptiness from which pageblocks are emptied.
    pub(crate) fn emptiness(&self) -> u32 {
        self.emptiness.load(Ordering::Relaxed).min(EMPTINESS_LEVELS - 1)
    }

    /// Changes the level of emptiness.
    pub(crate) fn set_emptiness(&self, level: u32) {
        self.emptiness.store(level.min(EMPTINESS_LEVELS - 1), Ordering::Relaxed);
    }

    /// Skips the fragmentation check for that many steps.
    pub(crate) fn rest(&self, steps: u32) {
        self.proactive_rest.store(steps, Ordering::Relaxed);
    }

    /// Whether the fragmentation check is skipped; one step fewer from now on.
    pub(crate) fn is_resting(&self) -> bool {
        let rest = self.proactive_rest.load(Ordering::Relaxed);
        self.proactive_rest.store(rest.saturating_sub(1), Ordering::Relaxed);
        rest > 0
    }
}
