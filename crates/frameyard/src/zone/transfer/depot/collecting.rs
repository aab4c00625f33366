//! Collecting: batches return to the free lists, several at a time, sorted and joined before the zone lock is taken.
//!
//! A collector unpacks a few batches at a time, joins neighbours among their frames to blocks, and gathers blocks until there are
//! enough of them, or of their frames, for one hold of the lock. So the hold time follows the number of blocks; thousands of frames
//! of an address space that was torn down make a few of them.
//!
//! Batches belong to the collector until their frames are free, and count as depot frames until then.
//!
//! Kernels have small stacks, and [`Returning`] has 3 KiB. So the functions that keep one are never inlined, and at most one of them is in
//! progress on a CPU.
//!
//! Huge blocks return in batches, too ([`huge`]); they are whole pageblocks, so a request for less takes them before single frames
//! are merged.

use super::{BatchStack, State};
use crate::memmap::MapPlace;
use crate::page::{FrameState, Link, Tag};
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{Ordering, is_broken};
use crate::units::{CpuId, MigrateType, Order, PageCount};
use crate::zone::batch::{BATCH, Batch, packed};
use crate::zone::counters::TransferCounters;
use crate::zone::effort::{Effort, MANY_MERGES, Patience};
use crate::zone::fixed_vec::FixedVec;
use crate::zone::transfer::pagewise::read_ahead;
use crate::zone::transfer::quiescence::{TransferStalled, wait_until_done};
use crate::zone::view::ZoneView;

mod huge;

/// Batches that are unpacked and sorted together.
pub(super) const BATCHES: usize = if cfg!(loom) { 2 } else { 8 };
const FRAMES: usize = BATCHES * BATCH;
/// The blocks that are enough for one hold of the zone lock.
const ENOUGH_BLOCKS: usize = if cfg!(loom) { 1 } else { 128 };
/// The frames that are enough for one hold of the zone lock.
const ENOUGH_FRAMES: u64 = if cfg!(loom) { 2 * BATCH as u64 } else { 256 * BATCH as u64 };

/// Whole pageblocks are few if they have less than `1 / FEW_WHOLE` of the zone's frames.
const FEW_WHOLE: u64 = 8;
/// A refill takes at most `1 / SPARE` of the whole pageblocks that are not needed.
const SPARE: u64 = 8;

/// The registration of a collector: a CPU that may hold batches of a zone's depot, or the chain of a pageblock.
pub(in crate::zone::transfer) struct Collecting<'a>(&'a State);

