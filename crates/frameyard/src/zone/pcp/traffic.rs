//! What crosses between per-CPU lists and the zone: refilling, draining, and the packed batches in between.
//!
//! The zone lock is taken once for a refill or a drain, however many frames it moves. Before a drain takes it,
//! the frames are picked from the array, without looking at their pages, and the pages of their buddies are
//! prefetched, so that merging under the lock finds its lines.

use super::packed::{self, BATCH};
use super::{ARRAY, Group, ListId, LockedPcp, PcpList, add, sub};
use crate::page::{FrameState, Link, Tag};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{Order, PageCount, Pfn, PfnRange};
use crate::zone::fallback::BlockRequest;
use crate::zone::{LockedZone, ZoneView, add_exclusive, pieces};

/// What a refill may take from the zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    pub(crate) list: ListId,
    pub(crate) request: BlockRequest,
}

/// Up to one batch of entries of one list on their way.
struct Picked {
    entries: [u32; BATCH],
    len: usize,
}

impl Picked {
    fn none() -> Self {
        Self { entries: [0; BATCH], len: 0 }
    }

    fn entries(&self) -> &[u32] {
        &self.entries[..self.len]
    }
}

impl PcpList {
    fn len(&self) -> usize {
        (self.len.load(Ordering::Relaxed) as usize).min(ARRAY)
    }

    fn chain(&self) -> Link {
        Link(self.chain.load(Ordering::Relaxed))
    }

    fn is_empty(&self) -> bool {
        self.len() == 0 && self.chain() == Link::NONE
    }

