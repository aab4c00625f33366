//! The free lists of a zone, by order and migration type, and the only functions that change them.
//!
//! [`LockedZone::add_block`] and [`LockedZone::remove_block`] keep links, counts, bitmaps, tags and the zone's counters
//! consistent, and tell the transfer mechanisms about each block ([`BlockHooks`]).

use crate::memmap::{Located, MapBlock, MapPlace};
use crate::page::{FrameState, Link, Residence, Tag};
use crate::platform::{Access, LineKind, Platform, Probe, SharedLine};
use crate::sync::{AtomicU32, Ordering};
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::block_list::{BlockList, Place};
use crate::zone::exclusive::{add_exclusive, sub_exclusive};
use crate::zone::state::orders_from;
use crate::zone::view::{HoldProof, ListEvents, ListRules, LockedZone, ZoneView};

/// What transfer mechanisms do about blocks that join and leave free lists. Implemented by [`transfer`](crate::store).
pub(crate) trait BlockHooks {
    /// A block joined an end of a list, next to `neighbour`.
    fn block_added(&mut self, block: MapPlace, tag: Tag, neighbour: Link, end: Place);
    /// A block, still linked behind `prev`, leaves its list.
    fn block_removed(&mut self, block: MapPlace, tag: Tag, prev: Link);
    /// A block that had that tag moved to the list of another type.
    fn block_relinked(&mut self, pfn: Pfn, tag: Tag);
    /// Whether a block with that tag looks free and is on no list.
    fn only_looks_free(&self, pfn: Pfn, tag: Tag) -> bool;
    /// Whether a free block with that tag may be on no list.
    fn may_be_in_transit(&self, tag: Tag) -> bool;
}

