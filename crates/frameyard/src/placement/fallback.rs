//! Fallback: serving a request from blocks of another type, and converting a pageblock to the new type if the request
//! takes enough of it.

use crate::memmap::{Located, MapBlock, MapPlace};
use crate::page::{CountedPage, FrameState, Residence, Tag};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::block_list::Place;
use crate::zone::exclusive::add_exclusive;
use crate::zone::request::{BlockRequest, Fallback};
use crate::zone::state::Zone;
use crate::zone::view::{ListRules, LockedZone, ZoneView};

/// The frames of a pageblock, by use.
#[derive(Default)]
pub(crate) struct BlockUse {
    free: u64,
    movable: u64,
    /// Whether a movable block may be pinned.
    has_pins: bool,
    /// Whether a block in use has a type that does not move.
    has_staying: bool,
}

impl BlockUse {
    /// Whether all frames of a pageblock with that many frames are free, or movable and not pinned.
    pub(crate) fn has_only_movable(&self, pages: PageCount) -> bool {
        self.free + self.movable >= pages.0 && !self.has_pins
    }

    /// Whether a block in use cannot move, as its type says.
    pub(crate) fn has_staying(&self) -> bool {
        self.has_staying
    }
}

/// The other types to search, best first (the kernel's `fallbacks`).
pub(crate) fn fallbacks(migrate_type: MigrateType) -> [MigrateType; 2] {
    match migrate_type {
        MigrateType::Movable => [MigrateType::Reclaimable, MigrateType::Unmovable],
        MigrateType::Reclaimable => [MigrateType::Unmovable, MigrateType::Movable],
        _ => [MigrateType::Reclaimable, MigrateType::Movable],
    }
}

/// Whether a request of that type may convert the pageblock of a block of that order (`can_steal_fallback`).
pub(crate) fn may_convert(found: Order, migrate_type: MigrateType, pageblock_order: Order) -> bool {
    found.0 >= pageblock_order.0 / 2 || migrate_type != MigrateType::Movable
}

/// A walk over the blocks of a pageblock prefetches the page of the block that is this number of blocks ahead.
const AHEAD: u64 = 4;

impl<P: Platform> ZoneView<'_, P> {
    /// Whether a request of that type may have a whole free pageblock of another type. Possibly stale.
    pub(crate) fn has_whole_pageblock_of_others_racy(&self, migrate_type: MigrateType) -> bool {
        let pageblock = self.geometry.pageblock_order();
        fallbacks(migrate_type).into_iter().any(|other| self.zone.orders_from_racy(pageblock, other) != 0)
    }

    /// Whether the free lists have a block for a request without types mixing in a pageblock: one of its type or, for a single frame, a
    /// whole pageblock of another. Possibly stale.
    pub(crate) fn has_block_for_racy(&self, order: Order, migrate_type: MigrateType) -> bool {
        self.zone.has_block_of_type_racy(order, migrate_type)
            || (order == Order::ZERO && self.has_whole_pageblock_of_others_racy(migrate_type))
    }
}

