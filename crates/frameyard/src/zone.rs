//! Zones: free memory of one kind on one node, behind one lock, with per-CPU lists in front of it.
//!
//! [`Zone`] is the shared state; [`ZoneView`] is a zone together with what its operations need (the memory
//! map, the pageblock types, the platform); [`LockedZone`] is a view that holds the zone lock, and the only
//! type with operations on free lists.
//!
//! # Protocol
//!
//! Free lists, their links in the pages, pageblock types and the counters are written by the holder of the zone
//! lock alone, with plain (relaxed) accesses. Taking the lock acquires what the last holder released with it, so
//! the holder sees all of it as the last one left it, and the frames that it takes off a list as their freeing
//! owner left them. Whoever reads without the lock (`_racy`) may see any recent value: watermark checks and
//! statistics do, and decide nothing that must hold. `free_pages` and `free_cma` are written once per holding,
//! so such a reader never sees the dip while blocks are split or merged; the `nonempty` bits may show one. Stored with
//! Release are pageblock types, which let others look at pages by number, and the count of pending frames.
//!
//! # Lock order
//!
//! The lock of a CPU's lists may be held when the lock of what a CPU owns ([`transfer::cpu_owned`]) is taken, and either when a
//! zone lock is taken; never the other way round. No two locks of the same kind are held together.
//!
//! # Counting equations
//!
//! - `free_pages` = Σ over orders and types but Isolate of blocks × 2^order, and pending frames where those count
//!   ([`DeferredFrames`](deferred::DeferredFrames)); `free_cma` is the part of type Cma.
//! - an order's bit in `nonempty[type]` is set exactly when its list has a block.
//! - `managed` = frames on free lists (Isolate included) + on per-CPU lists + on lists of owned memory + in the depot +
//!   allocated + isolated + poisoned, and pending frames where those count.
//! - `reserved_highatomic` = frames of the pageblocks of type HighAtomic.
//! - `reported` = frames of the blocks on free lists that are reported.

use core::fmt;

use crate::locks::{LockHold, LockLine};
use crate::memmap::{Located, MemMap};
use crate::page::{FrameLink, PageRef, Tag};
use crate::platform::{Access, LineKind, LockId, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{CpuId, Geometry, MigrateType, ORDER_SLOTS, Order, PageCount, Pfn, PfnRange, ZoneId, ZoneKind};

mod allocation_map;
mod boost;
mod buddy;
mod compact_state;
mod deferred;
mod fallback;
mod free_area;
mod highatomic;
mod isolate;
mod pageblock;
pub(crate) mod pcp;
mod pcp_sizing;
pub(crate) mod poison;
mod policy;
mod range;
mod reporting;
pub(crate) mod transfer;
mod watermark;

pub(crate) use allocation_map::AllocationMap;
pub(crate) use compact_state::{COSTLY_ORDER, CompactEvent, CompactState, FreeShape, MAX_DEFER_SHIFT};
pub(crate) use fallback::{BlockRequest, CmaUse, Fallback};
use free_area::FreeArea;
pub(crate) use pageblock::PageblockMap;
pub use pcp_sizing::{HighFraction, PcpSizes, PcpSizing, PcpSizingError, PcpZone};
pub use policy::ZonePolicy;
pub(crate) use range::{RangeBlocked, RangeLists, covering_block, pieces};
pub(crate) use reporting::{ReportBatch, Taken};
use transfer::TransferCounters;
use transfer::depot::Depot;
pub use transfer::depot::DepotStatistics;
pub use transfer::{ClusterDrains, TransferStatistics, ZoneLockTelemetry};
pub use watermark::{
    HugePageMinimum, MovableMinimum, WatermarkLevel, WatermarkOptions, WatermarkOptionsError, Watermarks, ZoneSizing,
    default_min_free_kbytes, free_buffer_pages, recommended_min_free_kbytes, set_lowmem_reserves, set_watermarks,
    size_zones, stat_threshold,
};
pub(crate) use watermark::{SharedMinimum, lowmem_reserve};

/// How deep an allocation may dip below a watermark (the kernel's `ALLOC_*` reserve flags).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reserves {
    /// May use half of `min` (`ALLOC_MIN_RESERVE`).
    pub(crate) min: bool,
    /// Cannot wait: a further quarter (`ALLOC_NON_BLOCK`).
    pub(crate) non_block: bool,
    /// May use pageblocks kept for atomic high-order requests (`ALLOC_HIGHATOMIC`).
    pub(crate) high_atomic: bool,
    /// May use CMA pageblocks (`ALLOC_CMA`).
    pub(crate) cma: bool,
}

