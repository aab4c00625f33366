//! Page by page over the free lists, under the zone lock: what every other way is compared with.
//!
//! The lock is taken once for a refill or a drain, however many frames it moves. Before a drain takes it, the frames are
//! picked without looking at their pages, and the pages of their buddies are read, so that merging under the lock finds its
//! lines.

use super::Batch;
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{CpuId, Order, PageCount, Pfn, PfnRange};
use crate::zone::pcp::packed::BATCH;
use crate::zone::{BlockRequest, LockedZone, ZoneView, pieces};

/// Fetches blocks under one hold of the zone lock.
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    cpu: CpuId,
    wanted: usize,
    deliver: impl FnMut(&Batch),
) -> usize {
    fetch_locked(view.lock_for(cpu), request, wanted, deliver, |_| ())
}

/// As [`fetch`], with the lock held already, which it gives back; calls `taken` after each block was taken.
pub(super) fn fetch_locked<P: Platform>(
    mut locked: LockedZone<'_, P>,
    request: BlockRequest,
    wanted: usize,
    mut deliver: impl FnMut(&Batch),
    mut taken: impl FnMut(&LockedZone<'_, P>),
) -> usize {
    let mut got = 0;
    while got < wanted {
        let picked = take_from_zone(&mut locked, request, (wanted - got).min(BATCH), &mut taken);
        if picked.len == 0 {
            break;
        }
        deliver(&picked);
        got += picked.len;
    }
    locked.count_moved(PageCount((got as u64) << request.order.0));
    got
}

fn take_from_zone<P: Platform>(
    locked: &mut LockedZone<'_, P>,
    request: BlockRequest,
    count: usize,
    taken: &mut impl FnMut(&LockedZone<'_, P>),
) -> Batch {
    let mut picked = Batch::none();
    let BlockRequest { order, migrate_type, .. } = request;
    locked.take_blocks(request, count, |locked, pfn| {
        locked.tag_block(pfn, FrameState::PerCpu, order, migrate_type);
        picked.push(locked.map.index(pfn));
        taken(locked);
    });
    picked
}

/// Frees picked blocks to the zone, taking its lock where it is not held yet.
///
/// Runs of neighbours are joined into the blocks that merging them one by one would give, without putting each
/// on a list in between.
pub(super) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    picked: &Batch,
    order: Order,
) {
    if locked.is_none() {
        read_ahead(view, picked, order);
    }
    let locked = locked.get_or_insert_with(|| view.lock_for(cpu));
    locked.count_moved(PageCount((picked.len as u64) << order.0));
    let mut rest = picked.entries();
    while let Some((first, others)) = rest.split_first() {
        let step = order.pages().0 as u32;
        if others.first().is_none_or(|next| next.abs_diff(*first) != step) {
            let pfn = view.map.pfn(*first);
            locked.free_by_type(pfn, order);
            rest = others;
            continue;
        }
        let run = run_length(*first, others, order);
        rest = &others[run.blocks - 1..];
        free_run(locked, PfnRange::new(view.map.pfn(run.lowest), PageCount((run.blocks as u64) << order.0)), order);
    }
}

/// Blocks that follow each other in the map, whichever way round they were picked.
struct Run {
    lowest: u32,
    blocks: usize,
}

fn run_length(first: u32, others: &[u32], order: Order) -> Run {
    let step = order.pages().0 as u32;
    let follows = |step: u32| {
        let expected = core::iter::successors(Some(first.wrapping_add(step)), |at| Some(at.wrapping_add(step)));
        others.iter().zip(expected).take_while(|(at, expected)| *at == expected).count()
    };
    let up = follows(step);
    if up > 0 {
        return Run { lowest: first, blocks: 1 + up };
    }
    let down = follows(step.wrapping_neg());
    Run { lowest: first.wrapping_sub(down as u32 * step), blocks: 1 + down }
}

/// Frees neighbouring blocks of one order as the largest aligned blocks, each within one pageblock.
fn free_run<P: Platform>(locked: &mut LockedZone<'_, P>, run: PfnRange, order: Order) {
    let largest = locked.geometry.pageblock_order().max(order);
    for (pfn, joined) in pieces(run, largest) {
        let mut inner = pfn + order.pages();
        while inner < pfn + joined.pages() {
            locked.page(inner).set_tag(Tag::INTERIOR);
            inner = inner + order.pages();
        }
        locked.free_by_type(pfn, joined);
    }
}

/// The block that a block of `order` around this entry's frame would merge with.
fn buddy_at<P: Platform>(view: ZoneView<'_, P>, index: u32, order: Order) -> Pfn {
    view.map.pfn(index).align_down(order).buddy(order)
}

/// Goes the way that merging will go, all entries side by side and an order at a time, before the lock is taken:
/// reads the buddies that merging will look at, and prefetches their neighbours on the list.
///
/// The reads of a step depend on nothing and are all made before any is looked at, so their misses overlap; so
/// many prefetches would be dropped. What is read may be stale; it only decides what is read next.
pub(super) fn read_ahead<P: Platform>(view: ZoneView<'_, P>, picked: &Batch, order: Order) {
    let mut merging = Batch { entries: picked.entries, len: picked.len };
    let mut tags = [Tag::INTERIOR; BATCH];
    let mut order = order;
    while merging.len > 0 && order < view.geometry.max_order() {
        for (tag, index) in tags.iter_mut().zip(merging.entries()) {
            *tag = view.page(buddy_at(view, *index, order)).tag_ahead();
            if order.0 + 1 < view.geometry.max_order().0 {
                view.page(buddy_at(view, *index, Order(order.0 + 1))).tag_ahead();
            }
        }
        let mut goes_on = Batch::none();
        for (tag, index) in tags.iter().zip(merging.entries()) {
            if tag.is_free_buddy(order, view.id) {
                prefetch_neighbours(view, buddy_at(view, *index, order));
                goes_on.push(*index);
            }
        }
        merging = goes_on;
        order.0 += 1;
    }
}

/// Prefetches the blocks next to a block on its list, if its links still lead somewhere.
fn prefetch_neighbours<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn) {
    let page = view.page(pfn);
    for neighbour in [page.next(), page.prev()].into_iter().filter_map(|link| view.map.check(view.map.linked(link)?)) {
        view.page(neighbour).prefetch();
    }
}
