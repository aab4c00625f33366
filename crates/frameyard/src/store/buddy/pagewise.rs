//! Page-wise transfer: blocks move between a per-CPU list and the free lists one by one under the zone lock.
//!
//! Every other mechanism falls back to this one, and is compared with it. [`Knobs`] select the published variants: how often the
//! zone lock is taken, what is prefetched, and how a drain picks its blocks.
//!
//! By default a refill or drain takes the zone lock once, however many blocks it moves. A drain picks its blocks before it takes
//! the lock, without a look at their pages, and reads the pages of their buddies on every level. So merging under the lock finds its
//! cache lines. It frees neighbours as one block. The kernel does less: it picks under the lock and reads nothing ahead (up to 4.16),
//! or reads only first buddies (from 4.17 on, `free_pcppages_bulk`), and frees each page by itself.

use crate::memmap::{Located, MapBlock, MapPlace};
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::store::RefillRequest;
use crate::store::batch::{BATCH, Batch};
use crate::units::{CpuId, Order, PageCount};
use crate::zone::fixed_vec::FixedVec;
use crate::zone::request::BlockRequest;
use crate::zone::view::{ListRules, LockedZone, ZoneView};

mod prefetching;
mod single;

/// Whether the variants beside `vanilla` are compiled in.
pub(crate) const HAS_VARIANTS: bool = cfg!(feature = "policy-pagewise-variants");

/// The limits of a CPU's lists in a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListLimits {
    /// The most frames that the lists hold.
    pub(crate) high: u32,
    /// The frames that move at once.
    pub(crate) batch: u32,
}

/// The limits under `big-pcp`. (Small in models, whose yards are small.)
pub(crate) const BIG_LISTS: ListLimits =
    if cfg!(loom) { ListLimits { high: 12, batch: 2 } } else { ListLimits { high: 65532, batch: 10922 } };

/// How pages move one by one. The knobs of the published variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Knobs {
    /// One lock acquisition per refill or drain; a drain reads ahead.
    Batched,
    /// As `Batched`; a refill prefetches the next page of a list while it takes the current one.
    PrefetchNext,
    /// As `Batched`; a refill prefetches the pages of a list before it takes the lock.
    PrefetchBeforeLock,
    /// One lock acquisition per page.
    LockPerPage,
    /// One lock acquisition per refill or drain; a drain picks its blocks under the lock, reads nothing ahead and frees each by
    /// itself (the kernel up to 4.16).
    PickUnderLock,
    /// One lock acquisition per refill or drain; a drain reads ahead the buddies of its blocks and frees each by itself (the kernel
    /// from 4.17 on).
    FirstBuddies,
}

impl Knobs {
    /// Fetches blocks for a refill; returns their number.
    #[inline(never)]
    pub(crate) fn fetch<P: Platform>(
        self,
        view: ZoneView<'_, P>,
        refill: RefillRequest,
        deliver: impl FnMut(&Batch),
    ) -> usize {
        match self {
            Self::PrefetchNext if HAS_VARIANTS => prefetching::fetch(view, refill, deliver),
            Self::PrefetchBeforeLock if HAS_VARIANTS => {
                prefetching::ahead_of_lock(view, refill);
                fetch(view, refill, deliver)
            }
            Self::LockPerPage if HAS_VARIANTS => single::fetch(view, refill, deliver),
            _ => fetch(view, refill, deliver),
        }
    }

    /// Takes the zone lock if blocks are picked under it.
    pub(crate) fn before_picking<'a, P: Platform>(
        self,
        locked: &mut Option<LockedZone<'a, P>>,
        view: ZoneView<'a, P>,
        cpu: CpuId,
    ) {
        if HAS_VARIANTS && self == Self::PickUnderLock {
            let _ = view.lock_unless(locked, cpu);
        }
    }

    /// Frees a batch.
    pub(crate) fn give_back<'a, P: Platform>(
        self,
        locked: &mut Option<LockedZone<'a, P>>,
        view: ZoneView<'a, P>,
        cpu: CpuId,
        batch: &Batch,
        order: Order,
    ) {
        match self {
            Self::LockPerPage if HAS_VARIANTS => {
                *locked = None;
                single::give_back_each(view, cpu, batch, order);
            }
            Self::PickUnderLock if HAS_VARIANTS => single::give_back(locked, view, cpu, batch, order),
            Self::FirstBuddies if HAS_VARIANTS => {
                single::read_buddies_ahead(locked.as_ref(), view, batch, order);
                single::give_back(locked, view, cpu, batch, order);
            }
            _ => give_back(locked, view, cpu, batch, order),
        }
    }
}

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
fn buddy_at<P: Platform>(view: ZoneView<'_, P>, place: MapPlace, order: Order) -> MapPlace {
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
fn blocks_of<P: Platform>(view: ZoneView<'_, P>, batch: &Batch, order: Order) -> impl Iterator<Item = MapBlock> {
    batch.iter().map(move |entry| MapBlock { head: view.map.checked(*entry), order })
}

/// Prefetches the neighbours of a block on its list, if its links still lead into the map.
pub(crate) fn prefetch_neighbours<P: Platform>(view: ZoneView<'_, P>, block: impl Located) {
    let page = view.page(block);
    for neighbour in [page.next(), page.prev()].into_iter().filter_map(|link| view.map.next(link)) {
        view.page(neighbour).prefetch();
    }
}
