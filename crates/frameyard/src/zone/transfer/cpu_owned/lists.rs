//! The free blocks of one CPU's owned pageblocks in one zone: a small buddy allocator under a lock of its own.
//!
//! # Counting equations
//!
//! - `pages` = Σ over lists of blocks × 2^order.
//! - `pageblocks` = pageblocks of the zone that this CPU owns by the table.
//! - An order's bit in `nonempty[type]` is set exactly if its list has a block.
//! - Each block on a list has a [`FrameState::HeldFree`] tag with the list's order and type, which is that of its pageblock, and
//!   lies in a pageblock of this CPU. No two buddies below pageblock order are both on lists.

use super::statistics::Counts;
use crate::locks::{LockCounters, LockHold, LockLine, LockUse};
use crate::memmap::{Located, MapPlace};
use crate::page::{FrameState, Link, Residence, Tag};
use crate::platform::{Access, LineKind, LockId, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{CpuId, MigrateType, ORDER_SLOTS, Order, PageCount, Pfn, PfnRange};
use crate::zone::block_list::{BlockList, Place};
use crate::zone::buddy::{BlockLists, merge, parts_of, take_pieces};
use crate::zone::exclusive::{add_exclusive, sub_exclusive};
use crate::zone::fixed_vec::FixedVec;
use crate::zone::state::orders_from;
use crate::zone::view::{LockedZone, ZoneView};

/// How many free pageblocks of a type a CPU keeps.
const KEPT_WHOLE: u64 = if cfg!(loom) { 0 } else { 1 };
/// All CPUs together keep at most `1 / 2^HELD_SHIFT` of a zone.
const HELD_SHIFT: u32 = 3;
/// But each CPU may keep this many pageblocks.
const HELD_PAGEBLOCKS: u64 = 4;

/// The most free blocks that go to the zone under one hold of its lock when a pageblock is given up.
const GIVEN_AT_ONCE: usize = if cfg!(loom) { 2 } else { 64 };

/// The most frames that one CPU keeps on its lists in a zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct MostHeld(PageCount);

impl MostHeld {
    pub(super) fn of<P: Platform>(view: ZoneView<'_, P>) -> Self {
        let share = (view.zone.managed().0 >> HELD_SHIFT) / view.cpu_owned().cpus().len().max(1) as u64;
        Self(PageCount(share.max(HELD_PAGEBLOCKS << view.geometry.pageblock_order().0)))
    }
}

/// The free memory of the pageblocks that one CPU owns in one zone.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct CpuOwnedLists {
    lock: LockLine,
    lock_counters: LockCounters,
    /// Frames on the lists.
    pages: AtomicU64,
    /// Owned pageblocks.
    pageblocks: AtomicU64,
    /// For each type, the orders whose list has a block.
    nonempty: [AtomicU32; MigrateType::PER_CPU],
    lists: [[BlockList; ORDER_SLOTS]; MigrateType::PER_CPU],
    pub(super) counts: Counts,
}

all_atomic!(CpuOwnedLists { lock, lock_counters, pages, pageblocks, nonempty, lists, counts });

impl CpuOwnedLists {
    /// Frames on the lists, possibly stale.
    pub(super) fn pages_racy(&self) -> PageCount {
        PageCount(self.pages.load(Ordering::Relaxed))
    }

    /// Owned pageblocks, possibly stale.
    pub(super) fn pageblocks_racy(&self) -> u64 {
        self.pageblocks.load(Ordering::Relaxed)
    }

    /// Blocks on a list, possibly stale.
    pub(super) fn blocks_racy(&self, order: Order, migrate_type: MigrateType) -> u64 {
        self.lists[migrate_type.index()][order.index()].blocks_racy()
    }

    /// How the lock was taken.
    pub(super) fn lock_use(&self) -> LockUse {
        self.lock_counters.read()
    }

    /// The word of the lock.
    pub(super) fn lock_word(&self) -> &AtomicU32 {
        &self.lock.0
    }