impl Reserves {
    fn any(self) -> bool {
        self.min || self.non_block || self.high_atomic
    }
}

/// What rarely changes about a zone; read on every path, so it shares no line with what the lock guards.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct ZoneFacts {
    pub(crate) start: AtomicU64,
    pub(crate) end: AtomicU64,
    pub(crate) present: AtomicU64,
    pub(crate) managed: AtomicU64,
    pub(crate) cma: AtomicU64,
    /// min, low, high, promo.
    pub(crate) watermarks: [AtomicU64; 4],
    /// What is added to low, high and promo for a while; changed under the zone lock.
    pub(crate) boost: AtomicU64,
    /// The most that may be, in 1/10000 of the high watermark.
    pub(crate) boost_factor: AtomicU32,
    /// 1 from when a background reclaimer was seen, which will take boosts back.
    pub(crate) is_reclaimed: AtomicU32,
    /// [`ZonePolicy`], the same in all zones; read under the zone lock or that of a CPU's lists.
    policy: AtomicU32,
    /// Frames kept back from requests that could use a higher zone, by that zone's kind.
    pub(crate) protection: [AtomicU64; ZoneKind::COUNT],
}

all_atomic!(ZoneFacts {
    start,
    end,
    present,
    managed,
    cma,
    watermarks,
    boost,
    boost_factor,
    is_reclaimed,
    policy,
    protection
});

/// Event counters of a zone, changed under its lock alone (so a plain load and store each).
#[derive(Default)]
pub(crate) struct ZoneEvents {
    /// Allocations served from another type's blocks.
    pub(crate) fallbacks: AtomicU64,
    /// Pageblocks that changed their type on the way.
    pub(crate) conversions: AtomicU64,
    /// Both by the type asked for and the type taken from.
    pub(crate) extfrag: ExtfragCounters,
    /// Blocks handed out past the per-CPU lists.
    pub(crate) direct_allocations: AtomicU64,
    /// Blocks taken back past the per-CPU lists.
    pub(crate) direct_frees: AtomicU64,
    /// Frames of the blocks handed out past the per-CPU lists.
    pub(crate) direct_pages_allocated: AtomicU64,
    /// Frames of the blocks taken back past the per-CPU lists.
    pub(crate) direct_pages_freed: AtomicU64,
}

all_atomic!(ZoneEvents {
    fallbacks,
    conversions,
    extfrag,
    direct_allocations,
    direct_frees,
    direct_pages_allocated,
    direct_pages_freed
});

/// Fallbacks and conversions by the type asked for and the type taken from (`mm_page_alloc_extfrag`).
#[derive(Default)]
pub(crate) struct ExtfragCounters {
    pub(crate) fallbacks: [[AtomicU64; MigrateType::PER_CPU]; MigrateType::PER_CPU],
    pub(crate) conversions: [[AtomicU64; MigrateType::PER_CPU]; MigrateType::PER_CPU],
}

all_atomic!(ExtfragCounters { fallbacks, conversions });

/// Where requests were served that preferred another node; changed on the slow path, by any CPU.
#[derive(Default)]
pub(crate) struct Placement {
    /// Served here, though another node was preferred (`numa_miss`).
    pub(crate) miss: AtomicU64,
    /// Preferred this zone, but was served elsewhere (`numa_foreign`).
    pub(crate) foreign: AtomicU64,
    /// Could have been served up to here, and reclaimed for itself (`allocstall_*`). Counted without memory in the zone, too.
    pub(crate) reclaimed: AtomicU64,
}

all_atomic!(Placement { miss, foreign, reclaimed });

/// How requests to contiguous memory areas went; changed without a lock.
#[derive(Default)]
pub(crate) struct CmaEvents {
    /// Those that got their frames.
    pub(crate) served: AtomicU64,
    /// Those that did not.
    pub(crate) failed: AtomicU64,
}

all_atomic!(CmaEvents { served, failed });

