//! Clean regions: regions of 1 GiB that are kept free of blocks that cannot move, so that gigantic pages can be made of
//! them.
//!
//! # Rule
//!
//! A region is *tainted* while one of its pageblocks has the type Unmovable, Reclaimable or HighAtomic; otherwise it is
//! *clean*. The rule follows the superpageblocks proposed for the kernel:
//!
//! - If a request for frames that cannot move finds no block of its own type, it takes movable blocks of tainted
//!   regions, down to single frames. Next it takes blocks of the other types there. As a last resort it takes a
//!   pageblock of the clean region with the most free frames, preferring regions that have a whole pageblock. A
//!   pageblock in which it takes a block gets its type, however few frames are free there. So the types of pageblocks
//!   tell which regions are tainted.
//! - Movable requests take blocks of clean regions first. They never change the type of a pageblock that is only partly
//!   free.
//! - When the last frame in use of an Unmovable or Reclaimable pageblock is freed, the pageblock becomes Movable. When
//!   the last tainting pageblock of a region does so, the region becomes clean.
//!
//! Only whole regions of free memory of one zone have records; all other memory counts as tainted.
//!
//! # Lists
//!
//! Blocks of clean regions join the Movable lists at the head, blocks of other memory at the tail. When a region
//! becomes tainted or clean, its whole pageblocks are moved to the other end in the same hold of the lock. Smaller
//! blocks stay where they are. A request that meets one at the wrong end moves it to the other end: a movable request
//! moves at most [`MOVED_BACK`] of them on a list, any other request at most [`MOVED_UP`].
//!
//! # Cost
//!
//! With the mode off, a hold of the zone lock tests a word that it reads anyway. With the mode on, each block that
//! joins or leaves a free list changes the record of its region (32 bytes) and the word of its pageblock. Fast paths do
//! not depend on the mode.
//!
//! # Counting equations, while regions are kept clean
//!
//! For each region:
//!
//! - `kept[type]` = the number of its pageblocks whose lasting type is `type`.
//! - `free` = Σ 2^order over free blocks in it; `movable` = the same over those on Movable lists.

use crate::memmap::{Located, MapPlace};
use crate::page::{FrameState, Link, Tag};
use crate::placement::fallback::fallbacks;
use crate::platform::Platform;
use crate::store::Unsound;
use crate::sync::{AtomicU32, Ordering};
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::region_state::{CleanRegions, Region};
use crate::zone::request::{BlockRequest, Fallback};
use crate::zone::view::{ListEvents, ListRules, LockedZone, ZoneView};

/// The blocks that a movable request moves to the tail of a list.
const MOVED_BACK: u32 = 3;
/// The blocks that a request for frames that cannot move moves to the head of a list.
const MOVED_UP: u32 = 8;
/// The regions that a request searches for a block.
const SEARCHED: u32 = 4;
/// The pageblocks of a region in which a request looks for a block above a single frame.
const WALKED: u32 = 32;

