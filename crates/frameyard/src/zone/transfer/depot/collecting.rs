//! Bringing batches back to the free lists: several at a time, sorted and joined before the zone lock is taken.
//!
//! Batches are unpacked a few at a time, neighbours among their frames are joined to blocks, and blocks are gathered until
//! there are so many of them, or of their frames, that one hold of the lock is well used. So how long the lock is held goes
//! by the number of blocks; of a space that was torn down, frame after frame, thousands of frames make a few of them.
//!
//! What was taken stays in the hands of the collector until it is free, and is counted in the depot until then.

use super::{BatchStack, DepotState};
use crate::page::{FrameState, Link, Tag};
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::Ordering;
use crate::units::{CpuId, MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::pcp::packed::{self, BATCH};
use crate::zone::transfer::quiescence::{TransferStalled, wait_until_done};
use crate::zone::{ZonePolicy, ZoneView, pieces};

/// How many batches are unpacked and sorted together.
const BATCHES: usize = if cfg!(loom) { 2 } else { 8 };
const FRAMES: usize = BATCHES * BATCH;
/// So many blocks make one hold of the zone lock.
const ENOUGH_BLOCKS: usize = if cfg!(loom) { 1 } else { 128 };
/// So many frames do, too.
const ENOUGH_FRAMES: u64 = if cfg!(loom) { 2 * BATCH as u64 } else { 256 * BATCH as u64 };

/// A zone of whose frames less than this part is free in whole pageblocks has few of them.
const FEW_WHOLE: u64 = if cfg!(loom) { 1 } else { 8 };
/// How many batches one step in the background brings back at most.
const STEP_BATCHES: u64 = 1024;

/// Says, as long as it lives, that somebody has batches of a zone's depot in his hands.
struct Collecting<'a>(&'a DepotState);

impl<'a> Collecting<'a> {
    fn begin<P: Platform>(view: ZoneView<'a, P>) -> Self {
        let state = &view.zone.transfer.depot;
        // Seen by whoever finds a stack empty from which the caller has popped then, by the Release there.
        state.collectors.fetch_add(collector(), Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `collect`.
        self.0.collectors.fetch_sub(collector(), Ordering::Release);
    }
}

/// What one collector counts as.
#[cfg(not(any(loom, shuttle)))]
const fn collector() -> u32 {
    1
}

/// What one collector counts as: in a broken model, nothing.
#[cfg(any(loom, shuttle))]
fn collector() -> u32 {
    u32::from(!crate::sync::is_weakened(crate::sync::Weakness::CollectorsNotRegistered))
}

/// Brings all that is in the depot back to the free lists, and waits for others who are at it.
///
/// # Errors
///
/// [`TransferStalled`] where somebody else has batches in his hands after a bounded wait.
pub(crate) fn collect<P: Platform>(view: ZoneView<'_, P>) -> Result<(), TransferStalled> {
    if !view.is_depot_empty_racy() {
        collect_all(view);
    }
    // Acquire: pairs with the Release in `Collecting::drop`.
    wait_until_done(view, || view.zone.transfer.depot.collectors.load(Ordering::Acquire) == 0)
}

/// Brings all that is in the depot back to the free lists.
fn collect_all<P: Platform>(view: ZoneView<'_, P>) {
    let _collecting = Collecting::begin(view);
    for stack in view.depot.stacks() {
        stack.touch(view.platform, Access::ReadModifyWrite);
        let mut chain = stack.detach(view.map);
        let mut returning = Returning::new(view);
        while chain != Link::NONE {
            returning.take_in(|| {
                let leader = view.map.linked(chain)?;
                let next = view.page(leader).next();
                Some(core::mem::replace(&mut chain, next))
            });
            stack.count_collected(returning.free_if_enough());
        }
        stack.count_collected(returning.free());
    }
}

/// Brings up to `most` batches back to the free lists until there is enough, or nothing left of what there was.
fn collect_until<P: Platform>(view: ZoneView<'_, P>, mut most: u64, enough: impl Fn() -> bool) {
    let _collecting = Collecting::begin(view);
    for stack in view.depot.stacks() {
        // No more than there are now: others may push as fast.
        let mut left = stack.batches_racy().min(most);
        while left > 0 && !enough() {
            let taken = return_some(Returning::new(view), None, stack, left.min(BATCHES as u64));
            stack.count_collected(taken);
            left = if taken == 0 { 0 } else { left - taken };
            most -= taken;
        }
    }
}

/// Merges a batch that was on no stack, and with it up to `most` of the stack, as far as one hold of the lock is good for.
pub(super) fn merge_with<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, leader: Link, stack: &BatchStack, most: u64) {
    let _collecting = Collecting::begin(view);
    let returned = return_some(Returning::for_cpu(view, cpu), Some(leader), stack, most);
    // The first one was never counted.
    stack.count_collected(returned - 1);
}

/// Frees a batch, if one is given, and up to `most` of a stack, under one hold of the lock; how many batches.
fn return_some<P: Platform>(
    mut returning: Returning<'_, P>,
    mut first: Option<Link>,
    stack: &BatchStack,
    most: u64,
) -> u64 {
    let view = returning.view;
    let mut left = most;
    let mut next = || {
        first.take().or_else(|| {
            left = left.checked_sub(1)?;
            stack.pop(view.map, view.platform)
        })
    };
    while returning.take_in(&mut next) && !returning.is_enough() {}
    returning.free()
}

