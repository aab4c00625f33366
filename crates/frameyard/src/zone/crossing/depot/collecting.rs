//! Bringing batches back to the free lists: a bite of several at a time, sorted and joined before the zone lock is taken.
//!
//! What is joined stays in the hands of the collector until it is free, and is counted in the depot until then.

use super::{BatchStack, DepotState, wait_for_collectors};
use crate::page::{FrameState, Link, Tag};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::crossing::CutStalled;
use crate::zone::pcp::packed::{self, BATCH};
use crate::zone::{ZoneView, pieces};

/// How many batches are merged under one hold of the zone lock.
const BATCHES: usize = if cfg!(loom) { 2 } else { 16 };
const FRAMES: usize = BATCHES * BATCH;

/// Says, as long as it lives, that somebody has batches of a zone's depot in his hands.
struct Collecting<'a>(&'a DepotState);

impl<'a> Collecting<'a> {
    fn begin<P: Platform>(view: ZoneView<'a, P>) -> Self {
        let state = &view.zone.crossing.depot;
        // Seen by whoever finds a stack empty from which the caller has popped then, by the Release there.
        state.collectors.fetch_add(1, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `wait_for_collectors`.
        self.0.collectors.fetch_sub(1, Ordering::Release);
    }
}

/// Brings all that is in the depot back to the free lists, and waits for others who are at it.
///
/// # Errors
///
/// [`CutStalled`] where somebody else has batches in his hands after a bounded wait.
pub(crate) fn collect<P: Platform>(view: ZoneView<'_, P>) -> Result<(), CutStalled> {
    if !view.is_depot_empty_racy() {
        collect_all(view);
    }
    wait_for_collectors(view)
}

/// Brings all that is in the depot back to the free lists.
fn collect_all<P: Platform>(view: ZoneView<'_, P>) {
    let _collecting = Collecting::begin(view);
    for stack in view.depot.stacks() {
        let mut chain = stack.detach(view.map);
        while chain != Link::NONE {
            let mut bite = Bite::new();
            while chain != Link::NONE && bite.has_room() {
                chain = bite.take_in(view, chain);
            }
            let batches = bite.batches;
            bite.free(view);
            stack.count_collected(batches);
        }
    }
}

/// Brings batches back to the free lists until there is enough, or nothing left of what there was.
pub(super) fn collect_until<P: Platform>(view: ZoneView<'_, P>, enough: impl Fn() -> bool) {
    let _collecting = Collecting::begin(view);
    for stack in view.depot.stacks() {
        // No more than there are now: others may push as fast.
        let mut left = stack.batches_racy();
        while left > 0 && !enough() {
            let mut bite = Bite::new();
            let batches = bite.fill_from(view, stack, left);
            if batches == 0 {
                break;
            }
            bite.free(view);
            stack.count_collected(batches);
            left = left.saturating_sub(batches);
        }
    }
}

/// Merges a batch that was on no stack, and with it up to `most` of the stack, as one hold of the lock is good for.
pub(super) fn merge_with<P: Platform>(view: ZoneView<'_, P>, leader: Link, stack: &BatchStack, most: u64) {
    let _collecting = Collecting::begin(view);
    let mut bite = Bite::new();
    bite.take_in(view, leader);
    let batches = bite.fill_from(view, stack, most);
    bite.free(view);
    stack.count_collected(batches);
}

/// Frames of several batches, to be freed together.
struct Bite {
    entries: [u32; FRAMES],
    len: usize,
    batches: u64,
}

impl Bite {
    fn new() -> Self {
        Self { entries: [0; FRAMES], len: 0, batches: 0 }
    }

    fn has_room(&self) -> bool {
        self.len + BATCH <= FRAMES
    }