impl<'a> Collecting<'a> {
    pub(in crate::zone::transfer) fn begin<P: Platform>(view: ZoneView<'a, P>) -> Self {
        let state = &view.zone.mechanisms.depot;
        // Relaxed: a CPU that finds a stack empty sees this registration by the Release with which the collector popped.
        state.collectors.fetch_add(u32::from(!is_broken!(CollectorsNotRegistered)), Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `collect`.
        self.0.collectors.fetch_sub(u32::from(!is_broken!(CollectorsNotRegistered)), Ordering::Release);
    }
}

/// Returns all batches of the depot to the free lists, and waits for other collectors unless the caller must not sleep: a collector
/// holds no lock, so it may be the thread that the caller has interrupted.
///
/// # Errors
///
/// [`TransferStalled`] if another collector still holds batches after a bounded wait, or at once if the caller must not sleep.
pub(in crate::zone::transfer) fn collect<P: Platform>(
    view: ZoneView<'_, P>,
    patience: Patience,
) -> Result<(), TransferStalled> {
    if !view.is_depot_empty_racy() {
        collect_all(view);
    }
    // Acquire: pairs with the Release in `Collecting::drop`.
    let are_done = || view.zone.mechanisms.depot.collectors.load(Ordering::Acquire) == 0;
    match patience {
        Patience::Spins => are_done().then_some(()).ok_or(TransferStalled),
        Patience::Sleeps => wait_until_done(view, patience, are_done),
    }
}

/// Returns all batches of the depot to the free lists.
#[inline(never)]
fn collect_all<P: Platform>(view: ZoneView<'_, P>) {
    let _collecting = Collecting::begin(view);
    for (order, stack) in view.depot().stacks() {
        if stack.is_empty_racy(view.page_links()) {
            continue;
        }
        stack.touch(view.platform, Access::ReadModifyWrite);
        let mut chain = stack.detach(view.page_links());
        let mut returning = Returning::new(view, None, order);
        // A sound chain has fewer batches than the map has frames.
        let mut left = view.map.places();
        while chain != Link::NONE {
            returning.take_in(|| {
                let next = view.map.next(chain).map(|head| view.page(head).next());
                left = left.saturating_sub(1);
                let (Some(next), 1..) = (next, left) else {
                    if core::mem::replace(&mut chain, Link::NONE) != Link::NONE {
                        view.note_corrupt();
                    }
                    return None;
                };
                Some(core::mem::replace(&mut chain, next))
            });
            stack.count_collected(returning.free_if_enough());
        }
        stack.count_collected(returning.free());
    }
    huge::collect_all(view);
}

/// Returns up to `most` batches of small blocks to the free lists until there is `enough`, stacks of the type `first` first. Returns
/// their number.
fn collect_until<P: Platform>(view: ZoneView<'_, P>, first: MigrateType, most: u64, enough: impl Fn() -> bool) -> u64 {
    let _collecting = Collecting::begin(view);
    let mut left = most;
    for (order, stack) in view.depot().stacks_from(first) {
        // Bounded: other CPUs may push as fast as this one pops.
        while left > 0 && !enough() {
            let taken = return_some(view, (None, order), None, stack, left.min(BATCHES as u64));
            stack.count_collected(taken);
            left -= taken;
            if taken == 0 {
                break;
            }
        }
    }
    most - left
}

/// Merges a batch that is on no stack, and with it up to `most` batches of a stack, as far as one hold of the lock serves.
pub(super) fn merge_with<P: Platform>(
    view: ZoneView<'_, P>,
    (cpu, order): (CpuId, Order),
    head: Link,
    stack: &BatchStack,
    most: u64,
) {
    let _collecting = Collecting::begin(view);
    let returned = return_some(view, (Some(cpu), order), Some(head), stack, most);
    // The stack never counted the first batch.
    stack.count_collected(returned - 1);
}

/// Frees a batch, if one is given, and up to `most` batches of a stack under one hold of the lock. Returns the number of batches.
#[inline(never)]
fn return_some<P: Platform>(
    view: ZoneView<'_, P>,
    (cpu, order): (Option<CpuId>, Order),
    mut first: Option<Link>,
    stack: &BatchStack,
    most: u64,
) -> u64 {
    let mut returning = Returning::new(view, cpu, order);
    let mut left = most;
    let mut next = || {
        first.take().or_else(|| {
            left = left.checked_sub(1)?;
            stack.pop(view.page_links(), view.platform)
        })
    };
    while returning.take_in(&mut next) && !returning.is_enough() {}
    returning.free()
}

/// Blocks on their way to the free lists.
struct Returning<'a, P> {
    view: ZoneView<'a, P>,
    /// The CPU for whose lists the zone lock is taken, if there is one.
    cpu: Option<CpuId>,
    /// The order of the blocks in batches.
    order: Order,
    blocks: FixedVec<Joined, { ENOUGH_BLOCKS + FRAMES }>,
    frames: u64,
    batches: u64,
}

/// A block: the place of its head, and its order. Packed, because hundreds of them lie on the stack.
#[repr(C, packed)]
#[derive(Clone, Copy, Default)]
struct Joined {
    place: MapPlace,
    order: u8,
}

impl<'a, P: Platform> Returning<'a, P> {
    fn new(view: ZoneView<'a, P>, cpu: Option<CpuId>, order: Order) -> Self {
        Self { view, cpu, order, blocks: FixedVec::new(), frames: 0, batches: 0 }
    }