/// Blocks on their way to the free lists.
struct Returning<'a, P> {
    view: ZoneView<'a, P>,
    /// For whose lists the zone lock is taken, if it is for any.
    cpu: Option<CpuId>,
    /// Places of their heads, and their orders.
    blocks: [(u32, u8); ENOUGH_BLOCKS + FRAMES],
    len: usize,
    frames: u64,
    batches: u64,
}

impl<'a, P: Platform> Returning<'a, P> {
    fn new(view: ZoneView<'a, P>) -> Self {
        Self { view, cpu: None, blocks: [(0, 0); ENOUGH_BLOCKS + FRAMES], len: 0, frames: 0, batches: 0 }
    }

    fn for_cpu(view: ZoneView<'a, P>, cpu: CpuId) -> Self {
        Self { cpu: Some(cpu), ..Self::new(view) }
    }

    fn is_enough(&self) -> bool {
        self.len >= ENOUGH_BLOCKS || self.frames >= ENOUGH_FRAMES
    }

    /// Unpacks a few batches, which are the caller's, and joins their frames; whether there may be more. Not when there is
    /// enough.
    fn take_in(&mut self, mut next: impl FnMut() -> Option<Link>) -> bool {
        // From the end on: of frames freed one behind the other the last batch comes first, and all are sorted then.
        let mut entries = [0; FRAMES];
        let mut begin = FRAMES;
        let mut taken = 0;
        while taken < BATCHES
            && let Some(leader) = next()
        {
            let mut batch = [0; BATCH];
            let found = packed::unpack(self.view.map, self.view.platform, leader, &mut batch);
            begin -= found.len;
            entries[begin..begin + found.len].copy_from_slice(&batch[..found.len]);
            taken += 1;
        }
        self.batches += taken as u64;
        self.frames += (FRAMES - begin) as u64;
        self.join(&mut entries[begin..]);
        taken == BATCHES
    }

    /// Joins neighbours to the largest blocks that lie in one pageblock, and writes their tags: all but the last step of
    /// merging, and the only one that looks at every frame.
    fn join(&mut self, entries: &mut [u32]) {
        let view = self.view;
        entries.sort_unstable();
        let mut at = 0;
        while at < entries.len() {
            let follow = entries[at..].windows(2).take_while(|pair| pair[0] + 1 == pair[1]).count();
            let run = PfnRange::new(view.map.pfn(entries[at]), PageCount(1 + follow as u64));
            at += 1 + follow;
            for (pfn, order) in pieces(run, view.geometry.pageblock_order()) {
                tag_joined(view, pfn, order);
                self.blocks[self.len] = (view.map.index(pfn), order.0);
                self.len += 1;
            }
        }
    }

    /// Frees the blocks if there are enough; how many batches they were.
    fn free_if_enough(&mut self) -> u64 {
        if self.is_enough() { self.free() } else { 0 }
    }

    /// Frees the blocks, each to the lists of the type that its pageblock has now; how many batches they were.
    fn free(&mut self) -> u64 {
        let view = self.view;
        let blocks = self.blocks[..self.len].iter().map(|(at, order)| (view.map.pfn(*at), Order(*order)));
        if self.len > 0 {
            read_ahead(view, blocks.clone());
            let mut locked = self.cpu.map_or_else(|| view.lock(), |cpu| view.lock_for(cpu));
            for (pfn, order) in blocks {
                locked.free_by_type(pfn, order);
            }
            locked.count_moved(PageCount(self.frames));
        }
        (self.len, self.frames) = (0, 0);
        core::mem::take(&mut self.batches)
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
            for neighbour in
                [buddy.next(), buddy.prev()].into_iter().filter_map(|link| view.map.check(view.map.linked(link)?))
            {
                view.page(neighbour).prefetch();
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
        collect_until(*self, u64::MAX, || self.zone.has_block_of_type_racy(order, migrate_type));
        true
    }

    /// A step of whoever works in the background: where there are few whole pageblocks on the free lists, and much in the
    /// depot, brings some of that back, so that requests for large blocks need not.
    pub(crate) fn replenish_whole_pageblocks(&self) {
        if self.depot.pages_racy().0 > self.few_whole() && !self.has_whole_pageblocks_racy() {
            collect_until(*self, STEP_BATCHES, || self.has_whole_pageblocks_racy());
        }
    }

    /// Whether it is better to go to other lists than to the free lists: not where what is freed is wanted there, merged.
    pub(crate) fn spares_zone_lock(&self) -> bool {
        self.zone.policy() == ZonePolicy::Depot && self.has_whole_pageblocks_racy()
    }

    fn few_whole(&self) -> u64 {
        self.zone.managed().0 / FEW_WHOLE
    }

    /// Whether the free lists have so many whole pageblocks that nobody need merge what is in the depot, a moment ago.
    pub(super) fn has_whole_pageblocks_racy(&self) -> bool {
        let (pageblock_order, max_order) = (self.geometry.pageblock_order(), self.geometry.max_order());
        for area in self.zone.areas_between(pageblock_order, max_order) {
            self.platform.touch_line(SharedLine::of(LineKind::FreeLists, area), Access::Read);
        }
        self.zone.pages_in_blocks_from_racy(pageblock_order, max_order).0 >= self.few_whole()
    }
}
