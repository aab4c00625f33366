//! Page-wise transfer: blocks move between a per-CPU list and the free lists one by one under the zone lock.
//!
//! The [published](crate::store::published) ways are compared with this one, and fall back to it.
//!
//! A refill or drain takes the zone lock once, however many blocks it moves. A drain picks its blocks before it takes
//! the lock, without looking at their pages, and reads the pages of their buddies at every order, so that merging under
//! the lock hits the cache. It frees neighbours as one block. The kernel does less: it picks under the lock and reads
//! nothing ahead (up to 4.16), or reads only first buddies (from 4.17 on, `free_pcppages_bulk`), and frees each page by
//! itself.

use crate::memmap::{Located, MapBlock, MapPlace};
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::store::RefillRequest;
use crate::store::batch::{BATCH, Batch};
use crate::units::{CpuId, Order, PageCount};
use crate::zone::fixed_vec::FixedVec;
use crate::zone::request::BlockRequest;
use crate::zone::view::{ListRules, LockedZone, ZoneView};

/// Fetches blocks under one hold of the zone lock.
#[inline(never)]
pub(crate) fn fetch<P: Platform>(view: ZoneView<'_, P>, refill: RefillRequest, deliver: impl FnMut(&Batch)) -> usize {
    let Some(locked) = view.lock_for(refill.cpu) else { return 0 };
    fetch_locked(locked, refill.blocks, refill.wanted, deliver, |_| ())
}

/// As [`fetch`], under a lock that the caller holds and this call drops. Calls `taken` after each block.
pub(crate) fn fetch_locked<P: Platform>(
    mut locked: LockedZone<'_, P>,
    request: BlockRequest,
    wanted: usize,
    mut deliver: impl FnMut(&Batch),
    mut taken: impl FnMut(&LockedZone<'_, P>),
) -> usize {
    let BlockRequest { order, migrate_type, .. } = request;
    let (mut batch, mut got) = (Batch::new(), 0);
    while got < wanted {
        batch.clear();
        locked.take_blocks(request, (wanted - got).min(BATCH), |locked, block| {
            locked.tag_block(block, FrameState::PerCpu, order, migrate_type);
            batch.push(block.index());
            taken(locked);
        });
        if batch.is_empty() {
            break;
        }
        deliver(&batch);
        got += batch.len();
    }
    locked.count_moved(PageCount((got as u64) << order.0));
    got
}

/// Frees a batch to the zone; takes the zone lock unless it is held already.
///
/// Neighbours are joined first, into the blocks that merging them one by one would give, without a list operation for each.
pub(crate) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    batch: &Batch,
    order: Order,
) {
    if locked.is_none() {
        read_ahead(view, blocks_of(view, batch, order));
    }
    let Some(locked) = view.lock_unless(locked, cpu) else { return };
    locked.count_moved(PageCount((batch.len() as u64) << order.0));
    free_batch(locked, batch, order);
}

/// Frees single frames of isolated pageblocks past the per-CPU lists, under one hold of the zone lock. They ascend.
///
/// Free blocks between them join them before they go on a list, so most frames join one once.
pub(crate) fn give_back_isolated<P: Platform>(view: ZoneView<'_, P>, batch: &Batch) {
    let Some(first) = batch.first() else { return };
    read_ahead(view, blocks_of(view, batch, Order::ZERO));
    let Ok(mut locked) = view.lock() else { return };
    let mut run = *first..*first;
    for at in batch.iter().copied() {
        while run.end < at
            && let Some(order) = locked.take_isolated(view.map.checked(run.end))
        {
            run.end += 1 << order.0;
        }
        if run.end != at {
            free_run(&mut locked, &Run { lowest: run.start, blocks: run.len() }, Order::ZERO);
            run = at..at;
        }
        run.end += 1;
        locked.count_direct_free(Order::ZERO);
    }
    free_run(&mut locked, &Run { lowest: run.start, blocks: run.len() }, Order::ZERO);
}

