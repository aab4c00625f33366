//! Clean regions: the mode that confines blocks which cannot move to few regions of 1 GiB, so that the other regions
//! can become gigantic pages. This module has the statistics of regions, and the background step that keeps room for
//! such blocks in regions that have some already.
//!
//! # Background step
//!
//! 1. The step reads the next region with at most [`NEARLY`] tainting pageblocks. A tainting pageblock in which all
//!    frames in use can be moved becomes movable. When the last one has, the region is clean.
//! 2. While all tainted regions together have less free memory than 1/[`ROOM`] of a region, movable blocks are moved
//!    from there to clean regions, up to [`BUDGET`] pageblocks' worth of frames in a step. So the next requests for
//!    memory that cannot move need not taint another region.

use crate::boot::HeaderWord;
use crate::compaction::{CompactOutcome, CompactResult};
use crate::gfp::Gfp;
use crate::owners::{Block, MigrateMode, OwnerKind, Owners};
use crate::page::{CountedPage, FrameState};
use crate::platform::{LockError, Platform};
use crate::sync::Ordering;
use crate::units::{NodeId, PageCount, Pfn, PfnRange};
use crate::yard::{Yard, YardZone};
use crate::zone::{CleanRegions, RegionCounts, RegionStatistics, WatermarkLevel, ZoneView};

/// A region with at most this number of tainting pageblocks is nearly clean.
const NEARLY: u32 = 64;
/// One in this number of frames of a region should be free in tainted regions.
const ROOM: u64 = 16;
/// The frames that a step moves, in pageblocks.
const BUDGET: u64 = 2;
/// The pageblocks that a step looks at for blocks to move.
const LOOKED_AT: usize = 64;
/// The targets in tainted regions that a step puts aside while it waits for one elsewhere.
const REFUSED: usize = 8;
/// The flags of targets.
const TARGET: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN).union(Gfp::NORETRY).without(Gfp::DIRECT_RECLAIM);

impl<P: Platform> Yard<P> {
    /// Whether the yard keeps regions of 1 GiB clean. Cost: one load.
    pub fn clean_regions(&self) -> CleanRegions {
        self.tables.clean_regions()
    }

    /// Changes whether the yard keeps regions of 1 GiB clean, for all its views.
    ///
    /// From now on requests choose frames by region. Allocated blocks stay where they are. When the mode is turned on,
    /// movable pageblocks in which blocks of other types are in use become unmovable, and so their regions count as
    /// tainted. Pinned movable frames are not detected.
    ///
    /// # Errors
    ///
    /// [`LockError`] if a process holds a zone lock and does not release it. Some zones may then have the new mode and
    /// others the old one.
    ///
    /// # Cost
    ///
    /// Takes each zone lock once. When the mode is turned on, reads the type of each pageblock and the page of each
    /// free block under this lock, then takes the lock once more for each pageblock and reads the page of each block
    /// there.
    pub fn set_clean_regions(&self, mode: CleanRegions) -> Result<(), LockError> {
        self.tables.word(HeaderWord::CleanRegions).store(mode as u64, Ordering::Relaxed);
        self.populated_zones().try_for_each(|view| {
            let begins = mode == CleanRegions::On && !view.zone.keeps_regions();
            view.lock()?.set_clean_regions(mode);
            let regions = view.own_regions().filter(|_| begins);
            let regions = regions.map(|(start, _)| PfnRange::new(start, self.geometry.largest_order().pages()));
            let mut pageblocks = regions.flat_map(|frames| view.blocks.starts_in(frames));
            pageblocks.try_for_each(|start| {
                view.lock()?.taint_mixed_pageblock(start);
                Ok(())
            })
        })
    }

    /// The clean regions of a zone that keeps regions clean, those with the most free frames first.
    pub(crate) fn emptiest_regions(&self, view: ZoneView<'_, P>) -> impl Iterator<Item = PfnRange> {
        let pages = self.geometry.largest_order().pages();
        let mut last = None;
        // Ends: each pair is below the one before.
        core::iter::from_fn(move || {
            let clean = view.own_regions().filter(|(_, region)| view.zone.keeps_regions() && region.tainting() == 0);
            let ranked = clean.map(|(start, region)| (view.free_in_region_racy((start, region)), start));
            let best = ranked.filter(|found| last.is_none_or(|last| *found < last)).max()?;
            last = Some(best);
            Some(PfnRange::new(best.1, pages))
        })
    }

    /// A background step for the regions of a node; `None` where nothing changed.
    pub(crate) fn tend_regions(&self, node: NodeId, owners: &Owners<'_>) -> Option<CompactOutcome> {
        let mut done: Option<CompactOutcome> = None;
        for view in self.zones_of(node).filter(|view| view.zone.keeps_regions()) {
            let cleaned = self.clean_one(view);
            let migrated = self.make_room(view, owners);
            view.zone.regions.count_moved(migrated);
            if cleaned || migrated.0 > 0 {
                let outcome =
                    CompactOutcome { result: CompactResult::Unfinished, migrated, ..CompactOutcome::default() };
                done = Some(done.unwrap_or_default().and(outcome));
            }
        }
        done
    }