/// The shared state of a zone.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Zone {
    pub(crate) facts: ZoneFacts,
    lock: LockLine,
    /// Frames on the free lists; written when the lock is given back, read racily by watermark checks.
    free_pages: AtomicU64,
    free_cma: AtomicU64,
    reserved_highatomic: AtomicU64,
    /// Frames of free blocks whose bytes the host has.
    reported: AtomicU64,
    /// For each type, the orders whose list has a block.
    nonempty: [AtomicU32; MigrateType::COUNT],
    events: ZoneEvents,
    /// What was counted of all that does not come from a CPU's lists.
    row: TransferCounters,
    pub(crate) placement: Placement,
    pub(crate) cma_events: CmaEvents,
    pub(crate) deferred: deferred::DeferredFrames,
    pub(crate) compaction: CompactState,
    pub(crate) transfer: transfer::TransferState,
    areas: [FreeArea; ORDER_SLOTS],
}

all_atomic!(Zone {
    facts,
    lock,
    free_pages,
    free_cma,
    reserved_highatomic,
    reported,
    nonempty,
    events,
    row,
    placement,
    cma_events,
    deferred,
    compaction,
    transfer,
    areas
});

/// Adds to a counter that the holder of a lock alone changes.
#[inline(always)]
pub(crate) fn add_exclusive(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// Subtracts from a counter that the holder of a lock alone changes.
#[inline(always)]
pub(crate) fn sub_exclusive(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_sub(amount), Ordering::Relaxed);
}