impl Zone {
    /// Whether there is a free block for a request of that order and type without mixing types in a pageblock
    /// (the second half of `__compact_finished`).
    pub(crate) fn has_suitable_block_racy(
        &self,
        order: Order,
        migrate_type: MigrateType,
        pageblock_order: Order,
    ) -> bool {
        let orders = |migrate_type: MigrateType| self.orders_from_racy(order, migrate_type);
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
    /// The types whose lists serve a request before any fallback, in order. CMA memory goes first while it is more than half of the
    /// free memory, so that it does not end up as the only free memory.
    #[inline(always)]
    pub(crate) fn own_lists(&self, request: BlockRequest) -> [Option<MigrateType>; 2] {
        let (own, cma) = (Some(request.migrate_type), Some(MigrateType::Cma));
        if !self.balances_cma(request) {
            [own, None]
        } else if self.free_cma().0 > self.free_pages().0 / 2 {
            [cma, own]
        } else {
            [own, cma]
        }
    }

    /// Takes the largest block of another type, or the smallest if a movable request would not convert the pageblock
    /// (`__rmqueue_fallback`).
    #[cold]
    fn take_from_other_types(&mut self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let (found, other) = self.largest_of_other_types(order, migrate_type)?;
        let smallest = migrate_type == MigrateType::Movable
            && found > order
            && !may_convert(found, migrate_type, self.geometry.pageblock_order());
        let (found, other) = if smallest { self.smallest_of_other_types(order, migrate_type)? } else { (found, other) };
        let block = self.first_block(found, other)?;
        Some(self.fall_back(block, order, migrate_type))
    }

    /// Takes part of a free block of another type for a request.
    pub(crate) fn fall_back(&mut self, (pfn, tag): (Pfn, Tag), order: Order, migrate_type: MigrateType) -> Pfn {
        self.count_fallback(migrate_type, tag.migrate_type());
        self.steal((pfn, tag), order, migrate_type)
    }

    fn largest_of_other_types(&self, order: Order, migrate_type: MigrateType) -> Option<(Order, MigrateType)> {
        let bits = fallbacks(migrate_type).map(|other| (other, self.orders_from(order, other)));
        let highest = bits.iter().map(|(_, orders)| orders.checked_ilog2()).max()??;
        let (other, _) = bits.iter().find(|(_, orders)| orders >> highest & 1 == 1)?;
        Some((Order(order.0 + highest as u8), *other))
    }

    fn smallest_of_other_types(&self, order: Order, migrate_type: MigrateType) -> Option<(Order, MigrateType)> {
        let found = |other| Some((self.smallest_order(order, other)?, other));
        fallbacks(migrate_type).into_iter().filter_map(found).min_by_key(|(order, _)| *order)
    }

    /// Takes part of a free block of another type, and converts its pageblock if that is worthwhile (`steal_suitable_fallback`).
    fn steal(&mut self, (pfn, tag): (Pfn, Tag), order: Order, migrate_type: MigrateType) -> Pfn {
        let (found, old_type) = (tag.order(), tag.migrate_type());
        if found >= self.geometry.pageblock_order() {
            let keeps_regions = self.zone.keeps_regions();
            let part = if keeps_regions { order.max(self.geometry.pageblock_order()) } else { found };
            self.remove_block(pfn, tag);
            self.set_types(pfn, part, migrate_type);
            self.count_conversions(migrate_type, old_type, part.pages().0 / self.blocks.pages().0);
            self.put_back_rest(pfn, (found, part), old_type, tag.residence());
            self.put_back_rest(pfn, (part, order), migrate_type, tag.residence());
            return pfn;
        }
        let converts = if self.zone.keeps_regions() {
            self.must_convert(pfn, old_type, migrate_type)
        } else {
            self.boost_watermarks();
            may_convert(found, migrate_type, self.geometry.pageblock_order())
                && self.worth_converting(pfn, old_type, migrate_type)
        };
        if converts {
            self.convert_pageblock(pfn, migrate_type);
            self.count_conversions(migrate_type, old_type, 1);
            if let Some(pfn) = self.take_smallest(order, migrate_type) {
                return pfn;
            }
        }
        self.remove_block(pfn, tag);
        self.put_back_rest(pfn, (found, order), old_type, tag.residence());
        pfn
    }

    /// Puts what is left of a block of order `found` back, after its first part of `order`.
    fn put_back_rest(
        &mut self,
        pfn: Pfn,
        (found, order): (Order, Order),
        migrate_type: MigrateType,
        residence: Residence,
    ) {
        self.put_back_pieces(
            PfnRange { start: pfn + order.pages(), end: pfn + found.pages() },
            migrate_type,
            residence,
        );
    }

    fn count_fallback(&self, asked: MigrateType, taken_from: MigrateType) {
        add_exclusive(&self.zone.events.fallbacks, 1);
        add_exclusive(&self.zone.events.extfrag.fallbacks[asked.index()][taken_from.index()], 1);
    }

    /// Notes that a request takes a whole pageblock of another type, which gets its type.
    pub(crate) fn note_converted(&self, asked: MigrateType, taken_from: MigrateType) {
        self.count_fallback(asked, taken_from);
        self.count_conversions(asked, taken_from, 1);
    }

    /// Notes that a request takes a part of a pageblock of another type, whose rest keeps its type.
    pub(crate) fn note_mixed(&mut self, asked: MigrateType, taken_from: MigrateType) {
        self.count_fallback(asked, taken_from);
        if !self.zone.keeps_regions() {
            self.boost_watermarks();
        }
    }

    fn count_conversions(&self, asked: MigrateType, taken_from: MigrateType, count: u64) {
        add_exclusive(&self.zone.events.conversions, count);
        add_exclusive(&self.zone.events.extfrag.conversions[asked.index()][taken_from.index()], count);
    }

    /// Whether at least half of the pageblock is free or already of the requested kind.
    fn worth_converting(&self, pfn: Pfn, old_type: MigrateType, new_type: MigrateType) -> bool {
        let Some(block_use) = self.use_of_pageblock(pfn) else { return false };
        let pages = self.blocks.pages().0;
        let alike = match (new_type, old_type) {
            (MigrateType::Movable, _) => block_use.movable,
            // Frames in use in a movable pageblock that are not movable count as of the requested type.
            (_, MigrateType::Movable) => pages.saturating_sub(block_use.free + block_use.movable),
            _ => 0,
        };
        block_use.free + alike >= pages / 2
    }

    /// Counts the free and the movable frames of a pageblock; `None` if other zones may share it: their blocks must stay on their
    /// lists, and the type of the pageblock is theirs, too.
    pub(crate) fn use_of_pageblock(&self, pfn: Pfn) -> Option<BlockUse> {
        let start = self.blocks.start_of(pfn);
        let end = start + self.blocks.pages();
        let span = self.span();
        if start < span.start || end > span.end {
            return None;
        }
        let mut block_use = BlockUse::default();
        let mut at = start;
        while at < end {
            let (head, tag) = self.step(start, at);
            let pages = match tag.state() {
                FrameState::Interior => PageCount(1),
                _ if tag.zone() != self.id => return None,
                _ => PageCount((head + tag.order().pages()).0 - at.0),
            };
            match tag.state() {
                FrameState::BuddyFree => block_use.free += pages.0,
                FrameState::Allocated
                | FrameState::Owned
                | FrameState::Counted
                | FrameState::PerCpu
                | FrameState::InTransit
                    if tag.migrate_type() == MigrateType::Movable =>
                {
                    block_use.movable += pages.0;
                    block_use.has_pins |= tag.is(FrameState::Counted) && self.is_pinned(head);
                }
                FrameState::Allocated | FrameState::Owned | FrameState::Counted => block_use.has_staying = true,
                _ => {}
            }
            self.prefetch_ahead((at, pages), end);
            at = at + pages;
        }
        Some(block_use)
    }

    /// Prefetches the page of the block [`AHEAD`] blocks behind one. Guesses that all blocks up to there have its size.
    fn prefetch_ahead(&self, (at, pages): (Pfn, PageCount), end: Pfn) {
        let ahead = at + PageCount(pages.0 * AHEAD);
        if ahead < end {
            self.page(ahead).prefetch();
        }
    }

    /// Whether a counted block may be pinned.
    fn is_pinned(&self, head: Pfn) -> bool {
        CountedPage::new(self.page(head), self.map.content().no_users()).maybe_pinned()
    }

    /// The block at a frame for a walk from head to head that began at `start`. There alone the block may have its head before.
    fn step(&self, start: Pfn, at: Pfn) -> (Pfn, Tag) {
        let tag = self.settled_tag(at);
        match tag.state() {
            FrameState::Interior if at == start => self.settled_block(at),
            FrameState::Interior => (at, self.uncovered(at, tag)),
            _ => (at, tag),
        }
    }

    /// Gives a pageblock another type and moves its free blocks to that type's lists (`move_freepages_block`).
    ///
    /// Returns the number of moved frames. The caller treats blocks of at least pageblock order.
    pub(crate) fn convert_pageblock(&mut self, pfn: Pfn, to: MigrateType) -> PageCount {
        let start = self.blocks.start_of(pfn);
        self.set_types(start, self.geometry.pageblock_order(), to);
        self.relink_range(PfnRange::new(start, self.blocks.pages()), to)
    }
}

impl<P: Platform> ListRules for LockedZone<'_, P> {
    #[inline(always)]
    fn balances_cma(&self, request: BlockRequest) -> bool {
        request.uses_cma() && self.free_cma().0 > 0
    }

