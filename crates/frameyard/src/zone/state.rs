//! The shared state of a zone.
//!
//! # Counting equations
//!
//! - `free_pages` = Σ blocks × 2^order over all orders and all types except Isolate, plus deferred frames if those
//!   count ([`DeferredFrames`]); `free_cma` is the part of type Cma.
//! - An order's bit in `nonempty[type]` is set if and only if its list has a block.
//! - `managed` = frames on free lists (Isolate included) + on per-CPU lists + held by transfer mechanisms + allocated + isolated +
//!   poisoned, plus deferred frames if those count.
//! - `present` = frames of the zone's memory that are not offline.
//! - `reserved_highatomic` = frames of the pageblocks of type HighAtomic.
//! - `reported` = frames of the reported blocks on free lists.

use core::fmt;

use crate::locks::LockLine;
use crate::page::FrameLink;
use crate::platform::BadPage;
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{MigrateType, ORDER_SLOTS, Order, PageCount, Pfn, PfnRange, ZoneKind};
use crate::zone::block_list::BlockList;
use crate::zone::compact_state::CompactState;
use crate::zone::counters::TransferCounters;
use crate::zone::deferred::DeferredFrames;
use crate::zone::exclusive::add_exclusive;
use crate::zone::huge_pool::HugePool;
use crate::zone::mechanisms::MechanismState;
use crate::zone::policy::ZonePolicy;
use crate::zone::region_state::{CleanRegions, RegionEvents};
use crate::zone::watermark::WatermarkLevel;

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
    pub(crate) fn any(self) -> bool {
        self.min || self.non_block || self.high_atomic
    }
}

/// Free frames that are on no free list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HeldFree {
    pub(crate) pages: PageCount,
    /// The order of the largest block.
    pub(crate) largest: Option<Order>,
}

/// The facts of a zone that rarely change. Read on every path, so they share no cache line with what the lock guards.
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
    /// What is added to low, high and promo for a while. Changes under the zone lock.
    pub(crate) boost: AtomicU64,
    /// The largest boost, in 1/10000 of the high watermark.
    pub(crate) boost_factor: AtomicU32,
    /// 1 once a background reclaimer was seen, which takes boosts back.
    pub(crate) is_reclaimed: AtomicU32,
    /// [`ZonePolicy`], the same in all zones. Read under the zone lock or the lock of a CPU's lists.
    policy: AtomicU32,
    /// 1 while the yard keeps [regions](crate::placement::regions) clean. Changes under the zone lock.
    keeps_regions: AtomicU32,
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
    keeps_regions,
    protection
});

/// Event counters of a zone. They change under its lock, with a plain load and store each; those of blocks that bypass the per-CPU lists
/// change without it.
#[derive(Default)]
pub(crate) struct ZoneEvents {
    /// Allocations served from blocks of another type.
    pub(crate) fallbacks: AtomicU64,
    /// Pageblocks that changed their type on the way.
    pub(crate) conversions: AtomicU64,
    /// Both by the requested type and the type taken from.
    pub(crate) extfrag: ExtfragCounters,
    /// Blocks allocated past the per-CPU lists.
    pub(crate) direct_allocations: AtomicU64,
    /// Blocks freed past the per-CPU lists.
    pub(crate) direct_frees: AtomicU64,
    /// Frames of the blocks allocated past the per-CPU lists.
    pub(crate) direct_pages_allocated: AtomicU64,
    /// Frames of the blocks freed past the per-CPU lists.
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

impl ZoneEvents {
    /// Counts a block allocated past the per-CPU lists.
    pub(crate) fn count_direct_allocation(&self, order: Order) {
        self.direct_allocations.fetch_add(1, Ordering::Relaxed);
        self.direct_pages_allocated.fetch_add(order.pages().0, Ordering::Relaxed);
    }