    /// Unpacks a batch that is the caller's; the leader that it was linked to.
    fn take_in<P: Platform>(&mut self, view: ZoneView<'_, P>, leader: Link) -> Link {
        let mut entries = [0; BATCH];
        let found = packed::unpack(view.map, view.platform, leader, &mut entries);
        self.entries[self.len..self.len + found.len].copy_from_slice(&entries[..found.len]);
        self.len += found.len;
        self.batches += 1;
        found.next
    }

    /// Pops up to `most` batches as long as there is room; how many.
    fn fill_from<P: Platform>(&mut self, view: ZoneView<'_, P>, stack: &BatchStack, most: u64) -> u64 {
        let before = self.batches;
        while self.has_room()
            && self.batches - before < most
            && let Some(leader) = stack.pop(view.map, view.platform)
        {
            self.take_in(view, leader);
        }
        self.batches - before
    }

    /// Frees the frames, each to the lists of the type that its pageblock has now.
    fn free<P: Platform>(mut self, view: ZoneView<'_, P>) {
        let mut orders = [0; FRAMES];
        let blocks = self.join(view, &mut orders);
        let joined =
            || self.entries[..blocks].iter().zip(&orders).map(|(at, order)| (view.map.pfn(*at), Order(*order)));
        read_ahead(view, joined());
        let mut locked = view.lock();
        for (pfn, order) in joined() {
            locked.free_block(pfn, order, view.blocks.get(pfn));
        }
        locked.count_moved(PageCount(self.len as u64));
    }

    /// Joins neighbours to the largest blocks that lie in one pageblock, and writes their tags: all but the last step of
    /// merging, and the only one that looks at every frame. What is left of the entries are the blocks' heads; how many.
    fn join<P: Platform>(&mut self, view: ZoneView<'_, P>, orders: &mut [u8; FRAMES]) -> usize {
        let entries = &mut self.entries[..self.len];
        entries.sort_unstable();
        let (mut at, mut joined) = (0, 0);
        while at < entries.len() {
            let follow = entries[at..].windows(2).take_while(|pair| pair[0] + 1 == pair[1]).count();
            let run = PfnRange::new(view.map.pfn(entries[at]), PageCount(1 + follow as u64));
            at += 1 + follow;
            for (pfn, order) in pieces(run, view.geometry.pageblock_order()) {
                tag_joined(view, pfn, order);
                entries[joined] = view.map.index(pfn);
                orders[joined] = order.0;
                joined += 1;
            }
        }
        joined
    }
}

/// Makes one block of its frames, which are the caller's.
fn tag_joined<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn, order: Order) {
    view.page(pfn).set_tag(Tag::new(FrameState::InTransit, order, view.blocks.get(pfn), view.id));
    for inner in 1..order.pages().0 {
        view.page(pfn + PageCount(inner)).set_tag(Tag::INTERIOR);
    }
}

/// Reads the buddies that merging will look at first, all at once, and prefetches their neighbours on the list. What is read
/// may be stale; it decides nothing.
fn read_ahead<P: Platform>(view: ZoneView<'_, P>, blocks: impl Iterator<Item = (Pfn, Order)>) {
    for (pfn, order) in blocks.filter(|(_, order)| *order < view.geometry.max_order()) {
        let buddy = view.page(pfn.buddy(order));
        if buddy.tag().is_free_buddy(order, view.id) {
            for neighbour in [buddy.next(), buddy.prev()].into_iter().filter_map(|link| view.map.linked(link)) {
                if view.map.range().contains(neighbour) {
                    view.page(neighbour).prefetch();
                }
            }
        }
    }
}

impl<P: Platform> ZoneView<'_, P> {
    /// Brings batches of the depot back to the free lists until these have a block for a request of that order and type
    /// without taking another type's; whether there were any.
    #[cold]
    pub(crate) fn collect_for(&self, order: Order, migrate_type: MigrateType) -> bool {
        if self.is_depot_empty_racy() {
            return false;
        }
        collect_until(*self, || self.zone.has_block_of_type_racy(order, migrate_type));
        true
    }
}