fn free_batch<P: Platform>(locked: &mut LockedZone<'_, P>, batch: &Batch, order: Order) {
    let view: ZoneView<'_, P> = **locked;
    let mut rest = &batch[..];
    while let Some((first, others)) = rest.split_first() {
        let step = order.pages().0 as u32;
        if others.first().is_none_or(|next| next.abs_diff(*first) != step) {
            locked.free_by_type(view.map.checked(*first), order);
            rest = others;
            continue;
        }
        let run = run_length(*first, others, order);
        rest = &others[run.blocks - 1..];
        free_run(locked, &run, order);
    }
}

/// Blocks that are neighbours in the map, in ascending or descending order of picking.
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

/// Frees neighbouring blocks of one order as the largest aligned blocks that lie within one pageblock each.
fn free_run<P: Platform>(locked: &mut LockedZone<'_, P>, run: &Run, order: Order) {
    let view: ZoneView<'_, P> = **locked;
    let largest = view.geometry.pageblock_order().max(order);
    for MapBlock { head, order: joined } in view.blocks_at(run.lowest, run.blocks << order.0, largest) {
        for inner in 1..1 << (joined.0 - order.0) {
            locked.page(head.part(joined, inner << order.0)).set_tag(Tag::INTERIOR);
        }
        locked.free_by_type(head, joined);
    }
}

/// The block that the block of `order` around this place would merge with.
pub(in crate::store) fn buddy_at<P: Platform>(view: ZoneView<'_, P>, place: MapPlace, order: Order) -> MapPlace {
    view.map.buddy(view.map.head(place, order), order)
}

/// Reads, before the lock is taken, the buddies that merging will read, level by level for up to [`BATCH`] blocks at a time, and prefetches
/// the buddies' neighbours on their lists.
///
/// The values may be stale; they only decide what is read next.
pub(crate) fn read_ahead<P: Platform>(view: ZoneView<'_, P>, mut blocks: impl Iterator<Item = MapBlock>) {
    loop {
        let mut merging = Merging::new();
        blocks.by_ref().take(BATCH).for_each(|block| merging.push(block));
        if merging.is_empty() {
            return;
        }
        while !merging.is_empty() {
            merging = read_level(view, &merging);
        }
    }
}

type Merging = FixedVec<MapBlock, BATCH>;

/// Reads the buddies of blocks. Returns those that will merge, one order higher.
///
/// All reads of a level are issued before the first result is used, so their misses overlap; the same number of prefetches
/// would be dropped.
fn read_level<P: Platform>(view: ZoneView<'_, P>, blocks: &Merging) -> Merging {
    let largest = view.geometry.max_order();
    let mut tags = [Tag::INTERIOR; BATCH];
    let may_merge = || blocks.iter().copied().filter(|block| block.order < largest);
    for (tag, MapBlock { head, order }) in tags.iter_mut().zip(may_merge()) {
        *tag = view.page(buddy_at(view, head, order)).tag_ahead();
        if order.0 + 1 < largest.0 {
            view.page(buddy_at(view, head, Order(order.0 + 1))).tag_ahead();
        }
    }
    let mut merging = Merging::new();
    for (tag, MapBlock { head, order }) in tags.iter().zip(may_merge()) {
        if tag.is_free_buddy(order, view.id) {
            prefetch_neighbours(view, buddy_at(view, head, order));
            merging.push(MapBlock { head, order: Order(order.0 + 1) });
        }
    }
    merging
}

/// The blocks of a batch.
pub(in crate::store) fn blocks_of<P: Platform>(
    view: ZoneView<'_, P>,
    batch: &Batch,
    order: Order,
) -> impl Iterator<Item = MapBlock> {
    batch.iter().map(move |entry| MapBlock { head: view.map.checked(*entry), order })
}

/// Prefetches the neighbours of a block on its list, if its links still lead into the map.
pub(crate) fn prefetch_neighbours<P: Platform>(view: ZoneView<'_, P>, block: impl Located) {
    let page = view.page(block);
    for neighbour in [page.next(), page.prev()].into_iter().filter_map(|link| view.map.next(link)) {
        view.page(neighbour).prefetch();
    }
}