    /// Counts a block freed past the per-CPU lists.
    pub(crate) fn count_direct_free(&self, order: Order) {
        self.direct_frees.fetch_add(1, Ordering::Relaxed);
        self.direct_pages_freed.fetch_add(order.pages().0, Ordering::Relaxed);
    }
}

/// Fallbacks and conversions by the requested type and the type taken from (`mm_page_alloc_extfrag`).
#[derive(Default)]
pub(crate) struct ExtfragCounters {
    pub(crate) fallbacks: [[AtomicU64; MigrateType::PER_CPU]; MigrateType::PER_CPU],
    pub(crate) conversions: [[AtomicU64; MigrateType::PER_CPU]; MigrateType::PER_CPU],
}

all_atomic!(ExtfragCounters { fallbacks, conversions });

/// Where requests that preferred a node were served. Any CPU changes it, on the slow path.
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

/// Requests to contiguous memory areas. They change without a lock.
#[derive(Default)]
pub(crate) struct CmaEvents {
    /// Requests that got their frames.
    pub(crate) served: AtomicU64,
    /// Requests that did not.
    pub(crate) failed: AtomicU64,
}

all_atomic!(CmaEvents { served, failed });

/// Blocks with a bad page structure. Any CPU changes them, seldom.
#[derive(Default)]
pub(crate) struct BadPages {
    /// Frames of the blocks taken out of use.
    pages: AtomicU64,
    /// The last report, as [`BadPage::to_bits`].
    last: AtomicU64,
}

all_atomic!(BadPages { pages, last });

impl BadPages {
    pub(crate) fn note(&self, bad: BadPage, order: Order) {
        self.pages.fetch_add(order.pages().0, Ordering::Relaxed);
        self.last.store(bad.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn pages_racy(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    pub(crate) fn last_racy(&self) -> Option<BadPage> {
        BadPage::from_bits(self.last.load(Ordering::Relaxed))
    }
}

/// The free lists of one order. Those of the types with per-CPU lists are on one cache line.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct FreeArea {
    lists: [BlockList; MigrateType::COUNT],
}

all_atomic!(FreeArea { lists });

/// The shared state of a zone.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Zone {
    pub(crate) facts: ZoneFacts,
    pub(crate) lock: LockLine,
    /// Frames on the free lists. Written when the lock is dropped, read racily by watermark checks.
    pub(crate) free_pages: AtomicU64,
    pub(crate) free_cma: AtomicU64,
    pub(crate) reserved_highatomic: AtomicU64,
    /// Frames of free blocks whose memory the host has.
    pub(crate) reported: AtomicU64,
    /// For each type, the orders whose list has a block.
    nonempty: [AtomicU32; MigrateType::COUNT],
    pub(crate) events: ZoneEvents,
    /// Counters of everything that does not come from a CPU's lists.
    pub(crate) counters: TransferCounters,
    pub(crate) placement: Placement,
    pub(crate) cma_events: CmaEvents,
    pub(crate) bad_pages: BadPages,
    pub(crate) deferred: DeferredFrames,
    pub(crate) compaction: CompactState,
    pub(crate) regions: RegionEvents,
    pub(crate) mechanisms: MechanismState,
    areas: [FreeArea; ORDER_SLOTS],
    /// A pool of each size of huge pages.
    pub(crate) huge_pools: [HugePool; 2],
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
    counters,
    placement,
    cma_events,
    bad_pages,
    deferred,
    compaction,
    regions,
    mechanisms,
    areas,
    huge_pools
});

impl Zone {
    /// The word of the zone lock.
    pub(crate) fn lock_word(&self) -> &AtomicU32 {
        &self.lock.0
    }

