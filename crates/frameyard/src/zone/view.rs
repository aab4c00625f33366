//! A zone with what its operations need ([`ZoneView`]), and the zone lock ([`ZoneHold`], [`LockedZone`]).
//!
//! # Protocol
//!
//! The holder of the zone lock writes free lists, their links in the pages, pageblock types and counters, with plain
//! (relaxed) accesses. Taking the lock acquires what the last holder released with it: the new holder sees the lists as
//! they were left, and frames that it takes off a list as their freeing owner left them. A reader without the lock
//! (`_racy`) may see any recent value; watermark checks and statistics are such readers, and correctness does not
//! depend on them. `free_pages` and `free_cma` are written once per hold, so such a reader never sees the dip while
//! blocks are split or merged; the `nonempty` bits may show one. Two words are stored with Release: pageblock types,
//! which let other CPUs find pages by number, and the count of deferred frames.

use crate::locks::LockHold;
use crate::memmap::{Located, MapBlock, MapPlace, MemMap, RangeEntry};
use crate::page::{Link, PageRef};
use crate::platform::{Access, LineKind, LockError, LockId, Platform, Probe, SharedLine, copied_views};
use crate::sync::AtomicU32;
use crate::units::{CpuId, Geometry, MigrateType, Order, PageCount, Pfn, PfnRange, ZoneId};
use crate::zone::allocation_map::AllocationMap;
use crate::zone::block_list::Place;
use crate::zone::checks::PageChecks;
use crate::zone::counters::TransferCounters;
use crate::zone::exclusive::{add_exclusive, sub_exclusive};
use crate::zone::mechanisms::MechanismTables;
use crate::zone::pageblock::PageblockMap;
use crate::zone::region_state::Region;
use crate::zone::request::BlockRequest;
use crate::zone::section::SectionTable;
use crate::zone::state::Zone;

/// The memory map, and the tables that the zones of a yard share.
#[derive(Clone, Copy)]
pub(crate) struct ZoneTables {
    pub(crate) map: MemMap,
    pub(crate) blocks: PageblockMap<'static>,
    pub(crate) sections: SectionTable<'static>,
    /// Memory, cut at zone boundaries, ascending.
    pub(crate) ranges: &'static [RangeEntry],
    /// The counters of all CPUs and zones, by CPU first, and the number of zones.
    pub(crate) all_counters: (&'static [TransferCounters], usize),
    pub(crate) allocation_map: AllocationMap<'static>,
    /// For each pageblock, the frames in it that are on free lists, while [regions](crate::placement::regions) are kept clean.
    pub(crate) pageblock_free: &'static [AtomicU32],
    /// The records of regions; see [`regions`](crate::placement::regions).
    pub(crate) regions: &'static [Region],
    pub(crate) geometry: Geometry,
    /// When page structures are checked.
    pub(crate) checks: PageChecks,
    /// The tables of the transfer mechanisms.
    pub(crate) mechanisms: MechanismTables,
}

/// A zone and what its operations need.
pub(crate) struct ZoneView<'a, P> {
    pub(crate) id: ZoneId,
    pub(crate) zone: &'a Zone,
    pub(crate) tables: &'a ZoneTables,
    pub(crate) platform: &'a P,
}

copied_views!(ZoneView);

impl<P> core::ops::Deref for ZoneView<'_, P> {
    type Target = ZoneTables;

    #[inline(always)]
    fn deref(&self) -> &ZoneTables {
        self.tables
    }
}

