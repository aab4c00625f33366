//! Serving a request from blocks of another type, and turning whole pageblocks over when enough of them changes hands.

use super::{LockedZone, add_exclusive};
use crate::page::FrameState;
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};

/// Whether CMA pageblocks may serve the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CmaUse {
    Allowed,
    Refused,
}

/// Whether blocks of other types may serve the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fallback {
    /// Yes.
    Allowed,
    /// Only when no memory of the zone is waiting to be initialised: that would serve it better.
    AfterGrowth,
    /// Only whole pageblocks, so that none comes to hold frames of two types (`ALLOC_NOFRAGMENT`).
    WholePageblocks,
}

/// What is wanted of a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest {
    pub(crate) order: Order,
    pub(crate) migrate_type: MigrateType,
    pub(crate) cma: CmaUse,
    pub(crate) fallback: Fallback,
}

/// What a pageblock's frames are at the moment.
#[derive(Default)]
pub(crate) struct BlockUse {
    free: u64,
    movable: u64,
}

/// The other types to look in, best first (the kernel's `fallbacks`).
pub(super) fn fallbacks(migrate_type: MigrateType) -> [MigrateType; 2] {
    match migrate_type {
        MigrateType::Movable => [MigrateType::Reclaimable, MigrateType::Unmovable],
        MigrateType::Reclaimable => [MigrateType::Unmovable, MigrateType::Movable],
        _ => [MigrateType::Reclaimable, MigrateType::Movable],
    }
}

/// Whether a request of that type may turn over the pageblock of a block of that order (`can_steal_fallback`).
pub(super) fn may_convert(found: Order, migrate_type: MigrateType, pageblock_order: Order) -> bool {
    found.0 >= pageblock_order.0 / 2 || migrate_type != MigrateType::Movable
}