impl Zone {
    /// The frames between the first and the last frame of the zone, holes included.
    pub(crate) fn span(&self) -> PfnRange {
        PfnRange {
            start: Pfn(self.facts.start.load(Ordering::Relaxed)),
            end: Pfn(self.facts.end.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn managed(&self) -> PageCount {
        PageCount(self.facts.managed.load(Ordering::Relaxed))
    }

    /// Frames on the free lists, a moment ago.
    pub(crate) fn free_pages_racy(&self) -> PageCount {
        PageCount(self.free_pages.load(Ordering::Relaxed))
    }

    pub(crate) fn free_cma_racy(&self) -> PageCount {
        PageCount(self.free_cma.load(Ordering::Relaxed))
    }

    pub(crate) fn reserved_highatomic_racy(&self) -> PageCount {
        PageCount(self.reserved_highatomic.load(Ordering::Relaxed))
    }

    pub(crate) fn reported_racy(&self) -> PageCount {
        PageCount(self.reported.load(Ordering::Relaxed))
    }

    /// How frames cross the border.
    #[inline(always)]
    pub(crate) fn policy(&self) -> ZonePolicy {
        ZonePolicy::from_bits(self.facts.policy.load(Ordering::Relaxed))
    }

    pub(crate) fn set_policy(&self, policy: ZonePolicy) {
        self.facts.policy.store(policy as u32, Ordering::Relaxed);
    }

    pub(crate) fn events(&self) -> &ZoneEvents {
        &self.events
    }

    /// What was counted of all that does not come from a CPU's lists.
    #[inline(always)]
    pub(crate) fn row(&self) -> &TransferCounters {
        &self.row
    }

    pub(crate) fn watermark(&self, mark: WatermarkLevel) -> PageCount {
        PageCount(self.facts.watermarks[mark as usize].load(Ordering::Relaxed))
    }

    pub(crate) fn protection(&self, highest: ZoneKind) -> PageCount {
        PageCount(self.facts.protection[highest as usize].load(Ordering::Relaxed))
    }

    /// What the list of an order and type would give next, a moment ago.
    pub(crate) fn first_link_racy(&self, order: Order, migrate_type: MigrateType) -> FrameLink {
        self.areas[order.index()].list(migrate_type).first_racy()
    }

    /// How many blocks of an order and type are free, a moment ago.
    pub(crate) fn free_blocks_racy(&self, order: usize, migrate_type: MigrateType) -> u64 {
        self.areas[order].list(migrate_type).blocks_racy()
    }

    /// Whether the zone would stay above a watermark if a block of `order` were taken (`__zone_watermark_ok`); `kept` frames
    /// count as free though they are on no free list.
    fn watermark_ok_with_racy(
        &self,
        order: Order,
        mark: WatermarkLevel,
        highest: ZoneKind,
        reserves: Reserves,
        kept: PageCount,
    ) -> bool {
        let mut unusable = order.pages().0 - 1;
        if !reserves.any() {
            unusable += self.reserved_highatomic_racy().0;
        }
        if !reserves.cma {
            unusable += self.free_cma_racy().0;
        }
        let free = (self.free_pages_racy() + kept).0.saturating_sub(unusable);
        let mut limit = self.watermark(mark).0;
        if mark != WatermarkLevel::Min {
            limit = limit.saturating_add(self.boost().0);
        }
        if reserves.min {
            limit -= limit / 2;
            if reserves.non_block {
                limit -= limit / 4;
            }
        }
        if free <= limit + self.protection(highest).0 {
            return false;
        }
        order.0 == 0 || self.has_block_racy(order, reserves)
    }

    /// Whether there is a free block of at least that order on the lists of that type, or of CMA where movable requests use
    /// those.
    pub(crate) fn has_block_of_type_racy(&self, order: Order, migrate_type: MigrateType) -> bool {
        let has = |list: MigrateType| self.nonempty[list.index()].load(Ordering::Relaxed) >> order.0 != 0;
        has(migrate_type) || (migrate_type == MigrateType::Movable && has(MigrateType::Cma))
    }

    /// The largest order of which a block is on the free lists, Isolate included; recent, not exact.
    pub(crate) fn largest_free_order_racy(&self) -> Option<Order> {
        let orders = self.nonempty.iter().fold(0, |orders, bits| orders | bits.load(Ordering::Relaxed));
        orders.checked_ilog2().map(|order| Order(order as u8))
    }

    fn has_block_racy(&self, order: Order, reserves: Reserves) -> bool {
        let has =
            |migrate_type: MigrateType| self.nonempty[migrate_type.index()].load(Ordering::Relaxed) >> order.0 != 0;
        // DeferredFrames memory first: what is pending no more by now is on the lists that are looked at next.
        self.deferred.has_counted_block_racy(order)
            || MigrateType::ALL[..MigrateType::PER_CPU].iter().any(|migrate_type| has(*migrate_type))
            || (reserves.cma && has(MigrateType::Cma))
            || (reserves.any() && has(MigrateType::HighAtomic))
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zone").field("span", &self.span()).field("free", &self.free_pages_racy()).finish()
    }
}

/// A zone and what its operations need.
pub(crate) struct ZoneView<'a, P> {
    pub(crate) id: ZoneId,
    pub(crate) zone: &'a Zone,
    pub(crate) map: MemMap,
    pub(crate) blocks: PageblockMap<'a>,
    /// For each CPU, a row for each zone, of which there are so many: what is counted of them.
    pub(crate) rows: (&'a [TransferCounters], usize),
    pub(crate) allocation_map: AllocationMap<'a>,
    pub(crate) clusters: transfer::ClusterTable<'a>,
    pub(crate) depot: Depot<'a>,
    pub(crate) geometry: Geometry,
    pub(crate) platform: &'a P,
    /// Which CPU owns which pageblock, and what of it is free.
    pub(crate) owned: transfer::cpu_owned::CpuOwnedTables<'a>,
}

impl<P> Clone for ZoneView<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for ZoneView<'_, P> {}

impl<'a, P: Platform> ZoneView<'a, P> {
    #[inline(always)]
    pub(crate) fn page(&self, frame: impl Located) -> PageRef<'a, P> {
        self.map.page(frame, self.platform)
    }

    /// What is counted of a CPU's lists in this zone; of all without lists where there is no such CPU.
    pub(crate) fn row_of(self, cpu: CpuId) -> &'a TransferCounters {
        let (rows, zones) = self.rows;
        rows.get(cpu.index() * zones + self.id.index()).unwrap_or(&self.zone.row)
    }

    /// What begins at a frame: its page's tag, in which allocated blocks and those on per-CPU lists are told apart.
    #[inline(always)]
    pub(crate) fn tag_at(&self, pfn: Pfn) -> Tag {
        self.allocation_map.read(pfn, self.page(pfn).tag())
    }

    /// Whether the zone would stay above a watermark if a block of `order` were taken (`__zone_watermark_ok`). What is in the
    /// depot counts as free; it is looked at only where the rest is not enough.
    pub(crate) fn watermark_ok_racy(
        &self,
        order: Order,
        mark: WatermarkLevel,
        highest: ZoneKind,
        reserves: Reserves,
    ) -> bool {
        self.platform.touch_line(SharedLine::of(LineKind::ZoneFacts, &self.zone.facts.watermarks), Access::Read);
        self.platform.touch_line(SharedLine::of(LineKind::ZoneCounters, &self.zone.free_pages), Access::Read);
        self.zone.watermark_ok_with_racy(order, mark, highest, reserves, PageCount(0))
            || self.zone.watermark_ok_with_racy(order, mark, highest, reserves, self.depot.pages_racy())
    }

    /// Takes the zone lock.
    pub(crate) fn lock(self) -> LockedZone<'a, P> {
        self.lock_counted(&self.zone.row)
    }

