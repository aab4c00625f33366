//! The free lists of a zone, by order and migration type, and the only functions that change them.
//!
//! Lists are doubly linked by frame numbers kept in the pages of the blocks' heads. [`LockedZone::add_block`]
//! and [`LockedZone::remove_block`] keep links, counts, bitmaps, tags and the zone's counters in step; whatever
//! a later policy wants to know about blocks that come and go, it learns there.

use super::{LockedZone, ZoneView, add_exclusive, sub_exclusive};
use crate::locks::LockHold;
use crate::page::{FrameState, Link, Residence, Tag};
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{MigrateType, Order, PageCount, Pfn};

/// One free list. `first` and `last` are 0 on an empty list.
#[derive(Default)]
pub(crate) struct FreeList {
    first: AtomicU32,
    last: AtomicU32,
    blocks: AtomicU64,
}

all_atomic!(FreeList { first, last, blocks });

impl FreeList {
    pub(crate) fn first_racy(&self) -> Link {
        Link(self.first.load(Ordering::Relaxed))
    }

    pub(crate) fn blocks_racy(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }
}

/// The free lists of one order.
#[derive(Default)]
pub(crate) struct FreeArea {
    lists: [FreeList; MigrateType::COUNT],
}

all_atomic!(FreeArea { lists });

impl FreeArea {
    #[inline(always)]
    pub(crate) fn list(&self, migrate_type: MigrateType) -> &FreeList {
        &self.lists[migrate_type.index()]
    }
}

/// Which end of a free list a block joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Allocated next.
    Head,
    /// Allocated last: it may soon merge into something larger.
    Tail,
}