    /// Takes the oldest entries of the array, and moves the others down.
    fn take_oldest(&self, count: usize) -> Picked {
        let mut picked = Picked::none();
        let len = self.len();
        picked.len = count.min(len).min(BATCH);
        for (entry, slot) in picked.entries.iter_mut().zip(&self.entries[..picked.len]) {
            *entry = slot.load(Ordering::Relaxed);
        }
        for at in picked.len..len {
            self.entries[at - picked.len].store(self.entries[at].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.len.store((len - picked.len) as u32, Ordering::Relaxed);
        picked
    }

    /// Appends entries to the array, which has room for them.
    fn append(&self, entries: impl ExactSizeIterator<Item = u32>) {
        let len = self.len();
        let end = len + entries.len();
        for (slot, entry) in self.entries[len..end].iter().zip(entries) {
            slot.store(entry, Ordering::Relaxed);
        }
        self.len.store(end as u32, Ordering::Relaxed);
    }

    fn push_batch<P: Platform>(&self, view: ZoneView<'_, P>, entries: &[u32]) {
        let leader = packed::pack(view.map, view.platform, entries, self.chain());
        self.chain.store(leader.0, Ordering::Relaxed);
    }

    fn pop_batch<P: Platform>(&self, view: ZoneView<'_, P>) -> Picked {
        let mut picked = Picked::none();
        let chain = self.chain();
        if chain != Link::NONE {
            let unpacked = packed::unpack(view.map, view.platform, chain, &mut picked.entries);
            picked.len = unpacked.len;
            self.chain.store(unpacked.next.0, Ordering::Relaxed);
        }
        picked
    }
}

impl<P: Platform> LockedPcp<'_, P> {
    /// Takes an entry of a list, from a packed batch or the zone where the array is empty.
    ///
    /// With `refill` absent the zone is left alone.
    #[inline(never)]
    pub(crate) fn pop_slow(&mut self, view: ZoneView<'_, P>, id: ListId, refill: Option<Refill>) -> Option<u32> {
        let order = id.order(view.geometry);
        if let Some(index) = self.pop(id, order) {
            return Some(index);
        }
        let list = self.list(id);
        if list.chain() != Link::NONE {
            let picked = list.pop_batch(view);
            list.append(picked.entries().iter().copied());
        } else if let Some(refill) = refill {
            self.refill(view, refill);
        }
        self.pop(id, order)
    }

    /// Adds an entry where the array is full or the limit reached: makes room, or frees to the zone.
    #[inline(never)]
    pub(crate) fn push_slow(&mut self, view: ZoneView<'_, P>, id: ListId, index: u32) {
        let order = id.order(view.geometry);
        if self.push(id, order, index) {
            return;
        }
        if !self.has_room(id, order) {
            let batch = self.pcp.batch_racy().0.max(order.pages().0);
            self.drain_group(view, id, PageCount(batch));
        }
        let list = self.list(id);
        if list.len() == ARRAY {
            let oldest = list.take_oldest(BATCH);
            list.push_batch(view, oldest.entries());
        }
        if !self.push(id, order, index) {
            let mut picked = Picked::none();
            picked.entries[0] = index;
            picked.len = 1;
            free_picked(&mut None, view, &picked, order);
        }
    }

    fn has_room(&self, id: ListId, order: Order) -> bool {
        let group = id.group() as usize;
        self.pcp.room[group].load(Ordering::Relaxed) as i32 >= order.pages().0 as i32
    }

    /// How many blocks a refill of an empty list fetches (the kernel's `nr_pcp_alloc`, without its ramp).
    fn refill_blocks(&self, id: ListId, order: Order) -> usize {
        let batch = self.pcp.batch_racy().0;
        let blocks = match id.group() {
            Group::Huge => {
                let high = self.pcp.high[Group::Huge as usize].load(Ordering::Relaxed);
                u64::from(high) >> order.0 >> 1
            }
            Group::Small if order.0 > 0 && batch > 1 => (batch >> order.0).max(2),
            Group::Small => batch,
        };
        blocks.max(1) as usize
    }

    /// Fetches a batch from the zone into an empty list, or as much of one as there is.
    fn refill(&mut self, view: ZoneView<'_, P>, refill: Refill) {
        let wanted = self.refill_blocks(refill.list, refill.request.order);
        let list = self.list(refill.list);
        let mut got = 0;
        let mut locked = view.lock();
        while got < wanted {
            let picked = take_from_zone(&mut locked, refill.request, (wanted - got).min(BATCH));
            if picked.len == 0 {
                break;
            }
            if got == 0 {
                // Reversed, so that frames are handed out in the order the zone gave them: ascending.
                list.append(picked.entries().iter().rev().copied());
            } else {
                list.push_batch(view, picked.entries());
            }
            got += picked.len;
        }
        locked.count_moved(PageCount((got as u64) << refill.request.order.0));
        drop(locked);
        let pages = (got as u64 * refill.request.order.pages().0) as u32;
        sub(&self.pcp.room[refill.list.group() as usize], pages);
        add_exclusive(&self.pcp.counts.refills, 1);
    }

    /// Gives at least `pages` frames of a list and those that share its limit back to the zone, if they hold as many.
    fn drain_group(&mut self, view: ZoneView<'_, P>, first: ListId, pages: PageCount) {
        let mut left = pages.0;
        let mut locked = None;
        for id in first.group_from() {
            let order = id.order(view.geometry);
            let list = self.list(id);
            while left > 0 && !list.is_empty() {
                let wanted = left.div_ceil(order.pages().0).min(BATCH as u64) as usize;
                let mut picked = list.take_oldest(wanted);
                if picked.len == 0 {
                    picked = list.pop_batch(view);
                }
                let freed = picked.len as u64 * order.pages().0;
                add(&self.pcp.room[id.group() as usize], freed as u32);
                free_picked(&mut locked, view, &picked, order);
                left = left.saturating_sub(freed);
            }
        }
        if locked.is_some() {
            add_exclusive(&self.pcp.counts.drains, 1);
        }
    }

    /// Gives everything back to the zone.
    pub(crate) fn drain(&mut self, view: ZoneView<'_, P>) {
        for group in [Group::Small, Group::Huge] {
            self.drain_group(view, ListId::first(group), PageCount(u64::MAX));
        }
    }

    /// Visits every entry of every list, packed ones included: its list and its index.
    pub(crate) fn for_each_entry(&self, view: ZoneView<'_, P>, mut visit: impl FnMut(ListId, u32)) {
        for id in ListId::all() {
            let list = self.list(id);
            for slot in &list.entries[..list.len()] {
                visit(id, slot.load(Ordering::Relaxed));
            }
            let mut chain = list.chain();
            while chain != Link::NONE {
                let mut entries = [0; BATCH];
                let found = packed::read(view.map, view.platform, chain, &mut entries);
                for entry in &entries[..found.len] {
                    visit(id, *entry);
                }
                chain = found.next;
            }
        }
    }
}

fn take_from_zone<P: Platform>(locked: &mut LockedZone<'_, P>, request: BlockRequest, count: usize) -> Picked {
    let mut picked = Picked::none();
    let BlockRequest { order, migrate_type, .. } = request;
    locked.take_blocks(request, count, |locked, pfn| {
        locked.tag_block(pfn, FrameState::PerCpu, order, migrate_type);
        picked.entries[picked.len] = locked.map.index(pfn);
        picked.len += 1;
    });
    picked
}

/// Frees picked blocks to the zone, taking its lock where it is not held yet.
///
/// Runs of neighbours are joined into the blocks that merging them one by one would give, without putting each
/// on a list in between.
fn free_picked<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    picked: &Picked,
    order: Order,
) {
    if locked.is_none() {
        read_ahead(view, picked, order);
    }
    let locked = locked.get_or_insert_with(|| view.lock());
    locked.count_moved(PageCount((picked.len as u64) << order.0));
    let mut rest = picked.entries();
    while let Some((first, others)) = rest.split_first() {
        let step = order.pages().0 as u32;
        if others.first().is_none_or(|next| next.abs_diff(*first) != step) {
            let pfn = view.map.pfn(*first);
            locked.free_block(pfn, order, view.blocks.get(pfn));
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
        let migrate_type = locked.blocks.get(pfn);
        locked.free_block(pfn, joined, migrate_type);
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
fn read_ahead<P: Platform>(view: ZoneView<'_, P>, picked: &Picked, order: Order) {
    let mut merging = Picked { entries: picked.entries, len: picked.len };
    let mut tags = [Tag::INTERIOR; BATCH];
    let mut order = order;
    while merging.len > 0 && order < view.geometry.max_order() {
        for (tag, index) in tags.iter_mut().zip(merging.entries()) {
            *tag = view.page(buddy_at(view, *index, order)).tag();
            if order.0 + 1 < view.geometry.max_order().0 {
                view.page(buddy_at(view, *index, Order(order.0 + 1))).tag();
            }
        }
        let mut goes_on = Picked::none();
        for (tag, index) in tags.iter().zip(merging.entries()) {
            if tag.is_free_buddy(order, view.id) {
                prefetch_neighbours(view, buddy_at(view, *index, order));
                goes_on.entries[goes_on.len] = *index;
                goes_on.len += 1;
            }
        }
        merging = goes_on;
        order.0 += 1;
    }
}

/// Prefetches the blocks next to a block on its list, if its links still lead somewhere.
fn prefetch_neighbours<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn) {
    let page = view.page(pfn);
    for neighbour in [page.next(), page.prev()].into_iter().filter_map(|link| view.map.linked(link)) {
        if view.map.range().contains(neighbour) {
            view.page(neighbour).prefetch();
        }
    }
}