    /// Takes the zone lock for the lists of a CPU.
    pub(crate) fn lock_for(self, cpu: CpuId) -> LockedZone<'a, P> {
        self.lock_counted(self.row_of(cpu))
    }

    /// Counts a hold in which so many frames crossed, and gives the lock back.
    #[inline(always)]
    fn end_hold(&self, row: &TransferCounters, hold: LockHold, moved: u64) {
        if moved != 0 {
            add_exclusive(&row.lock.pages_moved, moved);
        }
        if let Some(held_ns) = row.lock.uses.count_hold(self.platform, hold) {
            row.lock.record(hold, held_ns, moved);
        }
        self.platform.unlock(LockId::Zone(self.id), &self.zone.lock.0);
    }

    #[inline]
    fn lock_counted(self, row: &'a TransferCounters) -> LockedZone<'a, P> {
        let guard = self.platform.guard();
        let hold = row.lock.uses.lock(self.platform, LockId::Zone(self.id), &self.zone.lock.0);
        LockedZone { view: self, row, moved: 0, free_change: 0, cma_change: 0, initialised: 0, hold, _guard: guard }
    }
}

/// A zone whose lock is held; unlocks when dropped.
///
/// What the free lists gain and lose is summed up here and added to the zone's counters once, before the lock is
/// given back. Blocks that are split or merged leave the lists for a moment: a watermark check on another CPU
/// must not take that for a shortage.
pub(crate) struct LockedZone<'a, P: Platform> {
    view: ZoneView<'a, P>,
    /// Where this hold is counted, and what is done in it.
    row: &'a TransferCounters,
    /// How many frames crossed.
    moved: u64,
    /// What `free_pages` is to change by, modulo 2⁶⁴.
    free_change: u64,
    /// What `free_cma` is to change by, modulo 2⁶⁴.
    cma_change: u64,
    /// How many frames are pending no more.
    initialised: u64,
    hold: LockHold,
    _guard: P::Guard,
}

impl<'a, P: Platform> core::ops::Deref for LockedZone<'a, P> {
    type Target = ZoneView<'a, P>;

    #[inline(always)]
    fn deref(&self) -> &ZoneView<'a, P> {
        &self.view
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Frames on the free lists, exactly.
    fn free_pages(&self) -> PageCount {
        PageCount(self.zone.free_pages_racy().0.wrapping_add(self.free_change))
    }

    /// Frames of type Cma on the free lists, exactly.
    fn free_cma(&self) -> PageCount {
        PageCount(self.zone.free_cma_racy().0.wrapping_add(self.cma_change))
    }

    fn publish_counts(&mut self) {
        self.platform.touch_line(SharedLine::of(LineKind::ZoneCounters, &self.zone.free_pages), Access::Write);
        if self.free_change != 0 {
            add_exclusive(&self.zone.free_pages, self.free_change);
        }
        if self.cma_change != 0 {
            add_exclusive(&self.zone.free_cma, self.cma_change);
        }
        if self.initialised != 0 {
            self.zone.deferred.initialised(self.initialised);
        }
    }

    /// Counts a block handed out past the per-CPU lists.
    pub(crate) fn count_direct_allocation(&mut self, order: Order) {
        add_exclusive(&self.zone.events.direct_allocations, 1);
        add_exclusive(&self.zone.events.direct_pages_allocated, order.pages().0);
        self.count_moved(order.pages());
    }

    /// Counts a block taken back past the per-CPU lists.
    pub(crate) fn count_direct_free(&mut self, order: Order) {
        add_exclusive(&self.zone.events.direct_frees, 1);
        add_exclusive(&self.zone.events.direct_pages_freed, order.pages().0);
        self.count_moved(order.pages());
    }

    /// Counts frames that cross the lock.
    #[inline(always)]
    pub(crate) fn count_moved(&mut self, count: PageCount) {
        self.moved += count.0;
    }
}

impl<P: Platform> Drop for LockedZone<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.publish_counts();
        self.view.end_hold(self.row, self.hold, self.moved);
    }
}