impl<'a, P: Platform> ZoneView<'a, P> {
    /// A list that is about to be used.
    #[inline(always)]
    fn list_for(&self, order: Order, migrate_type: MigrateType, access: Access) -> &'a BlockList {
        let list = self.zone.list(order, migrate_type);
        self.platform.probe().touch_line(SharedLine::of(LineKind::FreeLists, list), access);
        list
    }

    /// The link to the first block of a list, read without the lock or under a [`ZoneHold`](crate::zone::view::ZoneHold).
    #[inline(always)]
    pub(crate) fn first_link(&self, order: Order, migrate_type: MigrateType) -> Link {
        self.list_for(order, migrate_type, Access::Read).first_racy()
    }

    /// The bits of a type that say which of its lists have a block.
    #[inline(always)]
    fn bits_for(&self, migrate_type: MigrateType, access: Access) -> &'a AtomicU32 {
        let bits = self.zone.nonempty(migrate_type);
        self.platform.probe().touch_line(SharedLine::of(LineKind::FreeLists, bits), access);
        bits
    }

    /// Takes `count` single pages, all before `next`, off the head of their list under the zone lock. Their pages stay as they
    /// are; the caller keeps what its mechanism knows of them, and the zone's frame counts.
    #[inline(always)]
    pub(crate) fn detach_front_locked(&self, _: HoldProof<'_>, migrate_type: MigrateType, next: Link, count: u64) {
        let list = self.list_for(Order::ZERO, migrate_type, Access::Write);
        self.chain_unlisted(list.first_racy(), count, migrate_type);
        list.detach_front(&self.map, self.platform, next);
        if list.count_removed(count) {
            let bits = self.bits_for(migrate_type, Access::Write);
            bits.store(bits.load(Ordering::Relaxed) & !1, Ordering::Relaxed);
        }
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Moves the zone's free blocks of a range, which begins and ends at block boundaries, to the lists of another type. Returns the
    /// number of moved frames.
    pub(crate) fn relink_range(&mut self, range: PfnRange, to: MigrateType) -> PageCount {
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

    /// Puts a block on the free list of its order and type. The caller owns the block's head.
    #[inline]
    pub(crate) fn add_block(
        &mut self,
        block: impl Located,
        order: Order,
        migrate_type: MigrateType,
        end: Place,
        residence: Residence,
    ) {
        let block = block.place(&self.map);
        let list = self.list_for(order, migrate_type, Access::Write);
        let end = self.end_of_list(MapBlock { head: block, order }, migrate_type, end);
        let tag = Tag::new(FrameState::BuddyFree, order, migrate_type, self.id).with_residence(residence);
        self.page(block).set_tag(tag);
        if residence == Residence::Reported {
            add_exclusive(&self.zone.reported, order.pages().0);
        }
        let neighbour = list.add(&self.map, self.platform, block, end);
        self.block_added(block, tag, neighbour, end);
        if list.count_added(1) {
            let bits = self.bits_for(migrate_type, Access::Write);
            bits.store(bits.load(Ordering::Relaxed) | 1 << order.0, Ordering::Relaxed);
        }
        self.count_free(order.pages(), migrate_type, u64::wrapping_add);
        self.block_listed(block, order, migrate_type);
    }

    /// Takes a block off the free list that its tag names. The caller owns the head afterwards and gives it a new tag. Its order
    /// suits its place ([`Tag::of_block_at`]).
    ///
    /// The head's links are zero again.
    #[inline]
    pub(crate) fn remove_block(&mut self, block: impl Located, tag: Tag) {
        let block = block.place(&self.map);
        if !tag.is(FrameState::BuddyFree) {
            return self.note_corrupt();
        }
        let (order, migrate_type) = (tag.order(), tag.migrate_type());
        let list = self.list_for(order, migrate_type, Access::Write);
        let page = self.page(block);
        let (next, prev) = (page.next(), page.prev());
        self.block_removed(block, tag, prev);
        list.remove(&self.map, self.platform, next, prev);
        page.set_next(Link::NONE);
        page.set_prev(Link::NONE);
        if list.count_removed(1) {
            let bits = self.bits_for(migrate_type, Access::Write);
            bits.store(bits.load(Ordering::Relaxed) & !(1 << order.0), Ordering::Relaxed);
        }
        if tag.residence() == Residence::Reported {
            sub_exclusive(&self.zone.reported, order.pages().0);
        }
        self.count_free(order.pages(), migrate_type, u64::wrapping_sub);
        self.block_unlisted(block, order, migrate_type);
    }

    /// Takes a chain of single pages, up to `tail`, off the head of their list. Their pages stay as they are; the caller keeps
    /// what its mechanism knows of them.
    pub(crate) fn detach_head(&mut self, migrate_type: MigrateType, tail: Pfn, count: u64) {
        self.detach_front_locked(self.proof(), migrate_type, self.page(tail).next(), count);
        self.count_free(PageCount(count), migrate_type, u64::wrapping_sub);
    }

    /// Puts a chain of single pages, linked to each other and tagged as free, at the head of their list.
    pub(crate) fn splice_head(&mut self, migrate_type: MigrateType, (first, tail): (Pfn, Pfn), count: u64) {
        let list = self.list_for(Order::ZERO, migrate_type, Access::Write);
        list.splice_front(&self.map, self.platform, first, tail);
        let bits = self.bits_for(migrate_type, Access::Write);
        bits.store(bits.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        list.count_added(count);
        self.chain_listed(self.map.link(first), count, migrate_type);
        self.count_free(PageCount(count), migrate_type, u64::wrapping_add);
    }

    /// Moves a free block to the list of another type (the kernel's `move_to_free_list`).
    pub(crate) fn relink_block(&mut self, pfn: Pfn, tag: Tag, to: MigrateType) {
        let block = pfn.place(&self.map);
        self.remove_block(block, tag);
        self.add_block(block, tag.order(), to, Place::Tail, tag.residence());
        self.block_relinked(pfn, tag);
    }

    /// As [`first_block_at`](Self::first_block_at), with the number of its frame.
    pub(crate) fn first_block(&self, order: Order, migrate_type: MigrateType) -> Option<(Pfn, Tag)> {
        self.first_block_at(order, migrate_type).map(|(block, tag)| (self.map.pfn(block), tag))
    }

    /// The block that a list would give next, and its tag. `None` also if the list is corrupt and begins with something else.
    #[inline]
    pub(crate) fn first_block_at(&self, order: Order, migrate_type: MigrateType) -> Option<(MapPlace, Tag)> {
        let link = self.first_link(order, migrate_type);
        let first = self.map.next(link).map(|block| (block, self.page(block).tag()));
        let is_sound = |(block, tag): &(MapPlace, Tag)| {
            tag.without_tentative().is_free_buddy(order, self.id)
                && tag.migrate_type() == migrate_type
                && tag.of_block_at(block.aligned_alike(), self.geometry.max_order()) == *tag
        };
        let found = first.filter(is_sound);
        if found.is_none() && link != Link::NONE {
            self.note_corrupt();
        }
        found
    }

    /// The block that a list would give last.
    pub(crate) fn last_block(&self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        self.map.linked(self.list_for(order, migrate_type, Access::Read).last_racy())
    }

    /// The orders, from `order` up, whose list of that type has a block; bit 0 stands for `order`.
    #[inline]
    pub(crate) fn orders_from(&self, order: Order, migrate_type: MigrateType) -> u32 {
        orders_from(self.bits_for(migrate_type, Access::Read).load(Ordering::Relaxed), order)
    }

    /// The smallest order, from `order` up, whose list of that type has a block.
    #[inline(always)]
    pub(crate) fn smallest_order(&self, order: Order, migrate_type: MigrateType) -> Option<Order> {
        smallest(self.orders_from(order, migrate_type), order)
    }

    /// Whether a block with that tag, found by its number, is on a free list of this zone. Callers that do not come from a list
    /// use this test.
    #[inline]
    pub(crate) fn is_listed(&self, pfn: Pfn, tag: Tag) -> bool {
        tag.is(FrameState::BuddyFree) && tag.zone() == self.id && !self.only_looks_free(pfn, tag)
    }

    /// The tag of the block at `pfn` for a search for free blocks: one that only looks free is in transit.
    #[inline]
    pub(crate) fn settled_tag(&self, pfn: Pfn) -> Tag {
        let tag = self.tag_at(pfn);
        if self.may_be_in_transit(tag) && tag.is(FrameState::BuddyFree) && self.only_looks_free(pfn, tag) {
            return Tag::new(FrameState::InTransit, Order::ZERO, tag.migrate_type(), tag.zone());
        }
        tag
    }
}

/// The smallest order of a set of orders whose bit 0 stands for `from`.
#[inline(always)]
pub(crate) fn smallest(orders: u32, from: Order) -> Option<Order> {
    (orders != 0).then(|| Order(from.0 + orders.trailing_zeros() as u8))
}