    fn set_types(&mut self, pfn: Pfn, order: Order, to: MigrateType) {
        if !self.zone.keeps_regions() {
            return self.blocks.set_block(pfn, order, to);
        }
        for start in self.blocks.starts_in(PfnRange::new(pfn, order.pages())) {
            let from = self.blocks.lasting_type(start);
            self.blocks.set(start, to);
            if let Some(region) = self.region_of(start) {
                let before = region.tainting();
                region.count_pageblock(from, u32::wrapping_sub);
                region.count_pageblock(to, u32::wrapping_add);
                let after = region.tainting();
                self.zone.regions.count_change(before, after);
                if (before == 0) != (after == 0) {
                    self.changed_region = region.start();
                }
            }
        }
    }

    /// Takes up to `count` blocks for a request and gives each to `take`. Returns their number.
    ///
    /// The result is that of as many [`take_block`](Self::take_block), but blocks of the right type are split where they lie.
    fn take_blocks(&mut self, request: BlockRequest, count: usize, mut take: impl FnMut(&Self, MapPlace)) -> usize {
        let mut taken = 0;
        if !self.balances_cma(request) {
            taken = self.take_many(request.order, request.migrate_type, count, &mut take);
        }
        while taken < count {
            let Some(pfn) = self.take_block(request) else { break };
            take(self, pfn.place(&self.map));
            taken += 1;
        }
        taken
    }