    /// Makes tainting pageblocks of the next region that is nearly clean movable if all in them can move; whether there was one.
    fn clean_one(&self, view: ZoneView<'_, P>) -> bool {
        let cursor = Pfn(view.zone.regions.cursor.load(Ordering::Relaxed));
        let nearly =
            || view.own_regions().filter(|(_, region)| (1..=NEARLY).contains(&region.tainting())).map(|(at, _)| at);
        let Some(start) = nearly().filter(|at| *at > cursor).min().or_else(|| nearly().min()) else { return false };
        view.zone.regions.cursor.store(start.0, Ordering::Relaxed);
        let mut changed = false;
        for at in view.blocks.starts_in(PfnRange::new(start, self.geometry.largest_order().pages())) {
            let Ok(mut locked) = view.lock() else { break };
            changed |= locked.release_movable_pageblock(at);
        }
        changed
    }

    /// Moves blocks from tainted regions to clean ones if the tainted ones have too little room; the frames moved.
    fn make_room(&self, view: ZoneView<'_, P>, owners: &Owners<'_>) -> PageCount {
        let region_pages = self.geometry.largest_order().pages();
        let (mut room, mut any) = (PageCount(0), false);
        for tainted in view.own_regions().filter(|(_, region)| region.tainting() > 0) {
            (room, any) = (room + view.free_in_region_racy(tainted), true);
        }
        let budget = PageCount(BUDGET << self.geometry.pageblock_order().0);
        let kept = view.zone.watermark(WatermarkLevel::High) + room + budget;
        if !any || room.0 >= region_pages.0 / ROOM || view.zone.free_pages_racy() <= kept {
            return PageCount(0);
        }
        let mut moved = PageCount(0);
        let begin = Pfn(view.zone.regions.room_cursor.load(Ordering::Relaxed));
        let starts = || {
            let tainted = view.own_regions().filter(|(_, region)| region.tainting() > 0);
            tainted.flat_map(|(start, _)| view.blocks.starts_in(PfnRange::new(start, region_pages)))
        };
        let in_turn = starts().filter(|at| *at >= begin).chain(starts().filter(|at| *at < begin));
        for (looked, at) in in_turn.enumerate() {
            if looked == LOOKED_AT || moved >= budget {
                view.zone.regions.room_cursor.store(at.0, Ordering::Relaxed);
                break;
            }
            moved += self.move_out(view, PfnRange::new(at, view.blocks.pages()), owners);
        }
        moved
    }

    /// Has owners move their blocks out of a pageblock, to clean regions; the frames moved.
    fn move_out(&self, view: ZoneView<'_, P>, frames: PfnRange, owners: &Owners<'_>) -> PageCount {
        let mut moved = PageCount(0);
        let mut at = frames.start;
        while at < frames.end && view.blocks.has_memory(at) {
            let (head, tag) = self.covering(at);
            at = (head + tag.order().pages()).max(Pfn(at.0 + 1));
            let block = Block { pfn: head, order: tag.order() };
            if !tag.is(FrameState::Counted) || block.order > self.geometry.pageblock_order() {
                continue;
            }
            match self.move_to_clean(view, block, owners) {
                Some(true) => moved += block.order.pages(),
                Some(false) => {}
                None => break,
            }
        }
        moved
    }

    /// Has its owner move a block to a clean region; whether it did. `None` where no clean region has room.
    fn move_to_clean(&self, view: ZoneView<'_, P>, block: Block, owners: &Owners<'_>) -> Option<bool> {
        let page = CountedPage::new(self.map.page(block.pfn, &self.platform), self.map.content().no_users());
        let Some(owner) = owners.of(OwnerKind::of_word(page.owner())) else { return Some(false) };
        if owner.isolate(block, MigrateMode::Async).is_err() {
            return Some(false);
        }
        let Some(target) = self.clean_target(view, block) else {
            owner.put_back(block);
            return None;
        };
        let is_moved = owner.migrate(block, target, MigrateMode::Async).is_ok();
        if !is_moved {
            owner.put_back(block);
        }
        self.release(if is_moved { block.pfn } else { target }, block.order);
        Some(is_moved)
    }

    /// Allocates a block of a clean region. Lists of CPUs may give blocks of tainted regions first.
    fn clean_target(&self, view: ZoneView<'_, P>, block: Block) -> Option<Pfn> {
        let mut refused = [None; REFUSED];
        let mut found = None;
        for aside in &mut refused {
            match self.alloc_on(view.id.node(), block.order, TARGET) {
                Ok(pfn) if view.is_clean(pfn) => {
                    found = Some(pfn);
                    break;
                }
                Ok(pfn) => *aside = Some(pfn),
                Err(_) => break,
            }
        }
        refused.into_iter().flatten().for_each(|pfn| self.release(pfn, block.order));
        found
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// The regions of the zone: ranges of 1 GiB that were whole and free when the yard was created. There are none
    /// while the yard does not keep regions clean, or if there is no such zone. Without a lock, reads 32 bytes for each
    /// region and, if free frames are bits, its bits.
    pub fn regions(self) -> impl Iterator<Item = RegionStatistics> + use<'y, P> {
        let (geometry, view) = (self.yard.geometry, self.populated().filter(|view| view.zone.keeps_regions()));
        let regions = view.into_iter().flat_map(|view| view.own_regions().map(move |region| (view, region)));
        regions.filter_map(move |(view, (start, region))| {
            let read = region.read(geometry.largest_order(), geometry.pageblock_order())?;
            Some(RegionStatistics { free: view.free_in_region_racy((start, region)), ..read })
        })
    }

    /// Counts of events in the regions of the zone; all zero if there is no such zone.
    pub fn region_counts(self) -> RegionCounts {
        self.populated().map_or(RegionCounts::default(), |view| view.zone.regions.read())
    }
}