    /// Takes the lock; spins until acquired. The caller names the CPU that these lists belong to. `None` if the platform gives up
    /// ([`Platform::lock_error`]).
    pub(super) fn lock<'a, P: Platform>(&'a self, view: ZoneView<'a, P>, cpu: CpuId) -> Option<LockedCpuOwned<'a, P>> {
        let guard = view.platform.guard();
        let hold = self.lock_counters.lock(view.platform, LockId::Mechanism(view.id, cpu), &self.lock.0).ok()?;
        Some(LockedCpuOwned { lists: self, view, cpu, hold, _guard: guard })
    }
}

/// One CPU's lists, locked; unlocks when dropped.
pub(super) struct LockedCpuOwned<'a, P: Platform> {
    lists: &'a CpuOwnedLists,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    hold: LockHold,
    _guard: P::Guard,
}

impl<P: Platform> Drop for LockedCpuOwned<'_, P> {
    fn drop(&mut self) {
        let ZoneView { id, platform, .. } = self.view;
        self.lists.lock_counters.unlock(platform, LockId::Mechanism(id, self.cpu), &self.lists.lock.0, self.hold);
    }
}

impl<P: Platform> BlockLists for LockedCpuOwned<'_, P> {
    fn orders_from(&self, order: Order, migrate_type: MigrateType) -> u32 {
        self.touch(&self.lists.nonempty, Access::Read);
        orders_from(self.lists.nonempty[migrate_type.index()].load(Ordering::Relaxed), order)
    }

    fn first_block(&self, order: Order, migrate_type: MigrateType) -> Option<(MapPlace, Tag)> {
        let list = &self.lists.lists[migrate_type.index()][order.index()];
        self.touch(list, Access::Read);
        let block = self.view.map.next(list.first_racy())?;
        let tag = self.view.page(block).tag();
        let is_sound = tag == Tag::new(FrameState::HeldFree, order, migrate_type, self.view.id)
            && tag.of_block_at(block.aligned_alike(), self.pageblock_order()) == tag;
        is_sound.then_some((block, tag)).or_else(|| {
            self.note_corrupt();
            None
        })
    }

    fn take_off(&mut self, block: MapPlace, tag: Tag) {
        self.unlink(block, tag);
    }

    fn note_corrupt(&self) {
        self.view.platform.note_corrupt(LockId::Mechanism(self.view.id, self.cpu));
    }

    fn put_back(&mut self, block: (MapPlace, Order), taken: u32, migrate_type: MigrateType, _: Residence) {
        for (piece, order) in parts_of(block, taken..block.1.pages().0 as u32) {
            self.link(piece, order, migrate_type);
        }
    }
}