impl<'a, P: Platform> ZoneView<'a, P> {
    /// A list that is about to be used.
    #[inline(always)]
    fn list_for(&self, order: Order, migrate_type: MigrateType, access: Access) -> &'a FreeList {
        let list = self.zone.areas[order.index()].list(migrate_type);
        self.platform.touch_line(SharedLine::of(LineKind::FreeLists, list), access);
        list
    }

    /// Says that a list is used by who does not go through the functions here.
    #[inline(always)]
    pub(super) fn touch_free_list(&self, order: Order, migrate_type: MigrateType, access: Access) {
        self.list_for(order, migrate_type, access);
    }

    /// The bits of a type that say which of its lists have a block.
    #[inline(always)]
    fn bits_for(&self, migrate_type: MigrateType, access: Access) -> &'a AtomicU32 {
        let bits = &self.zone.nonempty[migrate_type.index()];
        self.platform.touch_line(SharedLine::of(LineKind::FreeLists, bits), access);
        bits
    }

    /// Takes so many single pages off the head of their list, all that stand before `next`. Their pages stay as they are; the
    /// clusters, and the zone's counts of frames, are the caller's, who holds the zone lock.
    #[inline(always)]
    pub(super) fn cut_list_locked(&self, _: &LockHold, migrate_type: MigrateType, next: Link, count: u64) {
        let list = self.list_for(Order::ZERO, migrate_type, Access::Write);
        list.first.store(next.0, Ordering::Relaxed);
        match self.map.next(next) {
            Some(next) => self.page(next).set_prev(Link::NONE),
            None => list.last.store(0, Ordering::Relaxed),
        }
        sub_exclusive(&list.blocks, count);
        if list.blocks.load(Ordering::Relaxed) == 0 {
            let bits = self.bits_for(migrate_type, Access::Write);
            bits.store(bits.load(Ordering::Relaxed) & !1, Ordering::Relaxed);
        }
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Puts a block on the free list of its order and type. The caller owns the block's head.
    #[inline]
    pub(crate) fn add_block(
        &mut self,
        pfn: Pfn,
        order: Order,
        migrate_type: MigrateType,
        place: Place,
        residence: Residence,
    ) {
        let list = self.list_for(order, migrate_type, Access::Write);
        let link = self.map.link(pfn);
        let page = self.page(pfn);
        let tag = Tag::new(FrameState::BuddyFree, order, migrate_type, self.id).with_residence(residence);
        page.set_tag(tag);
        if residence == Residence::Reported {
            add_exclusive(&self.zone.reported, order.pages().0);
        }
        let neighbour = match place {
            Place::Head => {
                let old = Link(list.first.load(Ordering::Relaxed));
                page.set_next(old);
                page.set_prev(Link::NONE);
                list.first.store(link.0, Ordering::Relaxed);
                match self.map.next(old) {
                    Some(next) => self.page(next).set_prev(link),
                    None => list.last.store(link.0, Ordering::Relaxed),
                }
                old
            }
            Place::Tail => {
                let old = Link(list.last.load(Ordering::Relaxed));
                page.set_prev(old);
                page.set_next(Link::NONE);
                list.last.store(link.0, Ordering::Relaxed);
                match self.map.next(old) {
                    Some(prev) => self.page(prev).set_next(link),
                    None => list.first.store(link.0, Ordering::Relaxed),
                }
                old
            }
        };
        if order == Order::ZERO && self.zone.clusters().is_joining() && residence == Residence::Resident {
            self.join_cluster(pfn, tag, self.map.linked(neighbour), place);
        }
        if list.blocks.load(Ordering::Relaxed) == 0 {
            let bits = self.bits_for(migrate_type, Access::Write);
            bits.store(bits.load(Ordering::Relaxed) | 1 << order.0, Ordering::Relaxed);
        }
        add_exclusive(&list.blocks, 1);
        self.count_free(order.pages(), migrate_type, u64::wrapping_add);
    }

    /// Takes a block off the free list that its tag names; the caller owns the head afterwards and gives it a new tag.
    ///
    /// The head's links are zero again.
    #[inline]
    pub(crate) fn remove_block(&mut self, pfn: Pfn, tag: Tag) {
        debug_assert!(tag.is(FrameState::BuddyFree), "{pfn} is {tag:?}");
        let (order, migrate_type) = (tag.order(), tag.migrate_type());
        let list = self.list_for(order, migrate_type, Access::Write);
        let page = self.page(pfn);
        let (next, prev) = (page.next(), page.prev());
        if tag.has_listing() {
            self.leave_cluster(pfn, tag, prev);
        }
        match self.map.next(prev) {
            Some(prev) => self.page(prev).set_next(next),
            None => list.first.store(next.0, Ordering::Relaxed),
        }
        match self.map.next(next) {
            Some(next) => self.page(next).set_prev(prev),
            None => list.last.store(prev.0, Ordering::Relaxed),
        }
        page.set_next(Link::NONE);
        page.set_prev(Link::NONE);
        sub_exclusive(&list.blocks, 1);
        if list.blocks.load(Ordering::Relaxed) == 0 {
            let bits = self.bits_for(migrate_type, Access::Write);
            bits.store(bits.load(Ordering::Relaxed) & !(1 << order.0), Ordering::Relaxed);
        }
        if tag.residence() == Residence::Reported {
            sub_exclusive(&self.zone.reported, order.pages().0);
        }
        self.count_free(order.pages(), migrate_type, u64::wrapping_sub);
    }

    /// Takes a chain of single pages off the head of their list, from its first page on to `tail`; the first one. Their
    /// pages stay as they are, but for the links of those behind the chain. Clusters and their counts are the caller's.
    pub(super) fn cut_head(&mut self, migrate_type: MigrateType, tail: Pfn, count: u64) -> Option<Pfn> {
        let list = self.list_for(Order::ZERO, migrate_type, Access::Write);
        let first = self.map.linked(Link(list.first.load(Ordering::Relaxed)))?;
        self.cut_list_locked(&self.hold, migrate_type, self.page(tail).next(), count);
        self.count_free(PageCount(count), migrate_type, u64::wrapping_sub);
        Some(first)
    }

    /// Puts a chain of single pages, linked to each other and tagged as free, at the head of their list.
    pub(super) fn join_head(&mut self, migrate_type: MigrateType, (first, tail): (Pfn, Pfn), count: u64) {
        let list = self.list_for(Order::ZERO, migrate_type, Access::Write);
        let old = Link(list.first.load(Ordering::Relaxed));
        self.page(tail).set_next(old);
        list.first.store(self.map.link(first).0, Ordering::Relaxed);
        match self.map.next(old) {
            Some(next) => self.page(next).set_prev(self.map.link(tail)),
            None => list.last.store(self.map.link(tail).0, Ordering::Relaxed),
        }
        let bits = self.bits_for(migrate_type, Access::Write);
        bits.store(bits.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        add_exclusive(&list.blocks, count);
        self.count_free(PageCount(count), migrate_type, u64::wrapping_add);
    }

    /// Moves a free block to the list of another type (the kernel's `move_to_free_list`).
    pub(crate) fn relink_block(&mut self, pfn: Pfn, tag: Tag, to: MigrateType) {
        self.remove_block(pfn, tag);
        self.add_block(pfn, tag.order(), to, Place::Tail, tag.residence());
        if tag.is_merge_skipped() {
            // Its buddy may still be free.
            self.mark_skipped(pfn);
        }
    }

    /// The block that a list would give next.
    #[inline]
    pub(crate) fn first_block(&self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let list = self.list_for(order, migrate_type, Access::Read);
        self.map.linked(Link(list.first.load(Ordering::Relaxed)))
    }

    /// The orders, from `order` up, whose list of that type has a block; bit 0 stands for `order`.
    #[inline]
    pub(crate) fn orders_from(&self, order: Order, migrate_type: MigrateType) -> u32 {
        self.bits_for(migrate_type, Access::Read).load(Ordering::Relaxed) >> order.0
    }

    /// The block that a list would give last.
    pub(crate) fn last_block(&self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let list = self.list_for(order, migrate_type, Access::Read);
        self.map.linked(Link(list.last.load(Ordering::Relaxed)))
    }

    /// Counts frames that join or leave the free lists, for [`publish_counts`](Self::publish_counts).
    #[inline(always)]
    fn count_free(&mut self, count: PageCount, migrate_type: MigrateType, change: fn(u64, u64) -> u64) {
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
}
