//! Targets: the frames that blocks of a range move to.
//!
//! While regions are kept clean, targets of single frames come from the clean regions with the fewest free frames,
//! pageblock by pageblock. Those regions are the least likely to become a page of 1 GiB, and neighbouring frames cost
//! fewer cache misses than frames from a list. All other targets are the blocks that an ordinary request would get.
//! Zones are tried in the order of the zonelist, as long as they stay above the low watermark.

use crate::memmap::Located;
use crate::owners::{Block, Owners, ReclaimRequest};
use crate::page::FrameState;
use crate::platform::Platform;
use crate::request::contig::{Isolation, TARGET_TRIES, target_flags};
use crate::store;
use crate::store::batch::BATCH;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange, ZoneId};
use crate::yard::Yard;
use crate::zone::fixed_vec::FixedVec;
use crate::zone::view::ListRules;
use crate::zone::{BlockRequest, CmaUse, Fallback, HeldFree, LockedZone, Patience, Reserves, WatermarkLevel, ZoneView};

/// The distance at which a walk over a pageblock prefetches page structures.
const AHEAD: PageCount = PageCount(32);

type Frames = FixedVec<Pfn, BATCH>;

/// A walk over clean regions.
#[derive(Default)]
pub(super) struct TargetWalk {
    /// Their zone.
    zone: Option<ZoneId>,
    /// The region, and its free frames when the walk came to it.
    region: Option<(PageCount, Pfn)>,
    /// The next frame.
    at: Pfn,
}

impl<P: Platform> Yard<P> {
    /// Allocates at most `count` single frames outside the isolated pageblocks. None below the low watermark.
    pub(super) fn take_targets(&self, isolation: &Isolation<'_, P>, walk: &mut TargetWalk, count: usize) -> Frames {
        let mut taken = Frames::new();
        let flags = target_flags(isolation.patience);
        let (reserves, highest) = (Reserves { cma: true, ..Reserves::default() }, flags.highest_zone());
        let node = isolation.zone.node();
        for id in self.zones_for(node, flags).filter(|id| id.node() == node) {
            let Some(view) = self.zone(id).populated().filter(|_| count > 0 && taken.is_empty()) else { continue };
            let (zone, mark, held) = (view.zone, WatermarkLevel::Low, HeldFree::default());
            if zone.deferred.pages_racy().0 > 0 {
                break;
            }
            if zone.watermark_ok_with_racy(Order::ZERO, mark, highest, reserves, held) {
                if zone.keeps_regions() {
                    take_by_place(view, isolation.range, walk, count, &mut taken);
                }
                if taken.is_empty() {
                    take_from_lists(view, count, &mut taken);
                }
            }
        }
        let mut targets = Frames::new();
        for pfn in taken.iter().rev().copied() {
            let finished = self.finish_allocation(pfn, Order::ZERO, MigrateType::Movable, flags);
            if finished.is_ok() && self.passes_checks(pfn, Order::ZERO) {
                targets.push(pfn);
            }
        }
        targets
    }

    /// Allocates memory for a block, outside the isolated pageblocks; has some reclaimed where there is none.
    pub(super) fn target_for(&self, isolation: &Isolation<'_, P>, block: Block, owners: &Owners<'_>) -> Option<Pfn> {
        let (node, flags) = (isolation.zone.node(), target_flags(isolation.patience));
        for _ in 0..TARGET_TRIES {
            match self.alloc_on(node, block.order, flags) {
                // A late free put this frame on a per-CPU list. Freed now, it goes to the isolated lists.
                Ok(pfn) if isolation.range.contains(pfn) => self.release(pfn, block.order),
                Ok(pfn) => return Some(pfn),
                Err(_) if isolation.patience == Patience::Spins => return None,
                Err(_) => {
                    let wanted = PageCount(block.order.pages().0.max(32));
                    let (highest_zone, order) = (flags.highest_zone(), block.order);
                    let request = ReclaimRequest { node, highest_zone, order, wanted };
                    if owners.reclaimer()?.reclaim(request).0 == 0 {
                        return None;
                    }
                }
            }
        }
        None
    }
}

