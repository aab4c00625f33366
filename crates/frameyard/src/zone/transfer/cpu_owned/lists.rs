//! The lists of one CPU's owned memory in one zone: a small buddy allocator under a lock of its own.
//!
//! # Counting equations
//!
//! - `pages` = Σ over lists of blocks × 2^order.
//! - `pageblocks` = pageblocks of the zone that the table says are this CPU's.
//! - an order's bit in `nonempty[type]` is set exactly when its list has a block.
//! - `whole[type]` = blocks on the list of pageblock order.
//! - each block on a list has a [`FrameState::CpuOwnedFree`] tag with the list's order and type, which is that of its
//!   pageblock, and lies in a pageblock of this CPU's; no two buddies below pageblock order are both on lists.

use super::super::Batch;
use super::{KEPT_WHOLE, MostHeld};
use crate::locks::{LockCounters, LockHold, LockLine, LockUse};
use crate::page::{FrameState, Link, Tag};
use crate::platform::{Access, LineKind, LockId, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{CpuId, MigrateType, ORDER_SLOTS, Order, PageCount, Pfn, PfnRange};
use crate::zone::{LockedZone, ZoneView, add_exclusive, pieces, sub_exclusive};

/// How many free blocks of a pageblock go to the zone under one hold of its lock, when the pageblock is given up.
const GIVEN_AT_ONCE: usize = if cfg!(loom) { 2 } else { 64 };

/// What happened to the pageblocks of one CPU in one zone. Changed under the lock of its lists alone.
#[derive(Default)]
pub(crate) struct CpuOwnedCounts {
    /// Pageblocks that became this CPU's.
    pub(crate) claims: AtomicU64,
    /// Pageblocks that went back to the zone whole.
    pub(crate) returns: AtomicU64,
    /// Pageblocks given up because somebody wanted what was free of them.
    pub(crate) given_up: AtomicU64,
    /// Frames handed to per-CPU lists.
    pub(crate) pages_taken: AtomicU64,
    /// Frames that this CPU gave back to its own lists.
    pub(crate) local_pages_freed: AtomicU64,
    /// Frames that other CPUs gave back.
    pub(crate) remote_pages_freed: AtomicU64,
    /// Pairs of buddies that became one block.
    pub(crate) merges: AtomicU64,
    /// Blocks freed past the per-CPU lists, and their frames.
    pub(crate) direct_frees: AtomicU64,
    pub(crate) direct_pages_freed: AtomicU64,
}

all_atomic!(CpuOwnedCounts {
    claims,
    returns,
    given_up,
    pages_taken,
    local_pages_freed,
    remote_pages_freed,
    merges,
    direct_frees,
    direct_pages_freed
});

/// Free memory in the pageblocks that one CPU owns in one zone.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct CpuOwnedLists {
    lock: LockLine,
    lock_counters: LockCounters,
    /// Frames on the lists.
    pages: AtomicU64,
    /// How many pageblocks are owned.
    pageblocks: AtomicU64,
    /// Blocks of pageblock order, by type.
    whole: [AtomicU32; MigrateType::PER_CPU],
    /// For each type, the orders whose list has a block.
    nonempty: [AtomicU32; MigrateType::PER_CPU],
    /// Links to the first block of each list.
    first: [[AtomicU32; ORDER_SLOTS]; MigrateType::PER_CPU],
    pub(crate) counts: CpuOwnedCounts,
}

all_atomic!(CpuOwnedLists { lock, lock_counters, pages, pageblocks, whole, nonempty, first, counts });

impl CpuOwnedLists {
    /// Frames on the lists, a moment ago.
    pub(crate) fn pages_racy(&self) -> PageCount {
        PageCount(self.pages.load(Ordering::Relaxed))
    }

    /// How many pageblocks are owned, a moment ago.
    pub(crate) fn pageblocks_racy(&self) -> u64 {
        self.pageblocks.load(Ordering::Relaxed)
    }

    pub(crate) fn whole_racy(&self, migrate_type: MigrateType) -> u64 {
        u64::from(self.whole[migrate_type.index()].load(Ordering::Relaxed))
    }