    fn is_enough(&self) -> bool {
        self.blocks.len() >= ENOUGH_BLOCKS || self.frames >= ENOUGH_FRAMES
    }

    /// Unpacks a few batches that the caller owns, and joins their blocks; whether there may be more. Not called when there is
    /// enough. Not inlined: what it unpacks is off the stack before blocks are freed.
    #[inline(never)]
    fn take_in(&mut self, mut next: impl FnMut() -> Option<Link>) -> bool {
        // Filled from the end: of blocks freed in order the last batch comes first, so that they end up sorted.
        let mut entries = [0; FRAMES];
        let mut begin = FRAMES;
        let mut taken = 0;
        while taken < BATCHES
            && let Some(head) = next()
        {
            let mut batch = Batch::new();
            if packed::unpack(self.view.map, (self.view.platform, self.view.id), (head, self.order), &mut batch)
                .is_none()
            {
                self.view.note_corrupt();
            }
            begin -= batch.len();
            entries[begin..begin + batch.len()].copy_from_slice(&batch);
            taken += 1;
        }
        self.batches += taken as u64;
        self.frames += ((FRAMES - begin) as u64) << self.order.0;
        self.join(&mut entries[begin..]);
        taken == BATCHES
    }

    /// Joins neighbours to the largest blocks within one pageblock, and writes their tags: all of merging but its last step, and
    /// the only part that touches every frame.
    fn join(&mut self, entries: &mut [u32]) {
        let Self { view, order: each, .. } = *self;
        entries.sort_unstable();
        let mut at = 0;
        while at < entries.len() {
            let follows = |pair: &[u32]| pair[0] + (1 << each.0) == pair[1];
            let follow = entries[at..].windows(2).take_while(|pair| follows(pair)).count();
            for (block, order) in view.blocks_at(entries[at], (1 + follow) << each.0, view.geometry.pageblock_order()) {
                tag_joined(view, block, order, each);
                self.blocks.push(Joined { place: block, order: order.0 });
            }
            at += 1 + follow;
        }
    }

    /// Frees single frames whose pageblocks are open to their chains, without the zone lock. Returns their number.
    fn free_to_chains(&mut self, counters: &TransferCounters) -> u64 {
        let view = self.view;
        let mut frames = 0;
        self.blocks.retain(|block| {
            let is_chained = block.order == 0 && view.merge_to_chain(counters, block.place);
            frames += u64::from(is_chained);
            !is_chained
        });
        frames
    }

    /// Frees the blocks if there are enough. Returns the number of batches.
    fn free_if_enough(&mut self) -> u64 {
        if self.is_enough() { self.free() } else { 0 }
    }

    /// Frees the blocks, each to the lists of the type that its pageblock has now. Returns the number of batches.
    fn free(&mut self) -> u64 {
        let view = self.view;
        let counters = self.cpu.map_or(view.zone.counters(), |cpu| view.counters_of(cpu));
        // What lists of CPUs have no room for. Other batches are wanted on the free lists.
        let uses_chains = self.cpu.is_some() && view.zone.heals() && self.order == Order::ZERO;
        let mut chained = if uses_chains { self.free_to_chains(counters) } else { 0 };
        let blocks = self.blocks.iter().map(|block| (block.place, Order(block.order)));
        if !self.blocks.is_empty() {
            read_ahead(view, blocks.clone());
            if let Some(mut locked) = self.cpu.map_or_else(|| view.lock().ok(), |cpu| view.lock_for(cpu)) {
                for (block, order) in blocks {
                    match uses_chains && order == Order::ZERO && locked.open_and_push(counters, block) {
                        true => chained += 1,
                        false => locked.free_by_type(block, order),
                    }
                }
                locked.count_moved(PageCount(self.frames));
            }
        }
        // Without the lock: this may take it for a step.
        view.count_merged(counters, chained);
        self.blocks.clear();
        self.frames = 0;
        core::mem::take(&mut self.batches)
    }
}