impl<'a, P: Platform> ZoneView<'a, P> {
    #[inline(always)]
    pub(crate) fn page<L: Located>(&self, frame: L) -> PageRef<'a, P, L::Name> {
        self.map.page(frame, self.platform)
    }

    /// The page structure of a frame, if it is in a pageblock that has memory. Accepts any frame number.
    #[inline]
    pub(crate) fn page_of(&self, pfn: Pfn) -> Option<PageRef<'a, P>> {
        self.blocks.has_memory(pfn).then(|| self.page(pfn))
    }

    /// Notes that the zone's lists are corrupt.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_corrupt(&self) {
        self.platform.note_corrupt(LockId::Zone(self.id));
    }

    /// The frames between the first and the last frame of the zone, as far as the map covers them.
    pub(crate) fn span(&self) -> PfnRange {
        let span = self.zone.span().intersection(self.map.range());
        PfnRange { end: span.end.max(span.start), ..span }
    }

    /// The counters of a CPU's lists in this zone; the zone's own if there is no such CPU.
    pub(crate) fn counters_of(self, cpu: CpuId) -> &'a TransferCounters {
        let (counters, zones) = self.all_counters;
        counters.get(cpu.index() * zones + self.id.index()).unwrap_or(&self.zone.counters)
    }

    /// Announces a use of the zone's counts of free frames.
    #[inline(always)]
    pub(crate) fn touch_free_pages(&self, access: Access) {
        self.platform.probe().touch_line(SharedLine::of(LineKind::ZoneCounters, &self.zone.free_pages), access);
    }

    /// Takes the zone lock, unless the platform gives up.
    pub(crate) fn lock(self) -> Result<LockedZone<'a, P>, LockError> {
        self.lock_counted(&self.zone.counters)
    }

    /// Takes the zone lock for the lists of a CPU. [`Platform::lock_error`] says why if it is not taken.
    pub(crate) fn lock_for(self, cpu: CpuId) -> Option<LockedZone<'a, P>> {
        self.lock_counted(self.counters_of(cpu)).ok()
    }

    /// Takes the zone lock for the lists of a CPU unless `locked` has it.
    pub(crate) fn lock_unless<'l>(
        self,
        locked: &'l mut Option<LockedZone<'a, P>>,
        cpu: CpuId,
    ) -> Option<&'l mut LockedZone<'a, P>> {
        if locked.is_none() {
            *locked = self.lock_for(cpu);
        }
        locked.as_mut()
    }

    #[inline]
    pub(crate) fn lock_counted(self, counters: &'a TransferCounters) -> Result<LockedZone<'a, P>, LockError> {
        ZoneHold::begin(&self, counters).map(|hold| self.held(hold))
    }

    #[inline(always)]
    fn held(self, hold: ZoneHold<'a, P>) -> LockedZone<'a, P> {
        LockedZone {
            view: self,
            free_change: 0,
            cma_change: 0,
            initialised: 0,
            without_clean: 0,
            changed_region: None,
            hold,
        }
    }
}

/// Proves that the caller holds a zone lock.
#[derive(Clone, Copy)]
pub(crate) struct HoldProof<'h>(#[expect(dead_code, reason = "a proof has no use but to exist")] &'h LockHold);

/// The zone lock, held; drops it when dropped.
pub(crate) struct ZoneHold<'a, P: Platform> {
    id: ZoneId,
    zone: &'a Zone,
    platform: &'a P,
    /// Where this hold is counted.
    counters: &'a TransferCounters,
    /// Frames moved.
    moved: u64,
    hold: LockHold,
    _guard: P::Guard,
}

impl<'a, P: Platform> ZoneHold<'a, P> {
    #[inline(always)]
    pub(crate) fn begin(view: &ZoneView<'a, P>, counters: &'a TransferCounters) -> Result<Self, LockError> {
        let guard = view.platform.guard();
        let hold = counters.lock.uses.lock(view.platform, LockId::Zone(view.id), view.zone.lock_word())?;
        let ZoneView { id, zone, platform, .. } = *view;
        Ok(Self { id, zone, platform, counters, moved: 0, hold, _guard: guard })
    }

    pub(crate) fn proof(&self) -> HoldProof<'_> {
        HoldProof(&self.hold)
    }

    /// Counts frames moved under the lock.
    #[inline(always)]
    pub(crate) fn count_moved(&mut self, pages: u64) {
        self.moved += pages;
    }

    /// Subtracts from the zone's count of free frames.
    #[inline(always)]
    pub(crate) fn sub_free_pages(&self, pages: u64) {
        sub_exclusive(&self.zone.free_pages, pages);
    }
}

impl<P: Platform> Drop for ZoneHold<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        let lock = &self.counters.lock;
        if self.moved != 0 {
            add_exclusive(&lock.pages_moved, self.moved);
        }
        if let Some(held_ns) = lock.uses.count_hold(self.platform, self.hold) {
            lock.record(self.hold, held_ns, self.moved);
        }
        self.platform.unlock(LockId::Zone(self.id), &self.zone.lock.0);
    }
}

/// A zone whose lock is held; the type with the operations on free lists.
///
/// It sums up what the free lists gain and lose, and adds the sum to the zone's counters once, before it drops the lock. Blocks
/// that are split or merged leave the lists for a moment: a watermark check on another CPU must not take that for a shortage.
pub(crate) struct LockedZone<'a, P: Platform> {
    view: ZoneView<'a, P>,
    /// The change of `free_pages`, modulo 2⁶⁴.
    pub(crate) free_change: u64,
    /// The change of `free_cma`, modulo 2⁶⁴.
    cma_change: u64,
    /// Frames that are no longer deferred.
    pub(crate) initialised: u64,
    /// The orders whose Movable list has no block of a clean region at its head, as far as this hold has seen.
    pub(crate) without_clean: u32,
    /// The region that this hold has tainted or cleaned last.
    pub(crate) changed_region: Option<Pfn>,
    hold: ZoneHold<'a, P>,
}

impl<'a, P: Platform> core::ops::Deref for LockedZone<'a, P> {
    type Target = ZoneView<'a, P>;

    #[inline(always)]
    fn deref(&self) -> &ZoneView<'a, P> {
        &self.view
    }
}