    /// The frames between the first and the last frame of the zone, holes included.
    pub(crate) fn span(&self) -> PfnRange {
        PfnRange {
            start: Pfn(self.facts.start.load(Ordering::Relaxed)),
            end: Pfn(self.facts.end.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn present(&self) -> PageCount {
        PageCount(self.facts.present.load(Ordering::Relaxed))
    }

    pub(crate) fn managed(&self) -> PageCount {
        PageCount(self.facts.managed.load(Ordering::Relaxed))
    }

    /// Frames on the free lists, possibly stale.
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

    /// The transfer policy.
    #[inline(always)]
    pub(crate) fn policy(&self) -> ZonePolicy {
        ZonePolicy::from_bits(self.facts.policy.load(Ordering::Relaxed))
    }

    /// Whether the yard keeps regions of 1 GiB clean.
    #[inline(always)]
    pub(crate) fn keeps_regions(&self) -> bool {
        // Damaged words mean that it does not.
        self.facts.keeps_regions.load(Ordering::Relaxed) == 1
    }

    /// Sets the policy. The caller holds the zone lock, or is alone.
    pub(crate) fn set_policy(&self, policy: ZonePolicy) {
        self.facts.policy.store(policy as u32, Ordering::Relaxed);
    }

    /// Sets whether regions are kept clean. Their records are the caller's.
    pub(crate) fn set_clean_regions(&self, mode: CleanRegions) {
        self.facts.keeps_regions.store(u32::from(mode == CleanRegions::On), Ordering::Relaxed);
    }

    pub(crate) fn events(&self) -> &ZoneEvents {
        &self.events
    }

    /// Counters of everything that does not come from a CPU's lists.
    #[inline(always)]
    pub(crate) fn counters(&self) -> &TransferCounters {
        &self.counters
    }

    pub(crate) fn watermark(&self, mark: WatermarkLevel) -> PageCount {
        PageCount(self.facts.watermarks[mark as usize].load(Ordering::Relaxed))
    }

    /// What the low watermark and those above it are lifted by.
    pub(crate) fn boost(&self) -> PageCount {
        PageCount(self.facts.boost.load(Ordering::Relaxed))
    }

    pub(crate) fn protection(&self, highest: ZoneKind) -> PageCount {
        PageCount(self.facts.protection[highest as usize].load(Ordering::Relaxed))
    }

    /// The free list of an order and type.
    #[inline(always)]
    pub(crate) fn list(&self, order: Order, migrate_type: MigrateType) -> &BlockList {
        &self.areas[order.index().min(ORDER_SLOTS - 1)].lists[migrate_type.index()]
    }

    /// The bits of the orders whose list of a type has a block.
    #[inline(always)]
    pub(crate) fn nonempty(&self, migrate_type: MigrateType) -> &AtomicU32 {
        &self.nonempty[migrate_type.index()]
    }

    /// The orders, from `order` up, whose list of that type has a block; bit 0 stands for `order`. Possibly stale.
    pub(crate) fn orders_from_racy(&self, order: Order, migrate_type: MigrateType) -> u32 {
        orders_from(self.nonempty(migrate_type).load(Ordering::Relaxed), order)
    }

    /// The block that a list would give next, possibly stale.
    pub(crate) fn first_link_racy(&self, order: Order, migrate_type: MigrateType) -> FrameLink {
        self.list(order, migrate_type).first_racy()
    }

    /// The free blocks of an order and type, possibly stale.
    pub(crate) fn free_blocks_racy(&self, order: usize, migrate_type: MigrateType) -> u64 {
        self.areas[order].lists[migrate_type.index()].blocks_racy()
    }

    /// Whether the zone would stay above a watermark if a block of `order` were taken (`__zone_watermark_ok`). What is `held`
    /// counts as free though it is on no free list.
    pub(crate) fn watermark_ok_with_racy(
        &self,
        order: Order,
        mark: WatermarkLevel,
        highest: ZoneKind,
        reserves: Reserves,
        held: HeldFree,
    ) -> bool {
        let mut unusable = PageCount(order.pages().0 - 1);
        if !reserves.any() {
            unusable += self.reserved_highatomic_racy();
        }
        if !reserves.cma {
            unusable += self.free_cma_racy();
        }
        let free = (self.free_pages_racy() + held.pages).0.saturating_sub(unusable.0);
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
        if free <= limit.saturating_add(self.protection(highest).0) {
            return false;
        }
        order.0 == 0 || held.largest >= Some(order) || self.has_block_racy(order, reserves)
    }

    /// Whether there is a free block of at least that order on the lists of that type, or of CMA if movable requests use those.
    pub(crate) fn has_block_of_type_racy(&self, order: Order, migrate_type: MigrateType) -> bool {
        let has = |list: MigrateType| self.orders_from_racy(order, list) != 0;
        has(migrate_type) || (migrate_type == MigrateType::Movable && has(MigrateType::Cma))
    }

    fn has_block_racy(&self, order: Order, reserves: Reserves) -> bool {
        let has = |list: MigrateType| self.orders_from_racy(order, list) != 0;
        // Deferred memory first: what is no longer deferred is on the lists that are read next.
        self.deferred.has_counted_block_racy(order)
            || MigrateType::ALL[..MigrateType::PER_CPU].iter().any(|migrate_type| has(*migrate_type))
            || (reserves.cma && has(MigrateType::Cma))
            || (reserves.any() && has(MigrateType::HighAtomic))
    }

    /// The largest order of a block on the free lists, Isolate included. Possibly stale.
    pub(crate) fn largest_free_order_racy(&self) -> Option<Order> {
        let orders = MigrateType::ALL.into_iter().fold(0, |orders, of| orders | self.orders_from_racy(Order::ZERO, of));
        orders.checked_ilog2().map(|order| Order(order as u8))
    }

    /// Counts all deferred frames as managed and free. Only while the yard is being created.
    pub(crate) fn count_deferred(&self) {
        let pages = self.deferred.pages_racy();
        self.deferred.count();
        add_exclusive(&self.facts.managed, pages.0);
        add_exclusive(&self.free_pages, pages.0);
    }
}

/// The orders of a word of bits, from `order` up, that lists may have; bit 0 stands for `order`.
#[inline(always)]
pub(crate) fn orders_from(bits: u32, order: Order) -> u32 {
    (bits & ((1 << ORDER_SLOTS) - 1)) >> order.0
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zone").field("span", &self.span()).field("free", &self.free_pages_racy()).finish()
    }
}