    /// Takes a block for a request, falling back to other types (`__rmqueue`).
    #[inline]
    fn take_block(&mut self, request: BlockRequest) -> Option<Pfn> {
        let BlockRequest { order, migrate_type, fallback, .. } = request;
        for list in self.own_lists(request).into_iter().flatten() {
            if let Some(pfn) = self.take_smallest(order, list) {
                return Some(pfn);
            }
        }
        if matches!(migrate_type, MigrateType::Unmovable | MigrateType::Reclaimable)
            && self.zone.keeps_regions()
            && let Some(pfn) = self.take_from_tainted(order, migrate_type)
        {
            return Some(pfn);
        }
        if fallback == Fallback::AfterGrowth && self.should_grow_first(order) {
            return None;
        }
        if fallback == Fallback::WholePageblocks {
            let (found, _) = self.largest_of_other_types(order, migrate_type)?;
            if found < self.geometry.pageblock_order() {
                return None;
            }
        }
        if migrate_type != MigrateType::Movable && self.zone.keeps_regions() {
            return self.take_from_clean(request).or_else(|| self.take_from_other_types(order, migrate_type));
        }
        self.take_from_other_types(order, migrate_type)
    }

    #[inline(always)]
    fn take_preferred(
        &mut self,
        order: Order,
        list: MigrateType,
        count: usize,
        take: &mut dyn FnMut(&Self, MapPlace),
    ) -> usize {
        let prefers = list == MigrateType::Movable && self.zone.keeps_regions();
        if prefers { self.take_clean(order, count, take) } else { 0 }
    }

    #[inline(always)]
    fn end_of_list(&mut self, block: MapBlock, list: MigrateType, wanted: Place) -> Place {
        if list != MigrateType::Movable || !self.zone.keeps_regions() {
            return wanted;
        }
        if !self.is_clean(self.map.pfn(block.head)) {
            return Place::Tail;
        }
        self.without_clean &= !(1 << block.order.0);
        Place::Head
    }

    #[inline(always)]
    fn changes_when_whole(&self, list: MigrateType) -> bool {
        matches!(list, MigrateType::Unmovable | MigrateType::Reclaimable) && self.zone.keeps_regions()
    }

    #[cold]
    fn type_when_whole(&mut self, block: MapBlock, list: MigrateType) -> MigrateType {
        if block.order < self.geometry.pageblock_order() {
            return list;
        }
        self.set_types(self.map.pfn(block.head), block.order, MigrateType::Movable);
        MigrateType::Movable
    }

    #[inline(always)]
    fn hold_ends(&mut self) {
        if self.zone.keeps_regions() {
            self.reorder_changed_region();
        }
    }
}