impl<P: Platform> LockedCpuOwned<'_, P> {
    /// Whether the CPU owns the pageblock around `pfn`.
    pub(super) fn owns(&self, pfn: Pfn) -> bool {
        self.view.cpu_owned().owner_racy(pfn) == Some(self.cpu)
    }

    /// Announces a use of a word of these lists.
    #[inline(always)]
    fn touch<T>(&self, word: &T, access: Access) {
        self.view.platform.touch_line(SharedLine::of(LineKind::Mechanism, word), access);
    }

    /// What a list begins with, whatever it is, for the validator.
    pub(super) fn first_linked(&self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        self.view.map.linked(self.lists.lists[migrate_type.index()][order.index()].first_racy())
    }

    fn pageblock_order(&self) -> Order {
        self.view.geometry.pageblock_order()
    }

    /// Puts a block at the head of its list.
    fn link(&mut self, block: MapPlace, order: Order, migrate_type: MigrateType) {
        let at = migrate_type.index();
        let list = &self.lists.lists[at][order.index()];
        self.touch(list, Access::Write);
        self.touch(&self.lists.pages, Access::Write);
        self.view.page(block).set_tag(Tag::new(FrameState::HeldFree, order, migrate_type, self.view.id));
        list.add(&self.view.map, self.view.platform, block, Place::Head);
        if list.count_added(1) {
            let bits = &self.lists.nonempty[at];
            bits.store(bits.load(Ordering::Relaxed) | 1 << order.0, Ordering::Relaxed);
        }
        add_exclusive(&self.lists.pages, order.pages().0);
    }

    /// Takes a block off the list that its tag names. The caller gives it a new tag. Its order suits its place.
    fn unlink(&mut self, block: impl Located, tag: Tag) {
        let (order, at) = (tag.order(), tag.migrate_type().index());
        let Some(list) = self.lists.lists.get(at).and_then(|lists| lists.get(order.index())) else {
            return self.note_corrupt();
        };
        self.touch(list, Access::Write);
        self.touch(&self.lists.pages, Access::Write);
        let page = self.view.page(block);
        list.remove(&self.view.map, self.view.platform, page.next(), page.prev());
        page.set_next(Link::NONE);
        page.set_prev(Link::NONE);
        if list.count_removed(1) {
            let bits = &self.lists.nonempty[at];
            bits.store(bits.load(Ordering::Relaxed) & !(1 << order.0), Ordering::Relaxed);
        }
        sub_exclusive(&self.lists.pages, order.pages().0);
    }

    /// Takes up to `most` blocks of `order`, smallest free blocks first, tags them as blocks of per-CPU lists and gives each to
    /// `take`.
    pub(super) fn take(&mut self, order: Order, migrate_type: MigrateType, most: usize, mut take: impl FnMut(u32)) {
        let tag = Tag::new(FrameState::PerCpu, order, migrate_type, self.view.id);
        let taken = take_pieces(self, order, migrate_type, most, |owned, block| {
            owned.view.page(block).set_tag(tag);
            take(block.index());
        });
        if taken > 0 {
            add_exclusive(&self.lists.counts.pages_taken, (taken as u64) << order.0);
        }
    }

    /// Takes back a block of a pageblock that this CPU owns, and merges it within that pageblock. `from` is the CPU that gives it
    /// back.
    pub(super) fn put(&mut self, pfn: Pfn, order: Order, from: CpuId) {
        let counts = &self.lists.counts;
        let freed = if from == self.cpu { &counts.local_pages_freed } else { &counts.remote_pages_freed };
        add_exclusive(freed, order.pages().0);
        let migrate_type = self.view.blocks.get(pfn);
        if migrate_type.index() >= MigrateType::PER_CPU {
            return self.note_corrupt();
        }
        let (view, limit) = (self.view, self.pageblock_order());
        let (block, order) = merge(&view, (pfn.place(&view.map), order), limit, |buddy, order| {
            let tag = self.view.page(buddy).tag();
            let free = tag.is_block(FrameState::HeldFree, order);
            if free {
                self.unlink(buddy, tag);
                add_exclusive(&self.lists.counts.merges, 1);
            }
            free
        });
        self.link(block, order, migrate_type);
    }

    /// Counts a block that was freed past the per-CPU lists.
    pub(super) fn count_direct_free(&mut self, order: Order) {
        add_exclusive(&self.lists.counts.direct_frees, 1);
        add_exclusive(&self.lists.counts.direct_pages_freed, order.pages().0);
    }

    /// Makes this CPU the owner of a whole pageblock that the caller has just taken off the free lists.
    pub(super) fn claim(&mut self, locked: &mut LockedZone<'_, P>, pageblock: Pfn, migrate_type: MigrateType) {
        self.view.cpu_owned().set_owner(pageblock, Some(self.cpu));
        let total = &locked.zone.mechanisms.cpu_owned.pageblocks;
        locked.platform.touch_line(SharedLine::of(LineKind::Transfer, total), Access::Write);
        total.store(total.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        add_exclusive(&self.lists.pageblocks, 1);
        add_exclusive(&self.lists.counts.claims, 1);
        let order = self.pageblock_order();
        locked.count_moved(order.pages());
        self.link(pageblock.place(&self.view.map), order, migrate_type);
    }

    /// Ends the ownership of a pageblock under the zone lock; frees of its frames go to the zone from now on.
    fn forget(&mut self, locked: &LockedZone<'_, P>, pageblock: Pfn) {
        self.view.cpu_owned().set_owner(pageblock, None);
        let total = &locked.zone.mechanisms.cpu_owned.pageblocks;
        locked.platform.touch_line(SharedLine::of(LineKind::Transfer, total), Access::Write);
        total.store(total.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
        sub_exclusive(&self.lists.pageblocks, 1);
    }

    /// Gives up the pageblock around `pfn`: its free blocks go to the zone and merge there.
    pub(super) fn give_up(&mut self, pfn: Pfn) {
        let pageblock = PfnRange::new(self.view.blocks.start_of(pfn), self.view.blocks.pages());
        let mut at = pageblock.start;
        add_exclusive(&self.lists.counts.given_up, 1);
        loop {
            let found = self.detach(&mut at, pageblock.end);
            let Ok(mut locked) = self.view.lock() else { return };
            if self.owns(pfn) {
                self.forget(&locked, pageblock.start);
            }
            for (pfn, order) in found.iter() {
                locked.free_by_type(*pfn, *order);
                locked.count_moved(order.pages());
            }
            if at >= pageblock.end {
                return;
            }
        }
    }

    /// Takes the blocks of a pageblock off the lists, from `at` on, up to one hold's worth.
    ///
    /// Blocks that are not on these lists belong to other CPUs, which may split them meanwhile: they are passed frame by frame.
    fn detach(&mut self, at: &mut Pfn, end: Pfn) -> FixedVec<(Pfn, Order), GIVEN_AT_ONCE> {
        let mut found = FixedVec::new();
        while *at < end && !found.is_full() {
            let (pfn, tag) = (*at, self.view.tag_at(*at));
            *at = *at + PageCount(1);
            if tag.is(FrameState::HeldFree) {
                self.unlink(pfn, tag);
                self.view.page(pfn).set_tag(tag.with_state(FrameState::InTransit));
                found.push((pfn, tag.order()));
                *at = pfn + tag.order().pages();
            }
        }
        found
    }

    /// Returns to the zone what exceeds `most`: whole pageblocks first, then pageblocks that are free in part, those with the
    /// largest blocks first.
    pub(super) fn shed(&mut self, most: MostHeld) {
        let order = self.pageblock_order();
        for migrate_type in MigrateType::ALL.into_iter().take(MigrateType::PER_CPU) {
            for _ in 0..self.view.map.places() >> order.0 {
                if self.lists.blocks_racy(order, migrate_type) <= KEPT_WHOLE {
                    break;
                }
                let Some((block, tag)) = self.first_block(order, migrate_type) else { return };
                self.unlink(block, tag);
                let Ok(mut locked) = self.view.lock() else { return };
                self.forget(&locked, self.view.map.pfn(block));
                locked.tag_block(block, FrameState::InTransit, order, migrate_type);
                locked.free_by_type(block, order);
                locked.count_moved(order.pages());
                add_exclusive(&self.lists.counts.returns, 1);
            }
        }
        // A CPU owns no more pageblocks than there are.
        for _ in 0..self.view.map.places() >> order.0 {
            if self.lists.pages_racy() <= most.0 {
                return;
            }
            let Some(pfn) = self.largest_block() else { return };
            self.give_up(pfn);
        }
    }

    fn largest_block(&self) -> Option<Pfn> {
        let types = MigrateType::ALL.into_iter().take(MigrateType::PER_CPU);
        let largest = |migrate_type| Some((self.orders_from(Order::ZERO, migrate_type).checked_ilog2()?, migrate_type));
        let (order, migrate_type) = types.filter_map(largest).max_by_key(|(order, _)| *order)?;
        self.first_block(Order(order as u8), migrate_type).map(|(block, _)| self.view.map.pfn(block))
    }
}