    /// How the lock was taken.
    pub(crate) fn lock_use(&self) -> LockUse {
        self.lock_counters.read()
    }

    /// Takes the lock, waiting for whoever has it. The caller says whose lists these are.
    pub(super) fn lock<'a, P: Platform>(&'a self, view: ZoneView<'a, P>, cpu: CpuId) -> LockedCpuOwned<'a, P> {
        let guard = view.platform.guard();
        let hold = self.lock_counters.lock(view.platform, LockId::CpuOwned(view.id, cpu), &self.lock.0);
        LockedCpuOwned { lists: self, view, cpu, hold, _guard: guard }
    }
}

/// One CPU's lists of owned memory, locked; unlocks when dropped.
pub(crate) struct LockedCpuOwned<'a, P: Platform> {
    lists: &'a CpuOwnedLists,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    hold: LockHold,
    _guard: P::Guard,
}

impl<P: Platform> Drop for LockedCpuOwned<'_, P> {
    fn drop(&mut self) {
        let ZoneView { id, platform, .. } = self.view;
        self.lists.lock_counters.unlock(platform, LockId::CpuOwned(id, self.cpu), &self.lists.lock.0, self.hold);
    }
}

impl<P: Platform> LockedCpuOwned<'_, P> {
    /// Whether the pageblock that holds `pfn` is this CPU's.
    pub(super) fn owns(&self, pfn: Pfn) -> bool {
        self.view.owned.owner_racy(self.view.id, pfn) == Some(self.cpu)
    }

    /// Says that a word of these lists is used.
    #[inline(always)]
    fn touch<T>(&self, word: &T, access: Access) {
        self.view.platform.touch_line(SharedLine::of(LineKind::CpuOwnedLists, word), access);
    }

    pub(crate) fn orders_from(&self, order: Order, migrate_type: MigrateType) -> u32 {
        self.touch(&self.lists.nonempty, Access::Read);
        self.lists.nonempty[migrate_type.index()].load(Ordering::Relaxed) >> order.0
    }

    /// The first block of a list.
    pub(crate) fn first_block(&self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let first = &self.lists.first[migrate_type.index()][order.index()];
        self.touch(first, Access::Read);
        self.view.map.linked(Link(first.load(Ordering::Relaxed)))
    }

    fn pageblock_order(&self) -> Order {
        self.view.geometry.pageblock_order()
    }

    /// Puts a block in front of its list.
    fn link(&mut self, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        let ZoneView { id, map, .. } = self.view;
        let at = migrate_type.index();
        let first = &self.lists.first[at][order.index()];
        self.touch(first, Access::Write);
        self.touch(&self.lists.pages, Access::Write);
        let old = Link(first.load(Ordering::Relaxed));
        let (page, link) = (self.view.page(pfn), map.link(pfn));
        page.set_tag(Tag::new(FrameState::CpuOwnedFree, order, migrate_type, id));
        page.set_next(old);
        page.set_prev(Link::NONE);
        if let Some(next) = map.next(old) {
            self.view.page(next).set_prev(link);
        } else {
            let bits = &self.lists.nonempty[at];
            bits.store(bits.load(Ordering::Relaxed) | 1 << order.0, Ordering::Relaxed);
        }
        first.store(link.0, Ordering::Relaxed);
        if order == self.pageblock_order() {
            let whole = &self.lists.whole[at];
            whole.store(whole.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        add_exclusive(&self.lists.pages, order.pages().0);
    }

    /// Takes a block off the list that its tag names; the caller gives it a new tag.
    fn unlink(&mut self, pfn: Pfn, tag: Tag) {
        debug_assert!(tag.is(FrameState::CpuOwnedFree), "{pfn} is {tag:?}");
        let (order, at) = (tag.order(), tag.migrate_type().index());
        let map = self.view.map;
        self.touch(&self.lists.first[at][order.index()], Access::Write);
        self.touch(&self.lists.pages, Access::Write);
        let page = self.view.page(pfn);
        let (next, prev) = (page.next(), page.prev());
        if let Some(next) = map.next(next) {
            self.view.page(next).set_prev(prev);
        }
        match map.next(prev) {
            Some(prev) => self.view.page(prev).set_next(next),
            None => {
                self.lists.first[at][order.index()].store(next.0, Ordering::Relaxed);
                if next == Link::NONE {
                    let bits = &self.lists.nonempty[at];
                    bits.store(bits.load(Ordering::Relaxed) & !(1 << order.0), Ordering::Relaxed);
                }
            }
        }
        page.set_next(Link::NONE);
        page.set_prev(Link::NONE);
        if order == self.pageblock_order() {
            let whole = &self.lists.whole[at];
            whole.store(whole.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        }
        sub_exclusive(&self.lists.pages, order.pages().0);
    }

    /// Adds blocks of `order` to `picked`, tagged as blocks of per-CPU lists, until it has `most`: smallest first, each cut
    /// up where it lies.
    pub(super) fn take(&mut self, order: Order, migrate_type: MigrateType, picked: &mut Batch, most: usize) {
        while picked.len < most {
            let orders = self.orders_from(order, migrate_type);
            let found = Order(order.0 + orders.trailing_zeros() as u8);
            let Some(block) = (orders != 0).then(|| self.first_block(found, migrate_type)).flatten() else { return };
            self.unlink(block, self.view.page(block).tag());
            let count = (1 << (found.0 - order.0)).min(most - picked.len);
            let tag = Tag::new(FrameState::PerCpu, order, migrate_type, self.view.id);
            for piece in 0..count as u64 {
                let pfn = block + PageCount(piece << order.0);
                self.view.page(pfn).set_tag(tag);
                picked.push(self.view.map.index(pfn));
            }
            let rest = PfnRange { start: block + PageCount((count as u64) << order.0), end: block + found.pages() };
            for (pfn, order) in pieces(rest, found) {
                self.link(pfn, order, migrate_type);
            }
            add_exclusive(&self.lists.counts.pages_taken, (count as u64) << order.0);
        }
    }

    /// Takes a block back that lies in a pageblock of this CPU's, merging it as far as that pageblock goes. `from` is the CPU
    /// that gives it back.
    pub(super) fn put(&mut self, pfn: Pfn, order: Order, from: CpuId) {
        let counts = &self.lists.counts;
        let freed = if from == self.cpu { &counts.local_pages_freed } else { &counts.remote_pages_freed };
        add_exclusive(freed, order.pages().0);
        let migrate_type = self.view.blocks.get(pfn);
        debug_assert!(migrate_type.index() < MigrateType::PER_CPU, "the owned pageblock of {pfn} is {migrate_type}");
        let (mut pfn, mut order) = (pfn, order);
        while order < self.pageblock_order() {
            let buddy = pfn.buddy(order);
            let tag = self.view.page(buddy).tag();
            if !tag.is_block(FrameState::CpuOwnedFree, order) {
                break;
            }
            self.unlink(buddy, tag);
            self.view.page(pfn.max(buddy)).set_tag(Tag::INTERIOR);
            pfn = pfn.min(buddy);
            order.0 += 1;
            add_exclusive(&self.lists.counts.merges, 1);
        }
        self.link(pfn, order, migrate_type);
    }

    /// Counts a block that was freed past the per-CPU lists.
    pub(super) fn count_direct_free(&mut self, order: Order) {
        add_exclusive(&self.lists.counts.direct_frees, 1);
        add_exclusive(&self.lists.counts.direct_pages_freed, order.pages().0);
    }

    /// Makes a pageblock this CPU's that the holder of the zone lock has just taken off the free lists, whole.
    pub(super) fn claim(&mut self, locked: &mut LockedZone<'_, P>, pageblock: Pfn, migrate_type: MigrateType) {
        self.view.owned.set_owner(self.view.id, pageblock, Some(self.cpu));
        let total = &locked.zone.transfer.owned_pageblocks;
        locked.platform.touch_line(SharedLine::of(LineKind::Transfer, total), Access::Write);
        total.store(total.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        add_exclusive(&self.lists.pageblocks, 1);
        add_exclusive(&self.lists.counts.claims, 1);
        let order = self.pageblock_order();
        locked.count_moved(order.pages());
        self.link(pageblock, order, migrate_type);
    }

    /// Writes down that a pageblock is nobody's. The zone is locked; frees of its frames go there from now on.
    fn forget(&mut self, locked: &LockedZone<'_, P>, pageblock: Pfn) {
        self.view.owned.set_owner(self.view.id, pageblock, None);
        let total = &locked.zone.transfer.owned_pageblocks;
        locked.platform.touch_line(SharedLine::of(LineKind::Transfer, total), Access::Write);
        total.store(total.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        sub_exclusive(&self.lists.pageblocks, 1);
    }

    /// Gives a pageblock of this CPU's up: what is free of it goes to the zone, and merges there.
    pub(super) fn give_up(&mut self, pfn: Pfn) {
        let pageblock = PfnRange::new(self.view.blocks.start_of(pfn), self.view.blocks.pages());
        let mut at = pageblock.start;
        add_exclusive(&self.lists.counts.given_up, 1);
        loop {
            let mut found = [(Pfn(0), Order::ZERO); GIVEN_AT_ONCE];
            let count = self.detach(&mut at, pageblock.end, &mut found);
            let mut locked = self.view.lock();
            if self.owns(pfn) {
                self.forget(&locked, pageblock.start);
            }
            for (pfn, order) in &found[..count] {
                locked.free_by_type(*pfn, *order);
                locked.count_moved(order.pages());
            }
            if at >= pageblock.end {
                return;
            }
        }
    }

    /// Takes the blocks of a pageblock off the lists, from `at` on, as long as there is room for them; how many.
    ///
    /// Blocks that are not on these lists are others', who may cut them meanwhile: they are passed over a frame at a time.
    fn detach(&mut self, at: &mut Pfn, end: Pfn, found: &mut [(Pfn, Order); GIVEN_AT_ONCE]) -> usize {
        let mut count = 0;
        while *at < end && count < found.len() {
            let (pfn, tag) = (*at, self.view.page(*at).tag());
            *at = *at + PageCount(1);
            if tag.is(FrameState::CpuOwnedFree) {
                self.unlink(pfn, tag);
                self.view.page(pfn).set_tag(tag.with_state(FrameState::InTransit));
                found[count] = (pfn, tag.order());
                count += 1;
                *at = pfn + tag.order().pages();
            }
        }
        count
    }

    /// Gives the zone what is more than a CPU keeps: whole pageblocks first; then pageblocks that are free in part, those
    /// with the largest blocks first.
    pub(super) fn shed(&mut self, most: MostHeld) {
        let order = self.pageblock_order();
        for migrate_type in MigrateType::ALL.into_iter().take(MigrateType::PER_CPU) {
            while self.lists.whole_racy(migrate_type) > KEPT_WHOLE {
                let Some(pfn) = self.first_block(order, migrate_type) else { return };
                self.unlink(pfn, self.view.page(pfn).tag());
                let mut locked = self.view.lock();
                self.forget(&locked, pfn);
                locked.tag_block(pfn, FrameState::InTransit, order, migrate_type);
                locked.free_by_type(pfn, order);
                locked.count_moved(order.pages());
                add_exclusive(&self.lists.counts.returns, 1);
            }
        }
        while self.lists.pages_racy() > most.0 {
            let Some(pfn) = self.largest_block() else { return };
            self.give_up(pfn);
        }
    }

    fn largest_block(&self) -> Option<Pfn> {
        let types = MigrateType::ALL.into_iter().take(MigrateType::PER_CPU);
        let largest = |migrate_type| Some((self.orders_from(Order::ZERO, migrate_type).checked_ilog2()?, migrate_type));
        let (order, migrate_type) = types.filter_map(largest).max_by_key(|(order, _)| *order)?;
        self.first_block(Order(order as u8), migrate_type)
    }
}