impl<'a, P: Platform> ZoneView<'a, P> {
    /// The record of the region around a frame; `None` in memory without.
    pub(crate) fn region_of(self, pfn: Pfn) -> Option<&'static Region> {
        let order = self.geometry.largest_order();
        let start = pfn.align_down(order);
        let region = self.regions.get(self.map.place(start) >> order.0)?;
        (region.start() == Some(start)).then_some(region)
    }

    /// The records of the zone's regions. Those that another process has damaged are left out: each region has places in the map.
    pub(crate) fn own_regions(self) -> impl Iterator<Item = (Pfn, &'static Region)> + use<'a, P> {
        let of_zone = move |region: &&Region| region.is_of(self.id);
        let own = self.regions.iter().filter(of_zone).filter_map(Region::start);
        own.filter_map(move |start| Some((start, self.region_of(start)?)))
    }

    /// Counts a block that joins or leaves a free list in its region and its pageblock, while regions are kept clean. The caller holds the zone
    /// lock.
    pub(crate) fn count_in_region(self, block: MapPlace, order: Order, list: MigrateType, change: fn(u32, u32) -> u32) {
        if order < self.geometry.pageblock_order()
            && let Some(word) = self.free_of_pageblock(block)
        {
            word.store(change(word.load(Ordering::Relaxed), order.pages().0 as u32), Ordering::Relaxed);
        }
        if let Some(region) = self.region_of(self.map.pfn(block)) {
            region.count_free(order, list, change);
        }
    }

    /// The frames of a block's pageblock that are on free lists, in blocks below pageblock order. Counted only while regions are kept clean.
    pub(crate) fn listed_in_pageblock(self, block: MapPlace) -> u32 {
        self.free_of_pageblock(block).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn free_of_pageblock(self, block: MapPlace) -> Option<&'static AtomicU32> {
        self.pageblock_free.get(block.index() as usize >> self.geometry.pageblock_order().0)
    }

    /// The free frames of the region that begins at a frame. Where free frames are bits, reads all bits of the region. Possibly stale.
    pub(crate) fn free_in_region_racy(self, (start, region): (Pfn, &Region)) -> PageCount {
        region.free() + self.bits_in(PfnRange::new(start, self.geometry.largest_order().pages()))
    }

    /// Whether a region with a record, and no tainting pageblock, is around the frame. Exact under the zone lock.
    pub(crate) fn is_clean(self, pfn: Pfn) -> bool {
        self.region_of(pfn).is_some_and(|region| region.tainting() == 0)
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// At the end of a hold, moves the free pageblocks of a region that was tainted or cleaned to the right end of their lists. Reads a
    /// page of each pageblock.
    #[cold]
    pub(crate) fn reorder_changed_region(&mut self) {
        let Some(start) = self.changed_region.take() else { return };
        let pageblock = self.geometry.pageblock_order();
        for at in self.blocks.starts_in(PfnRange::new(start, self.geometry.largest_order().pages())) {
            let tag = self.settled_tag(at);
            let is_whole = tag.order() >= pageblock && tag.migrate_type() == MigrateType::Movable;
            if self.blocks.has_memory(at) && is_whole && self.is_listed(at, tag) {
                self.relink_block(at, tag, MigrateType::Movable);
            }
        }
    }

    /// Whether a request of a type that takes a part of a free block changes the type of its pageblock: always if frames in use there
    /// could move so far, and never if they could not.
    pub(crate) fn must_convert(&self, pfn: Pfn, from: MigrateType, to: MigrateType) -> bool {
        let is_own = self.blocks.zone_at(self.map.place(pfn)) == Some(self.id);
        from == MigrateType::Movable && to != MigrateType::Movable && is_own
    }

    /// Takes movable blocks of clean regions, smallest first; returns their number.
    #[cold]
    pub(crate) fn take_clean(&mut self, order: Order, count: usize, take: &mut dyn FnMut(&Self, MapPlace)) -> usize {
        let mut taken = 0;
        while taken < count
            && let Some(found) = self.smallest_clean(order)
            && let Some(pieces) = self.take_first(order, (found, MigrateType::Movable), count - taken, &mut *take)
        {
            taken += pieces;
        }
        taken
    }

    /// The smallest order, from `order` up, whose Movable list begins with a block of a clean region.
    #[cold]
    fn smallest_clean(&mut self, order: Order) -> Option<Order> {
        let orders = self.orders_from(order, MigrateType::Movable);
        let mut orders = (0..u32::BITS as u8).filter(|at| orders >> at & 1 == 1).map(|at| Order(order.0 + at));
        orders.find(|found| self.begins_clean(*found))
    }

    /// Whether a Movable list begins with a block of a clean region, after blocks of other memory were moved to its tail. A hold looks once at a list
    /// that does not.
    fn begins_clean(&mut self, order: Order) -> bool {
        if self.without_clean >> order.0 & 1 == 1 {
            return false;
        }
        for _ in 0..MOVED_BACK {
            let Some((pfn, tag)) = self.first_block(order, MigrateType::Movable) else { break };
            if self.is_clean(pfn) {
                return true;
            }
            self.relink_block(pfn, tag, MigrateType::Movable);
        }
        self.without_clean |= 1 << order.0;
        false
    }

    /// Takes a block of a tainted region for a request that cannot move, and gives its pageblock the type.
    #[cold]
    pub(crate) fn take_from_tainted(&mut self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let found = self.last_tainted(order).or_else(|| self.find_in_regions(order, |region| region.tainting()));
        let found = found.or_else(|| self.first_of_others(order, migrate_type))?;
        Some(self.fall_back(found, order, migrate_type))
    }

    /// Takes a block of the clean region with the most free frames for a request that cannot move. Regions with a whole pageblock come
    /// before those without. The region is tainted from now on.
    #[cold]
    pub(crate) fn take_from_clean(&mut self, request: BlockRequest) -> Option<Pfn> {
        let BlockRequest { order, migrate_type, fallback, .. } = request;
        let free = |region: &Region| if region.tainting() == 0 { region.free_movable().0 as u32 } else { 0 };
        let whole = self.find_in_regions(order.max(self.geometry.pageblock_order()), free);
        let found = match fallback {
            Fallback::WholePageblocks => whole,
            _ => whole.or_else(|| self.find_in_regions(order, free)),
        };
        Some(self.fall_back(found?, order, migrate_type))
    }

    /// The largest block of a tainted region at the end of a Movable list, after blocks of clean regions were moved to the head.
    fn last_tainted(&mut self, order: Order) -> Option<(Pfn, Tag)> {
        let orders = self.orders_from(order, MigrateType::Movable);
        for found in (0..u32::BITS as u8).rev().filter(|at| orders >> at & 1 == 1).map(|at| Order(order.0 + at)) {
            let blocks = self.zone.free_blocks_racy(found.index(), MigrateType::Movable).min(MOVED_UP.into());
            for _ in 0..blocks {
                let Some(last) = self.last_block(found, MigrateType::Movable) else { break };
                let tag = self.settled_tag(last);
                let is_sound = tag.is_free_buddy(found, self.id) && tag.migrate_type() == MigrateType::Movable;
                if !is_sound || !self.is_clean(last) {
                    return is_sound.then_some((last, tag));
                }
                self.relink_block(last, tag, MigrateType::Movable);
            }
        }
        None
    }

    /// The largest block of another type that cannot move.
    fn first_of_others(&self, order: Order, migrate_type: MigrateType) -> Option<(Pfn, Tag)> {
        let others = fallbacks(migrate_type).into_iter().filter(|other| *other != MigrateType::Movable);
        others.into_iter().find_map(|other| {
            let largest = self.orders_from(order, other).checked_ilog2()?;
            self.first_block(Order(order.0 + largest as u8), other)
        })
    }

    /// A movable block of the regions with the highest rank above 0 that have as many free frames.
    fn find_in_regions(&self, order: Order, rank: impl Fn(&Region) -> u32) -> Option<(Pfn, Tag)> {
        let mut below = None;
        for _ in 0..SEARCHED {
            let ranked = self.own_regions().filter(|(_, region)| region.free_movable() >= order.pages());
            let ranked = ranked.map(|(start, region)| (rank(region), start)).filter(|(rank, _)| *rank > 0);
            let best = ranked.filter(|found| below.is_none_or(|below| *found < below)).max()?;
            if let Some(found) = self.find_in_region(best.1, order) {
                return Some(found);
            }
            below = Some(best);
        }
        None
    }

    /// A movable block of a region: of a whole pageblock if there is one, or of that with the most free frames. For requests above
    /// a single frame it looks at a few pageblocks.
    fn find_in_region(&self, start: Pfn, order: Order) -> Option<(Pfn, Tag)> {
        let pageblock = self.geometry.pageblock_order();
        let region = self.region_of(start)?;
        let frames = PfnRange::new(start, self.geometry.largest_order().pages());
        let (mut best, mut walked) = (None, 0);
        for at in self.blocks.starts_in(frames).filter(|at| self.blocks.get(*at) == MigrateType::Movable) {
            let free = self.listed_in_pageblock(at.place(&self.map));
            if free == 0 {
                let may_be_whole = region.free_movable() >= pageblock.pages();
                let block = if may_be_whole { Some(self.settled_block(at)) } else { None };
                let is_free = |(_, tag): &(Pfn, Tag)| tag.is_free_buddy(tag.order(), self.id);
                let found = block.filter(is_free).filter(|(_, tag)| tag.order() >= order.max(pageblock));
                if found.is_some() {
                    return found;
                }
            } else if order == Order::ZERO {
                best = best.max(Some((free, at)));
            } else if u64::from(free) >= order.pages().0 && order < pageblock && walked < WALKED {
                walked += 1;
                let found = self.block_in_pageblock(at, order);
                if found.is_some() {
                    return found;
                }
            }
        }
        self.block_in_pageblock(best?.1, order)
    }

    /// The first movable free block of that order or more in a pageblock that is not whole.
    fn block_in_pageblock(&self, start: Pfn, order: Order) -> Option<(Pfn, Tag)> {
        let (mut at, end) = (start, start + self.blocks.pages());
        while at < end {
            let tag = self.settled_tag(at);
            if self.is_listed(at, tag) && tag.order() >= order && tag.migrate_type() == MigrateType::Movable {
                return Some((at, tag));
            }
            let pages = if tag.is(FrameState::Interior) { PageCount(1) } else { tag.order().pages() };
            at = at + pages;
        }
        None
    }

    /// Makes the pageblock that begins at a frame movable if its type taints its region and all frames in use there can move; whether it
    /// did. Reads the page of each block there.
    pub(crate) fn release_movable_pageblock(&mut self, start: Pfn) -> bool {
        let is_candidate = matches!(self.blocks.get(start), MigrateType::Unmovable | MigrateType::Reclaimable);
        let pages = self.blocks.pages();
        let is_movable = |locked: &Self| {
            let left = PageCount(pages.0.saturating_sub(locked.bits_in(PfnRange::new(start, pages)).0));
            locked.use_of_pageblock(start).is_some_and(|found| found.has_only_movable(left))
        };
        let releases = is_candidate && is_movable(self);
        if releases {
            self.convert_pageblock(start, MigrateType::Movable);
        }
        releases
    }

    /// Makes the pageblock that begins at a frame unmovable if it is movable and has a block in use that cannot move. Reads the page of
    /// each block there.
    pub(crate) fn taint_mixed_pageblock(&mut self, start: Pfn) {
        let is_mixed = |locked: &Self| locked.use_of_pageblock(start).is_some_and(|found| found.has_staying());
        if self.blocks.get(start) == MigrateType::Movable && is_mixed(self) {
            self.convert_pageblock(start, MigrateType::Unmovable);
        }
    }

    /// Begins or ends to keep regions clean. To begin, reads the type of each pageblock, and the page of each free block.
    pub(crate) fn set_clean_regions(&mut self, mode: CleanRegions) {
        let begins = mode == CleanRegions::On && !self.zone.keeps_regions();
        self.zone.set_clean_regions(mode);
        if begins {
            self.count_regions();
            self.release_whole_pageblocks();
        }
    }

    /// Counts the pageblocks and free frames of each region, and the free frames of each pageblock.
    fn count_regions(&mut self) {
        for (start, region) in self.own_regions() {
            region.clear();
            let frames = PfnRange::new(start, self.geometry.largest_order().pages());
            for at in self.blocks.starts_in(frames).filter(|at| self.blocks.has_memory(*at)) {
                region.count_pageblock(self.blocks.lasting_type(at), u32::wrapping_add);
            }
        }
        for number in self.blocks.numbers_in(self.span()).flatten() {
            let is_own = self.blocks.zone_at((number << self.geometry.pageblock_order().0) as usize) == Some(self.id);
            let own = self.pageblock_free.get(number as usize).filter(|_| is_own);
            own.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        for order in (0..=self.geometry.max_order().0).map(Order) {
            for migrate_type in MigrateType::ALL {
                let first = self.first_block_at(order, migrate_type).map(|(block, _)| block);
                let blocks = self.zone.free_blocks_racy(order.index(), migrate_type);
                let mut next = first;
                for _ in 0..blocks {
                    let Some(block) = next else { break };
                    self.count_in_region(block, order, migrate_type, u32::wrapping_add);
                    next = self.map.next(self.page(block).next());
                }
            }
        }
    }

    /// Makes free pageblocks of types that taint regions movable.
    fn release_whole_pageblocks(&mut self) {
        for order in (self.geometry.pageblock_order().0..=self.geometry.max_order().0).map(Order) {
            for migrate_type in [MigrateType::Unmovable, MigrateType::Reclaimable] {
                for _ in 0..self.zone.free_blocks_racy(order.index(), migrate_type) {
                    let Some((pfn, tag)) = self.first_block(order, migrate_type) else { break };
                    self.remove_block(pfn, tag);
                    self.set_types(pfn, order, MigrateType::Movable);
                    self.free_block_as(pfn, order, MigrateType::Movable, tag.residence());
                }
            }
        }
    }

    /// Checks the counting equations.
    pub(crate) fn check_regions(&self) -> Result<(), Unsound> {
        let regions = self.own_regions().filter(|_| self.zone.keeps_regions());
        for (start, region) in regions {
            let recount = Region::default();
            let frames = PfnRange::new(start, self.geometry.largest_order().pages());
            for at in self.blocks.starts_in(frames).filter(|at| self.blocks.has_memory(*at)) {
                recount.count_pageblock(self.blocks.lasting_type(at), u32::wrapping_add);
            }
            let mut at = frames.start;
            while at < frames.end {
                let tag = if self.blocks.has_memory(at) { self.settled_tag(at) } else { Tag::INTERIOR };
                if self.is_listed(at, tag) {
                    recount.count_free(tag.order(), tag.migrate_type(), u32::wrapping_add);
                }
                at = at + if tag.is(FrameState::Interior) { PageCount(1) } else { tag.order().pages() };
            }
            if let Some((what, kept, found)) = region.differing(&recount) {
                return Err(Unsound::Count { what, kept, found });
            }
        }
        Ok(())
    }
}

impl<P: Platform> ZoneView<'_, P> {
    #[cold]
    fn count_chain(self, first: Link, count: u64, migrate_type: MigrateType, change: fn(u32, u32) -> u32) {
        let mut next = self.map.next(first);
        for _ in 0..count {
            let Some(block) = next else { break };
            self.count_in_region(block, Order::ZERO, migrate_type, change);
            next = self.map.next(self.page(block).next());
        }
    }
}

impl<P: Platform> ListEvents for ZoneView<'_, P> {
    #[inline(always)]
    fn block_listed(self, block: MapPlace, order: Order, list: MigrateType) {
        if self.zone.keeps_regions() {
            self.count_in_region(block, order, list, u32::wrapping_add);
        }
    }

    #[inline(always)]
    fn block_unlisted(self, block: MapPlace, order: Order, list: MigrateType) {
        if self.zone.keeps_regions() {
            self.count_in_region(block, order, list, u32::wrapping_sub);
        }
    }

    #[inline(always)]
    fn chain_listed(self, first: Link, count: u64, list: MigrateType) {
        if self.zone.keeps_regions() {
            self.count_chain(first, count, list, u32::wrapping_add);
        }
    }

    #[inline(always)]
    fn chain_unlisted(self, first: Link, count: u64, list: MigrateType) {
        if self.zone.keeps_regions() {
            self.count_chain(first, count, list, u32::wrapping_sub);
        }
    }
}
