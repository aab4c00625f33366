//! Free lists with merging buddies, linked through the page structures of free blocks, as in the kernel.
//!
//! | module | holds |
//! |---|---|
//! | this one | the buddy algorithm: splitting blocks on allocation, merging them with their buddies on free |
//! | [`free_area`] | the lists |
//! | [`pagewise`] | how batches move between these lists and the per-CPU lists |
//! | [`range`], [`isolate`], [`reporting`], [`compacting`], [`growth`] | ranges, isolated pageblocks, reported blocks, compaction, memory that is added or removed |

use crate::memmap::{Located, MapBlock, MapPlace};
use crate::page::{FrameState, Residence, Tag};
use crate::platform::{Activity, Platform, Probe};
use crate::store::buddy::free_area::{BlockHooks, smallest};
use crate::units::{Block, MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::block_list::Place;
use crate::zone::view::{ListRules, LockedZone};

pub(crate) mod compacting;
pub(crate) mod free_area;
pub(crate) mod growth;
pub(crate) mod isolate;
pub(crate) mod pagewise;
pub(crate) mod range;
pub(crate) mod reporting;

pub(crate) use compacting::FreeShape;
pub(crate) use range::{RangeBlocked, RangeLists};
pub(crate) use reporting::Taken;

impl<P: Platform> LockedZone<'_, P> {
    /// Takes the smallest block of at least `order` off one type's lists and splits it. The lower part is taken, so frames come
    /// out in ascending order. Its head has a stale tag: the caller gives it a new one before it drops the lock.
    #[inline]
    pub(crate) fn take_smallest(&mut self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let mut taken = None;
        self.take_many(order, migrate_type, 1, |_, block| taken = Some(block));
        taken.map(|block: MapPlace| self.map.pfn(block))
    }

    /// Takes up to `count` blocks of `order` off one type's lists and gives each to `take`. Returns their number.
    ///
    /// The result is that of taking one block after the other: smallest blocks first, each from its lower end, the rest back on the
    /// lists (`__rmqueue_smallest`, `expand`). But a block is taken off its list once and split where it lies, so pieces that leave
    /// together are never on a list in between. A piece's head has a stale tag: `take` gives it a new one.
    pub(crate) fn take_many(
        &mut self,
        order: Order,
        migrate_type: MigrateType,
        count: usize,
        mut take: impl FnMut(&Self, MapPlace),
    ) -> usize {
        self.platform.probe().begin_activity(Activity::Split);
        let mut take = |zone: &Self, block| {
            if zone.platform.probe().sees_pages() && order > Order::ZERO {
                zone.platform.probe().block_taken(PfnRange::new(zone.map.pfn(block), order.pages()));
            }
            take(zone, block);
        };
        let mut taken = self.take_preferred(order, migrate_type, count, &mut take);
        while taken < count {
            let Some(found) = smallest(self.orders_from(order, migrate_type), order) else { break };
            let Some(pieces) = self.take_first(order, (found, migrate_type), count - taken, &mut take) else { break };
            taken += pieces;
        }
        self.platform.probe().end_activity(Activity::Split, PageCount(taken as u64));
        taken
    }

    /// Takes up to `count` blocks of `order` from the first block of a list that has one, and gives each to `take`. Returns their
    /// number; `None` if the list is corrupt.
    #[inline(always)]
    pub(crate) fn take_first(
        &mut self,
        order: Order,
        (found, migrate_type): (Order, MigrateType),
        count: usize,
        mut take: impl FnMut(&Self, MapPlace),
    ) -> Option<usize> {
        let Some((block, tag)) = self.first_block_at(found, migrate_type) else {
            // The bits say that the list has a block.
            self.note_corrupt();
            return None;
        };
        self.remove_block(block, tag);
        let pieces = (1 << (found.0 - order.0)).min(count);
        for piece in 0..pieces as u32 {
            take(self, block.part(found, piece << order.0));
        }
        let whole = MapBlock { head: block, order: found };
        self.put_back_from(whole, (pieces as u32) << order.0, migrate_type, tag.residence());
        Some(pieces)
    }

    /// Puts a block, all but its first `taken` frames, back on the lists.
    #[inline(always)]
    pub(crate) fn put_back_from(
        &mut self,
        block: MapBlock,
        taken: u32,
        migrate_type: MigrateType,
        residence: Residence,
    ) {
        for MapBlock { head, order } in block.parts(taken..block.order.pages().0 as u32) {
            self.add_block(head, order, migrate_type, Place::Head, residence);
        }
    }

    /// Puts a range that lies in one block, and is not all of it, back on the lists. None of its pieces can merge.
    #[inline]
    pub(crate) fn put_back_pieces(&mut self, range: PfnRange, migrate_type: MigrateType, residence: Residence) {
        for Block { pfn, order } in range.blocks(self.geometry.max_order()) {
            self.add_block(pfn, order, migrate_type, Place::Head, residence);
        }
    }

    /// Frees a block into the lists of `migrate_type`, merging as far as buddies are free (`__free_one_page`).
    ///
    /// The caller owns the block: its head has any tag but buddy-free and zero links, the rest is zero. From pageblock order on,
    /// blocks of different types merge only if both are of the ordinary types.
    #[inline(always)]
    pub(crate) fn free_block(&mut self, block: impl Located, order: Order, migrate_type: MigrateType) {
        self.free_block_as(block, order, migrate_type, Residence::Resident);
    }

    /// As [`free_block`](Self::free_block). The merged block is reported only if all of it is.
    #[inline(always)]
    pub(crate) fn free_block_as(
        &mut self,
        block: impl Located,
        order: Order,
        migrate_type: MigrateType,
        residence: Residence,
    ) {
        self.free_block_at(MapBlock { head: block.place(&self.map), order }, migrate_type, residence);
    }

    #[inline]
    fn free_block_at(&mut self, block: MapBlock, migrate_type: MigrateType, residence: Residence) {
        self.platform.probe().begin_activity(Activity::Merge);
        self.merge_and_list(block, migrate_type, residence);
        self.platform.probe().end_activity(Activity::Merge, PageCount(1));
    }

    #[inline(always)]
    fn merge_and_list(&mut self, mut block: MapBlock, mut migrate_type: MigrateType, mut residence: Residence) {
        if migrate_type != MigrateType::Movable && self.changes_when_whole(migrate_type) {
            let pageblock_order = self.geometry.pageblock_order();
            block = self.merge(block, pageblock_order, migrate_type, &mut residence);
            migrate_type = self.type_when_whole(block, migrate_type);
        }
        block = self.merge(block, self.geometry.max_order(), migrate_type, &mut residence);
        // A reported block has no memory behind it: it is allocated last, and out of the way of the next search for blocks to
        // report.
        let last = residence == Residence::Reported || self.will_likely_merge(block);
        let end = if last { Place::Tail } else { Place::Head };
        self.add_block(block.head, block.order, migrate_type, end, residence);
    }

    /// Merges a block with its buddies below `limit`, as far as both may merge. `residence` becomes that of the merged block.
    #[inline(always)]
    fn merge(
        &mut self,
        mut block: MapBlock,
        limit: Order,
        migrate_type: MigrateType,
        residence: &mut Residence,
    ) -> MapBlock {
        let view = **self;
        while block.order < limit {
            let buddy = view.map.buddy(block.head, block.order);
            if !self.take_buddy(buddy, block.order, migrate_type, residence) {
                break;
            }
            view.page(block.head.max(buddy)).set_tag(Tag::INTERIOR);
            block.head = block.head.min(buddy);
            block.order.0 += 1;
        }
        block
    }

    /// Takes the buddy of a block off its list if both may merge; whether they may. `residence` becomes that of both.
    #[inline(always)]
    fn take_buddy(
        &mut self,
        buddy: MapPlace,
        order: Order,
        migrate_type: MigrateType,
        residence: &mut Residence,
    ) -> bool {
        let tag = self.page(buddy).tag();
        if !(tag.is_free_buddy(order, self.id)
            || (order == Order::ZERO && self.may_be_in_transit(tag) && self.is_listed(self.map.pfn(buddy), tag)))
        {
            return false;
        }
        if order >= self.geometry.pageblock_order() && !self.unify_types(buddy, order, migrate_type) {
            return false;
        }
        self.remove_block(buddy, tag);
        *residence = residence.and(tag.residence());
        true
    }

    /// Whether a buddy of at least pageblock order may merge with a block of `migrate_type`; if so it takes on that type.
    fn unify_types(&mut self, buddy: MapPlace, order: Order, migrate_type: MigrateType) -> bool {
        let other = self.blocks.get_at(buddy);
        if other == migrate_type {
            return true;
        }
        let mergeable = |migrate_type: MigrateType| migrate_type.index() < MigrateType::PER_CPU;
        if !mergeable(migrate_type) || !mergeable(other) {
            return false;
        }
        self.set_types(self.map.pfn(buddy), order, migrate_type);
        true
    }

    /// Whether the buddy of the next order is free, so that this block merges twice as soon as its own buddy is freed
    /// (`buddy_merge_likely`).
    fn will_likely_merge(&self, MapBlock { head, order }: MapBlock) -> bool {
        if order.0 + 1 >= self.geometry.max_order().0 {
            return false;
        }
        let higher = Order(order.0 + 1);
        let buddy = self.map.buddy(self.map.head(head, higher), higher);
        self.page(buddy).tag().is_free_buddy(higher, self.id)
    }

    /// Tags a block that was taken off the lists.
    #[inline(always)]
    pub(crate) fn tag_block(&self, block: impl Located, state: FrameState, order: Order, migrate_type: MigrateType) {
        self.page(block).set_tag(Tag::new(state, order, migrate_type, self.id));
    }
}