impl<P: Platform> LockedZone<'_, P> {
    /// Takes a block for a request of that type, falling back to others (`__rmqueue`).
    ///
    /// Where CMA may be used and holds more than half of the free memory, it is used first, so that it does not
    /// end up as the only free memory.
    #[inline]
    pub(crate) fn take_block(&mut self, request: BlockRequest) -> Option<Pfn> {
        let BlockRequest { order, migrate_type, cma, fallback } = request;
        let cma = migrate_type == MigrateType::Movable && cma == CmaUse::Allowed;
        if cma
            && self.free_cma().0 > self.free_pages().0 / 2
            && let Some(pfn) = self.take_smallest(order, MigrateType::Cma)
        {
            return Some(pfn);
        }
        if let Some(pfn) = self.take_smallest(order, migrate_type) {
            return Some(pfn);
        }
        if cma && let Some(pfn) = self.take_smallest(order, MigrateType::Cma) {
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
        self.take_from_other_types(order, migrate_type)
    }

    /// Takes up to `count` blocks for requests of that type and gives each to `take`; how many there were.
    ///
    /// As many [`take_block`](Self::take_block), but blocks of the right type are cut up where they lie.
    pub(crate) fn take_blocks(
        &mut self,
        request: BlockRequest,
        count: usize,
        mut take: impl FnMut(&Self, Pfn),
    ) -> usize {
        let BlockRequest { order, migrate_type, cma, .. } = request;
        let mut taken = 0;
        // CMA is balanced against ordinary memory block by block.
        if migrate_type != MigrateType::Movable || cma == CmaUse::Refused || self.free_cma().0 == 0 {
            taken = self.take_many(order, migrate_type, count, &mut take);
        }
        while taken < count {
            let Some(pfn) = self.take_block(request) else { break };
            take(self, pfn);
            taken += 1;
        }
        taken
    }

    /// Takes the largest block of another type, or the smallest where a movable request would only nibble
    /// (`__rmqueue_fallback`).
    #[cold]
    fn take_from_other_types(&mut self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let (found, other) = self.largest_of_other_types(order, migrate_type)?;
        let nibble = migrate_type == MigrateType::Movable
            && found > order
            && !may_convert(found, migrate_type, self.geometry.pageblock_order());
        let (found, other) = if nibble { self.smallest_of_other_types(order, migrate_type)? } else { (found, other) };
        let pfn = self.first_block(found, other)?;
        add_exclusive(&self.zone.events.fallbacks, 1);
        add_exclusive(&self.zone.events.extfrag.fallbacks[migrate_type.index()][other.index()], 1);
        Some(self.steal(pfn, found, order, migrate_type))
    }

    fn largest_of_other_types(&self, order: Order, migrate_type: MigrateType) -> Option<(Order, MigrateType)> {
        let bits = fallbacks(migrate_type).map(|other| (other, self.orders_from(order, other)));
        let highest = bits.iter().map(|(_, orders)| orders.checked_ilog2()).max()??;
        let (other, _) = bits.iter().find(|(_, orders)| orders >> highest & 1 == 1)?;
        Some((Order(order.0 + highest as u8), *other))
    }

    fn smallest_of_other_types(&self, order: Order, migrate_type: MigrateType) -> Option<(Order, MigrateType)> {
        let bits = fallbacks(migrate_type).map(|other| (other, self.orders_from(order, other)));
        let lowest = bits.iter().filter(|(_, orders)| *orders != 0).map(|(_, orders)| orders.trailing_zeros()).min()?;
        let (other, _) = bits.iter().find(|(_, orders)| orders >> lowest & 1 == 1)?;
        Some((Order(order.0 + lowest as u8), *other))
    }

    /// Takes part of a free block of another type, converting its pageblock where that is worth it
    /// (`steal_suitable_fallback`).
    fn steal(&mut self, pfn: Pfn, found: Order, order: Order, migrate_type: MigrateType) -> Pfn {
        let tag = self.page(pfn).tag();
        let old_type = tag.migrate_type();
        if found >= self.geometry.pageblock_order() {
            self.remove_block(pfn, tag);
            self.blocks.set_block(pfn, found, migrate_type);
            self.count_conversions(migrate_type, old_type, found.pages().0 / self.blocks.pages().0);
            self.put_back_upper_halves(pfn, (found, order), migrate_type, tag.residence());
            return pfn;
        }
        self.boost_watermarks();
        if may_convert(found, migrate_type, self.geometry.pageblock_order())
            && self.worth_converting(pfn, old_type, migrate_type)
        {
            self.convert_pageblock(pfn, migrate_type);
            self.count_conversions(migrate_type, old_type, 1);
            if let Some(pfn) = self.take_smallest(order, migrate_type) {
                return pfn;
            }
        }
        self.remove_block(pfn, tag);
        self.put_back_upper_halves(pfn, (found, order), old_type, tag.residence());
        pfn
    }

    fn count_conversions(&self, asked: MigrateType, taken_from: MigrateType, count: u64) {
        add_exclusive(&self.zone.events.conversions, count);
        add_exclusive(&self.zone.events.extfrag.conversions[asked.index()][taken_from.index()], count);
    }

    /// Whether at least half of the pageblock is free or already of the kind that is asked for.
    fn worth_converting(&self, pfn: Pfn, old_type: MigrateType, new_type: MigrateType) -> bool {
        let Some(block_use) = self.use_of_pageblock(pfn) else { return false };
        let pages = self.blocks.pages().0;
        let alike = match (new_type, old_type) {
            (MigrateType::Movable, _) => block_use.movable,
            // What is in use in a movable block and not movable has strayed there: count it as ours.
            (_, MigrateType::Movable) => pages - block_use.free - block_use.movable,
            _ => 0,
        };
        block_use.free + alike >= pages / 2
    }

    /// Counts the free and the movable frames of a pageblock; `None` where other zones may share it: their blocks
    /// are not ours to move to other lists, and the type of the pageblock is theirs, too.
    pub(crate) fn use_of_pageblock(&self, pfn: Pfn) -> Option<BlockUse> {
        let start = self.blocks.start_of(pfn);
        let end = start + self.blocks.pages();
        let span = self.zone.span();
        if start < span.start || end > span.end {
            return None;
        }
        let mut block_use = BlockUse::default();
        let mut at = start;
        while at < end {
            let tag = self.settled_tag(at);
            let pages = match tag.state() {
                FrameState::Interior => PageCount(1),
                _ if tag.zone() != self.id => return None,
                _ => tag.order().pages(),
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
                }
                _ => {}
            }
            at = at + pages;
        }
        Some(block_use)
    }

    /// Gives a pageblock another type and moves its free blocks to that type's lists (`move_freepages_block`).
    ///
    /// Returns how many frames moved. Blocks of at least pageblock order are the caller's to treat.
    pub(crate) fn convert_pageblock(&mut self, pfn: Pfn, to: MigrateType) -> PageCount {
        let start = self.blocks.start_of(pfn);
        let moved = self.relink_range(PfnRange::new(start, self.blocks.pages()), to);
        self.blocks.set(start, to);
        moved
    }

    /// Moves the zone's free blocks of a range, which begins and ends where blocks do, to the lists of another type; how
    /// many frames moved.
    pub(super) fn relink_range(&mut self, range: PfnRange, to: MigrateType) -> PageCount {
        let mut moved = PageCount(0);
        let mut at = range.start;
        while at < range.end {
            let tag = self.settled_tag(at);
            let pages = match tag.state() {
                FrameState::Interior => PageCount(1),
                _ => tag.order().pages(),
            };
            if tag.is(FrameState::BuddyFree) && tag.zone() == self.id {
                self.relink_block(at, tag, to);
                moved += pages;
            }
            at = at + pages;
        }
        moved
    }
}