/// Takes frames of a zone's clean regions outside a range.
fn take_by_place<P: Platform>(
    view: ZoneView<'_, P>,
    range: PfnRange,
    walk: &mut TargetWalk,
    count: usize,
    taken: &mut Frames,
) {
    if walk.zone != Some(view.id) {
        *walk = TargetWalk { zone: Some(view.id), ..TargetWalk::default() };
    }
    while taken.len() < count
        && let Some(end) = next_pageblock(view, range, walk)
    {
        let heads = free_heads(view, walk, end, count - taken.len());
        if heads.is_empty() {
            continue;
        }
        let Ok(mut locked) = view.lock() else { return };
        for head in heads.iter() {
            locked.take_singles(*head, count - taken.len(), |locked, pfn| take_single(locked, pfn, taken));
        }
    }
}

/// Takes what the free lists would give an ordinary request. No block of an isolated pageblock is among it.
fn take_from_lists<P: Platform>(view: ZoneView<'_, P>, count: usize, taken: &mut Frames) {
    let (order, migrate_type) = (Order::ZERO, MigrateType::Movable);
    let request = BlockRequest { order, migrate_type, cma: CmaUse::Allowed, fallback: Fallback::Allowed };
    let Ok(mut locked) = view.lock() else { return };
    locked.take_blocks(request, count, |locked, block| take_single(locked, locked.map.pfn(block), taken));
    taken.iter().for_each(|_| locked.count_direct_allocation(order));
}

fn take_single<P: Platform>(locked: &LockedZone<'_, P>, pfn: Pfn, taken: &mut Frames) {
    locked.tag_block(pfn, FrameState::Allocated, Order::ZERO, MigrateType::Movable);
    taken.push(pfn);
}

/// Moves a walk to a pageblock with free frames that is not whole, unless it is in one; the frame behind it. `None` at the end.
fn next_pageblock<P: Platform>(view: ZoneView<'_, P>, range: PfnRange, walk: &mut TargetWalk) -> Option<Pfn> {
    let pages = view.geometry.largest_order().pages();
    let is_outside = |start: Pfn| PfnRange::new(start, pages).intersection(range).is_empty();
    loop {
        let left = walk.region.is_some_and(|(_, start)| walk.at < start + pages);
        if !left {
            let clean = view.own_regions().filter(|(start, region)| region.tainting() == 0 && is_outside(*start));
            let ranked = clean.map(|(start, region)| (region.free(), start));
            let next = ranked.filter(|found| walk.region.is_none_or(|last| *found > last)).min()?;
            *walk = TargetWalk { region: Some(next), at: next.1, ..*walk };
        }
        let free = view.listed_in_pageblock(walk.at.place(&view.map));
        let end = view.blocks.start_of(walk.at) + view.blocks.pages();
        if free > 0 && view.blocks.get(walk.at) == MigrateType::Movable {
            return Some(end);
        }
        walk.at = end;
    }
}

/// The next free blocks of a walk, up to a number of frames. Read without the lock. Prefetches their neighbours on the list.
fn free_heads<P: Platform>(view: ZoneView<'_, P>, walk: &mut TargetWalk, end: Pfn, count: usize) -> Frames {
    let (mut heads, mut pages) = (Frames::new(), PageCount(0));
    while walk.at < end && pages.0 < count as u64 {
        let page = view.page(walk.at);
        let tag = page.tag_ahead();
        if walk.at + AHEAD < end {
            view.page(walk.at + AHEAD).prefetch();
        }
        let mut length = PageCount(1);
        if tag.is(FrameState::BuddyFree) && tag.order() < view.geometry.pageblock_order() {
            heads.push(walk.at);
            store::prefetch_neighbours(view, walk.at);
            length = tag.order().pages();
            pages += length;
        }
        walk.at = walk.at + length;
    }
    heads
}