/// Makes one block of blocks of the order `each` that the caller owns.
fn tag_joined<P: Platform>(view: ZoneView<'_, P>, block: MapPlace, order: Order, each: Order) {
    view.page(block).set_tag(Tag::new(FrameState::InTransit, order, view.blocks.get_at(block), view.id));
    for inner in (0..order.pages().0 as u32).step_by(1 << each.0).skip(1) {
        view.page(block.part(order, inner)).set_tag(Tag::INTERIOR);
    }
}

/// Returns batches to the free lists until these have a block for a request of that order and type, or its effort is spent; whether
/// the depot had any. A block of another type serves a request for a single frame if it is a whole pageblock.
#[cold]
pub(in crate::zone::transfer) fn collect_for<P: Platform>(
    view: ZoneView<'_, P>,
    order: Order,
    migrate_type: MigrateType,
    effort: &Effort,
) -> bool {
    if view.is_depot_empty_racy() {
        return false;
    }
    let is_single = order == Order::ZERO;
    let has_own = || view.zone.has_block_of_type_racy(order, migrate_type);
    let has_other = || view.has_whole_pageblock_of_others_racy(migrate_type);
    let enough = || view.has_block_for_racy(order, migrate_type);
    let [own, other] = huge::stacks_for(view, migrate_type);
    effort.count_merges(huge::collect_until(view, own, effort.merges(), has_own));
    if is_single {
        let [_, other] = huge::stacks_for(view, migrate_type);
        effort.count_merges(huge::collect_until(view, other, effort.merges(), enough));
    }
    effort.count_merges(collect_until(view, migrate_type, effort.merges(), enough));
    // No block of the type is left. Larger ones of another have to serve.
    let larger = || enough() || (order <= view.geometry.pageblock_order() && has_other());
    effort.count_merges(huge::collect_until(view, other, effort.merges(), larger));
    true
}

/// A background step: while few whole pageblocks are free and the depot is large, returns some batches, so that requests for large
/// blocks need not.
pub(in crate::zone::transfer) fn collect_in_background<P: Platform>(view: ZoneView<'_, P>) {
    if view.depot().small_held_racy().pages.0 > view.few_whole() && !view.has_whole_pageblocks_racy() {
        collect_until(view, MigrateType::Movable, MANY_MERGES, || view.has_whole_pageblocks_racy());
    }
}

impl<P: Platform> ZoneView<'_, P> {
    /// Whole pageblocks are few if they have fewer frames than this.
    fn few_whole(&self) -> u64 {
        let managed = self.zone.managed().0;
        // The zones of models are too small for a share of them: there, all frames or twelve.
        if cfg!(loom) { managed.min(12) } else { managed / FEW_WHOLE }
    }

    /// How many whole pageblocks of the free lists a refill may take for later: a few of those that are not needed to have enough.
    pub(super) fn spare_whole_pageblocks_racy(&self) -> u64 {
        let (pageblock_order, max_order) = (self.geometry.pageblock_order(), self.geometry.max_order());
        let free = self.zone.pages_in_blocks_from_racy(pageblock_order, max_order).0;
        (free.saturating_sub(self.few_whole()) >> pageblock_order.0) / SPARE
    }

    /// Whether there are enough whole pageblocks on the free lists and in the depot, so that depot batches need not merge. Possibly
    /// stale.
    pub(in crate::zone::transfer) fn has_whole_pageblocks_racy(&self) -> bool {
        let (pageblock_order, max_order) = (self.geometry.pageblock_order(), self.geometry.max_order());
        for area in self.zone.areas_between(pageblock_order, max_order) {
            self.platform.touch_line(SharedLine::of(LineKind::FreeLists, area), Access::Read);
        }
        let (free, few) = (self.zone.pages_in_blocks_from_racy(pageblock_order, max_order).0, self.few_whole());
        // The stacks' lines are read only if they decide.
        free >= few || free.saturating_add(self.depot_huge_pages_racy().0) >= few
    }
}
