//! The buddy algorithm: splitting blocks on allocation, merging them with their buddies on free.

use super::LockedZone;
use super::free_area::Place;
use crate::page::{FrameState, Residence, Tag};
use crate::platform::{Activity, Platform};
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};

impl<P: Platform> LockedZone<'_, P> {
    /// Takes the smallest block of at least `order` off one type's lists and splits it (`__rmqueue_smallest`).
    ///
    /// The block's head keeps a stale tag: the caller owns it and tags it anew before it drops the lock.
    /// The lower part is taken, upper halves go back to the lists, so frames come out in ascending order.
    #[inline]
    pub(crate) fn take_smallest(&mut self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let orders = self.orders_from(order, migrate_type);
        if orders == 0 {
            return None;
        }
        self.platform.begin_activity(Activity::Split);
        let taken = self.take_from(orders, order, migrate_type);
        self.platform.end_activity(Activity::Split, order.pages());
        taken
    }

    /// As [`take_smallest`](Self::take_smallest), where there are blocks of those orders.
    #[inline(always)]
    fn take_from(&mut self, orders: u32, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let found = Order(order.0 + orders.trailing_zeros() as u8);
        let pfn = self.first_block(found, migrate_type)?;
        let tag = self.page(pfn).tag();
        self.remove_block(pfn, tag);
        self.put_back_upper_halves(pfn, (found, order), migrate_type, tag.residence());
        Some(pfn)
    }

    /// Takes up to `count` blocks of `order` off one type's lists and gives each to `take`; how many there were.
    ///
    /// The outcome is that of as many [`take_smallest`](Self::take_smallest), one after the other: smallest blocks
    /// first, each from its lower end, what is left back on the lists. But a block is taken off its list once and
    /// cut up where it lies, so that pieces that are handed out at once never stand on a list in between.
    pub(crate) fn take_many(
        &mut self,
        order: Order,
        migrate_type: MigrateType,
        count: usize,
        take: impl FnMut(&Self, Pfn),
    ) -> usize {
        self.platform.begin_activity(Activity::Split);
        let taken = self.take_many_in_span(order, migrate_type, count, take);
        self.platform.end_activity(Activity::Split, PageCount((taken as u64) << order.0));
        taken
    }

    #[inline(always)]
    fn take_many_in_span(
        &mut self,
        order: Order,
        migrate_type: MigrateType,
        count: usize,
        mut take: impl FnMut(&Self, Pfn),
    ) -> usize {
        let mut taken = 0;
        while taken < count {
            let orders = self.orders_from(order, migrate_type);
            if orders == 0 {
                break;
            }
            let found = Order(order.0 + orders.trailing_zeros() as u8);
            let Some(block) = self.first_block(found, migrate_type) else { break };
            let tag = self.page(block).tag();
            self.remove_block(block, tag);
            let pieces = (1 << (found.0 - order.0)).min(count - taken);
            for piece in 0..pieces as u64 {
                take(self, block + PageCount(piece << order.0));
            }
            taken += pieces;
            let rest = PfnRange { start: block + PageCount((pieces as u64) << order.0), end: block + found.pages() };
            self.put_back_pieces(rest, migrate_type, tag.residence());
        }
        taken
    }

    /// Splits a block of order `from`, off the lists, down to `to`; the upper halves are freed (`expand`).
    #[inline]
    pub(crate) fn put_back_upper_halves(
        &mut self,
        pfn: Pfn,
        (from, to): (Order, Order),
        migrate_type: MigrateType,
        residence: Residence,
    ) {
        let mut order = from;
        while order > to {
            order.0 -= 1;
            self.add_block(pfn + order.pages(), order, migrate_type, Place::Head, residence);
        }
    }

    /// Frees a block into lists of `migrate_type`, merging as far as buddies are free (`__free_one_page`).
    ///
    /// The caller owns the block: its head has any tag but buddy-free and zero links, the rest is zero. From
    /// pageblock order on, blocks of different types merge only if both are of the ordinary types.
    #[inline]
    pub(crate) fn free_block(&mut self, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        self.free_block_as(pfn, order, migrate_type, Residence::Resident);
    }

    /// As [`free_block`](Self::free_block). What it merges to is reported only if all of it is.
    #[inline]
    pub(crate) fn free_block_as(&mut self, pfn: Pfn, order: Order, migrate_type: MigrateType, residence: Residence) {
        self.platform.begin_activity(Activity::Merge);
        self.merge_and_list(pfn, order, migrate_type, residence);
        self.platform.end_activity(Activity::Merge, order.pages());
    }

    #[inline(always)]
    fn merge_and_list(&mut self, pfn: Pfn, order: Order, migrate_type: MigrateType, residence: Residence) {
        let max_order = self.geometry.max_order();
        let (mut pfn, mut order, mut residence) = (pfn, order, residence);
        while order < max_order {
            let buddy = pfn.buddy(order);
            let tag = self.page(buddy).tag();
            let single = order == Order::ZERO;
            if !(tag.is_free_buddy(order, self.id) || (single && self.is_clustered_buddy(buddy, tag))) {
                break;
            }
            if order >= self.geometry.pageblock_order() && !self.unify_types(buddy, order, migrate_type) {
                break;
            }
            self.remove_block(buddy, tag);
            residence = residence.and(tag.residence());
            let upper = pfn.max(buddy);
            self.page(upper).set_tag(Tag::INTERIOR);
            pfn = pfn.min(buddy);
            order.0 += 1;
        }
        // What has no memory behind it any more is allocated last, and is not in the way of the next look for what has.
        let last = residence == Residence::Reported || self.will_likely_merge(pfn, order);
        let place = if last { Place::Tail } else { Place::Head };
        self.add_block(pfn, order, migrate_type, place, residence);
    }

    /// Whether a single page in a cluster is free, as a buddy must be.
    #[inline(always)]
    pub(super) fn is_clustered_buddy(&self, buddy: Pfn, tag: Tag) -> bool {
        tag.is_clustered() && self.is_listed(buddy, tag)
    }

    /// Whether a buddy of at least pageblock order may merge with a block of `migrate_type`; if so it takes on that type.
    fn unify_types(&mut self, buddy: Pfn, order: Order, migrate_type: MigrateType) -> bool {
        let other = self.blocks.get(buddy);
        if other == migrate_type {
            return true;
        }
        let mergeable = |migrate_type: MigrateType| migrate_type.index() < MigrateType::PER_CPU;
        if !mergeable(migrate_type) || !mergeable(other) {
            return false;
        }
        self.blocks.set_block(buddy, order, migrate_type);
        true
    }

    /// Whether the buddy of the next order is free, so that this block merges twice as soon as its own buddy
    /// is freed (`buddy_merge_likely`).
    fn will_likely_merge(&self, pfn: Pfn, order: Order) -> bool {
        if order.0 + 1 >= self.geometry.max_order().0 {
            return false;
        }
        let higher = Order(order.0 + 1);
        let buddy = pfn.align_down(higher).buddy(higher);
        self.page(buddy).tag().is_free_buddy(higher, self.id)
    }

    /// Tags a block that was taken off the lists.
    #[inline(always)]
    pub(crate) fn tag_block(&self, pfn: Pfn, state: FrameState, order: Order, migrate_type: MigrateType) {
        self.page(pfn).set_tag(Tag::new(state, order, migrate_type, self.id));
    }
}