impl<'a, P: Platform> LockedZone<'a, P> {
    /// Frames on the free lists, exactly.
    pub(crate) fn free_pages(&self) -> PageCount {
        PageCount(self.zone.free_pages_racy().0.wrapping_add(self.free_change))
    }

    /// Frames of type Cma on the free lists, exactly.
    pub(crate) fn free_cma(&self) -> PageCount {
        PageCount(self.zone.free_cma_racy().0.wrapping_add(self.cma_change))
    }

    /// The counters of this hold.
    pub(crate) fn counters(&self) -> &'a TransferCounters {
        self.hold.counters
    }

    pub(crate) fn proof(&self) -> HoldProof<'_> {
        self.hold.proof()
    }

    /// Counts frames that join or leave the free lists.
    #[inline(always)]
    pub(crate) fn count_free(&mut self, count: PageCount, migrate_type: MigrateType, change: fn(u64, u64) -> u64) {
        let PageCount(pages) = count;
        match migrate_type {
            MigrateType::Isolate => {}
            MigrateType::Cma => {
                self.free_change = change(self.free_change, pages);
                self.cma_change = change(self.cma_change, pages);
            }
            _ => self.free_change = change(self.free_change, pages),
        }
    }

    fn publish_counts(&mut self) {
        self.touch_free_pages(Access::Write);
        if self.free_change != 0 {
            add_exclusive(&self.zone.free_pages, self.free_change);
        }
        if self.cma_change != 0 {
            add_exclusive(&self.zone.free_cma, self.cma_change);
        }
        if self.initialised != 0 {
            self.zone.deferred.sub_initialised(self.initialised);
        }
    }

    /// Counts a block allocated past the per-CPU lists, and moved under the lock.
    pub(crate) fn count_direct_allocation(&mut self, order: Order) {
        self.zone.events.count_direct_allocation(order);
        self.count_moved(order.pages());
    }

    /// Counts a block freed past the per-CPU lists, and moved under the lock.
    pub(crate) fn count_direct_free(&mut self, order: Order) {
        self.zone.events.count_direct_free(order);
        self.count_moved(order.pages());
    }

    /// Counts frames moved under the lock.
    #[inline(always)]
    pub(crate) fn count_moved(&mut self, count: PageCount) {
        self.hold.count_moved(count.0);
    }
}

/// What a placement hears of blocks that come and go, under the zone lock. Implemented by [`placement`](crate::placement).
pub(crate) trait ListEvents: Copy {
    /// A block joined the free list of a type.
    fn block_listed(self, block: MapPlace, order: Order, list: MigrateType);
    /// A block left the free list of a type.
    fn block_unlisted(self, block: MapPlace, order: Order, list: MigrateType);
    /// A number of single pages, linked to each other, joined the free list of a type.
    fn chain_listed(self, first: Link, count: u64, list: MigrateType);
    /// A number of single pages, linked to each other, leaves the free list of a type.
    fn chain_unlisted(self, first: Link, count: u64, list: MigrateType);
}

/// What a placement decides about free lists. Implemented by [`placement`](crate::placement).
pub(crate) trait ListRules {
    /// Takes up to `count` blocks for a request, of other types if it may have them, and gives each to `take`. Returns their number.
    fn take_blocks(&mut self, request: BlockRequest, count: usize, take: impl FnMut(&Self, MapPlace)) -> usize;
    /// Takes a block for a request.
    fn take_block(&mut self, request: BlockRequest) -> Option<Pfn>;
    /// Takes up to `count` blocks that come before those at the head of the lists of a type. Returns their number.
    fn take_preferred(
        &mut self,
        order: Order,
        list: MigrateType,
        count: usize,
        take: &mut dyn FnMut(&Self, MapPlace),
    ) -> usize;
    /// The end of its list that a block joins.
    fn end_of_list(&mut self, block: MapBlock, list: MigrateType, wanted: Place) -> Place;
    /// Whether the request alternates between ordinary and CMA memory, block by block.
    fn balances_cma(&self, request: BlockRequest) -> bool;
    /// Gives the pageblocks of a block of at least pageblock order another type. They are not isolated.
    fn set_types(&mut self, pfn: Pfn, order: Order, to: MigrateType);
    /// Whether a pageblock of that type gets another one when all its frames are free.
    fn changes_when_whole(&self, list: MigrateType) -> bool;
    /// Notes that a block of such a pageblock is free, and merged up to that. The caller has taken it off the lists. Returns the type of the
    /// list that it goes to.
    fn type_when_whole(&mut self, block: MapBlock, list: MigrateType) -> MigrateType;
    /// A hold of the zone lock ends.
    fn hold_ends(&mut self);
}

impl<P: Platform> Drop for LockedZone<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.hold_ends();
        self.publish_counts();
    }
}
