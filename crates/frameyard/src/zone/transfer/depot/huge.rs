//! Huge blocks in the depot: stacks of batches of pageblock order, and how a CPU's lists use them.
//!
//! The batches link through a table ([`links`](super::links)), so a transfer touches no page structure: the heads of huge blocks lie
//! 32 KiB apart in the map, where they compete for the same few sets of a cache. A batch has up to [`HUGE_BATCH`] blocks.
//!
//! A block here is a whole pageblock, but does not merge with its buddy above pageblock order. A collector returns it to the free
//! lists when a request, compaction or an isolator needs it there: a larger block, part of one, or one of another type.
//!
//! The stacks are by mobility, as the lists are. So a type of an unmovable block is known only when it returns to the free lists.

use super::Depot;
use super::carving::{Taken, dissolve};
use super::links::{BlockLinks, HUGE_BATCH, HugeBatch};
use super::stack::BatchStack;
use crate::page::Link;
use crate::platform::{Access, Activity, Platform};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{CpuId, MigrateType, Order, PageCount};
use crate::zone::batch::Batch;
use crate::zone::checks::PageChecks;
use crate::zone::fixed_vec::FixedVec;
use crate::zone::request::BlockRequest;
use crate::zone::state::Zone;
use crate::zone::transfer::exchange::{PackedBatches, RefillRequest};
use crate::zone::transfer::{Mechanism, pagewise};
use crate::zone::view::ZoneView;

/// A CPU's stack is full at this number of blocks (16 GiB in pageblocks of 2 MiB).
const CPU_BLOCKS: u64 = if cfg!(loom) { 6 } else { 512 * HUGE_BATCH as u64 };
/// The common stack is full at this number of blocks (128 GiB). So what a caller merges that collects all of a depot is bounded.
const COMMON_BLOCKS: u64 = if cfg!(loom) { 9 } else { 4096 * HUGE_BATCH as u64 };

/// The most batches that a refill takes for the stack. (In models none: their zones have few pageblocks.)
const FETCHED: usize = if cfg!(loom) { 0 } else { 7 };

/// A refill takes at most `1 / UNUSED` of the number of blocks that the list has given out, so few stay that nothing uses.
const UNUSED: u64 = 2;

/// The fewest blocks of a batch that are worth a transfer of its own. A CPU's lists hold two batches.
const LEAST_BATCH: u64 = if cfg!(loom) { 2 } else { 4 };
/// The lists of all CPUs together hold at most this share of a zone in huge blocks.
const SHARE: u64 = if cfg!(loom) { 1 } else { 32 };

/// Which huge blocks a list or a stack holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mobility {
    /// Of pageblocks that are neither movable nor sorted with the movable ones.
    Fixed = 0,
    /// Of movable pageblocks, those for contiguous memory areas, and those kept for atomic requests.
    Movable = 1,
}

impl Mobility {
    pub(super) const ALL: [Self; 2] = [Self::Fixed, Self::Movable];

    pub(crate) fn of(migrate_type: MigrateType) -> Self {
        if migrate_type == MigrateType::Movable { Self::Movable } else { Self::Fixed }
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Fixed => Self::Movable,
            Self::Movable => Self::Fixed,
        }
    }
}

/// The huge blocks that each of `cpus` CPUs may keep of a zone with that many pageblocks, two batches at most; `None` if that is too
/// little for batches.
pub(crate) fn huge_blocks_of_lists(pageblocks: u64, cpus: u32) -> Option<u64> {
    let blocks = (pageblocks / SHARE / u64::from(cpus.max(1))).min(2 * HUGE_BATCH as u64);
    (blocks >= 2 * LEAST_BATCH).then_some(blocks)
}

/// The huge blocks that move at once between the depot and lists that hold up to `limit` huge blocks; `None` if these use no depot.
pub(crate) fn huge_batch(zone: &Zone, limit: u64) -> Option<usize> {
    (zone.policy().uses_depot() && limit >= 2 * LEAST_BATCH).then_some((limit / 2).min(HUGE_BATCH as u64) as usize)
}

impl Depot {
    pub(super) fn huge_stack(&self, shelf: usize, mobility: Mobility) -> Option<&'static BatchStack> {
        Some(&self.0.shelves.get(shelf)?.huge[mobility as usize])
    }

    /// The stacks of huge blocks, those of a mobility first.
    pub(super) fn huge_stacks_from(&self, first: Mobility) -> impl Iterator<Item = &'static BatchStack> + use<> {
        [first, first.other()].into_iter().flat_map({
            let depot = *self;
            move |mobility| depot.huge_stacks_of(mobility)
        })
    }

    pub(super) fn huge_stacks_of(&self, mobility: Mobility) -> impl Iterator<Item = &'static BatchStack> + use<> {
        self.0.shelves.iter().map(move |shelf| &shelf.huge[mobility as usize])
    }

    /// Huge blocks in the depot, possibly stale.
    pub(super) fn huge_blocks_racy(&self) -> u64 {
        Mobility::ALL.map(|mobility| self.huge_blocks_of_racy(mobility)).into_iter().fold(0, u64::saturating_add)
    }

    /// A counter of all stacks of huge blocks together.
    pub(super) fn huge_sum(&self, counter: fn(&BatchStack) -> &AtomicU64) -> u64 {
        let stacks = self.huge_stacks_from(Mobility::Movable);
        stacks.map(|stack| counter(stack).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Huge blocks popped for lists.
    pub(super) fn huge_popped(&self) -> u64 {
        self.huge_sum(|stack| &stack.left).saturating_sub(self.huge_sum(|stack| &stack.collected))
    }

    /// As [`huge_blocks_racy`](Self::huge_blocks_racy), of one mobility.
    pub(super) fn huge_blocks_of_racy(&self, mobility: Mobility) -> u64 {
        self.huge_stacks_of(mobility).map(BatchStack::held_racy).fold(0, u64::saturating_add)
    }
}

impl<'a, P: Platform> ZoneView<'a, P> {
    pub(super) fn huge_links(&self) -> BlockLinks<'a, P> {
        BlockLinks::new(self.mechanisms.depot.links, self.geometry.pageblock_order(), self.platform)
    }

    /// Frames of huge blocks in the depot, possibly stale.
    pub(super) fn depot_huge_pages_racy(&self) -> PageCount {
        PageCount(self.depot().huge_blocks_racy().saturating_mul(self.blocks.pages().0))
    }

    /// Whether a refill may take a block of that order and type from the depot, possibly stale.
    pub(super) fn has_huge_for_racy(&self, order: Order, migrate_type: MigrateType) -> bool {
        order == self.geometry.pageblock_order() && !self.has_no_huge_racy(Mobility::of(migrate_type)) && opens(*self)
    }

    /// Whether the depot has no huge block of that mobility, possibly stale.
    pub(super) fn has_no_huge_racy(&self, mobility: Mobility) -> bool {
        let links = self.huge_links();
        self.depot().huge_stacks_of(mobility).all(|stack| stack.is_empty_racy(links))
    }
}

/// Whether a refill of that CPU's lists may use the stacks of huge blocks now. Checked pages pass the zone instead.
fn opens<P: Platform>(view: ZoneView<'_, P>) -> bool {
    Mechanism::in_force(view.zone) == Mechanism::Depot && view.checks == PageChecks::None && !view.is_quiesced()
}

/// Pushes a batch of a list's blocks onto a stack; whether it did. The caller holds the lock of the lists of `cpu`.
pub(crate) fn push_huge<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    mobility: Mobility,
    members: &[AtomicU32],
) -> bool {
    if !opens(view) {
        return false;
    }
    let (depot, platform, links) = (view.depot(), view.platform, view.huge_links());
    let own = depot.own_shelf(cpu);
    let stacks = (depot.huge_stack(own, mobility), depot.huge_stack(0, mobility));
    let (Some(own_stack), Some(common)) = stacks else { return false };
    let overflows = own != 0 && own_stack.held_racy() >= CPU_BLOCKS;
    let stack = if overflows { common } else { own_stack };
    if (overflows || own == 0) && stack.held_racy() >= COMMON_BLOCKS {
        return false;
    }
    platform.begin_activity(Activity::Drain);
    let head = links.pack(members.iter().map(|slot| slot.load(Ordering::Relaxed)));
    if let Some(head) = head {
        let blocks = members.len() as u64;
        stack.touch(platform, Access::ReadModifyWrite);
        stack.count_coming(blocks);
        if overflows {
            stack.count_overflowed(blocks);
        }
        stack.push(links, platform, head, head);
    }
    platform.end_activity(Activity::Drain, PageCount(members.len() as u64 * view.blocks.pages().0));
    head.is_some()
}

/// Pops a batch from a stack into the slots of a list; the number of blocks. The caller holds the lock of the lists of `cpu`.
pub(crate) fn pop_huge<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    mobility: Mobility,
    slots: &[AtomicU32],
) -> usize {
    if !opens(view) || slots.len() < HUGE_BATCH {
        return 0;
    }
    let (depot, platform, links) = (view.depot(), view.platform, view.huge_links());
    let own = depot.own_shelf(cpu);
    for shelf in depot.shelves_from(own) {
        let Some(stack) = depot.huge_stack(shelf, mobility) else { break };
        let Some(head) = stack.pop(links, platform) else { continue };
        platform.begin_activity(Activity::Refill);
        let mut blocks = 0;
        let below = links.unpack(head, |place| {
            if let Some(slot) = slots.get(blocks) {
                slot.store(place, Ordering::Relaxed);
                blocks += 1;
            }
        });
        if below.is_none() {
            view.note_corrupt();
        }
        stack.touch(platform, Access::ReadModifyWrite);
        stack.count_popped(blocks as u64);
        if shelf != own && shelf != 0 {
            stack.count_stolen(blocks as u64);
        }
        platform.end_activity(Activity::Refill, PageCount(blocks as u64 * view.blocks.pages().0));
        return blocks;
    }
    0
}

/// Fetches huge blocks from the zone for a list whose CPU found the stacks empty. While whole pageblocks are not few, the same hold of the
/// lock also takes batches for the CPU's stack. Returns the number for the list, at most `refill.wanted`.
#[inline(never)]
pub(in crate::zone::transfer) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest<'_>,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let BlockRequest { order, migrate_type, .. } = refill.blocks;
    let (depot, links) = (view.depot(), view.huge_links());
    let wanted = refill.wanted.min(HUGE_BATCH);
    let stack = depot.huge_stack(depot.own_shelf(refill.cpu), Mobility::of(migrate_type));
    let Some(stack) = stack.filter(|_| opens(view)) else {
        return pagewise::fetch(view, refill, deliver);
    };
    // None for later where the list itself may have one only.
    let spare = if wanted < 2 { 0 } else { (view.spare_whole_pageblocks_racy() as usize / wanted).min(FETCHED) };
    let most = ((1 + spare) * wanted) as u64;
    let fetched = most.min((refill.given_out / UNUSED).max(1));
    let mut taken = Taken::new();
    let Some(mut locked) = view.lock_for(refill.cpu) else { return 0 };
    locked.take_for_batches(refill.blocks, wanted, fetched * order.pages().0, &mut taken);
    locked.count_moved(PageCount(taken.pages));
    let blocks = (taken.pages >> order.0) as usize;
    if blocks > wanted {
        stack.touch(view.platform, Access::ReadModifyWrite);
        stack.count_coming((blocks - wanted) as u64);
    }
    drop(locked);

    let mut blocks = FixedVec::<u32, { (1 + FETCHED) * HUGE_BATCH }>::new();
    for block in taken.blocks() {
        dissolve(view, refill.blocks, block.clone());
        block.step_by(1 << order.0).for_each(|huge| blocks.push(huge));
    }
    let (of_list, of_stack) = blocks.split_at(wanted.min(blocks.len()));
    if !of_list.is_empty() {
        deliver(&Batch::of(of_list));
    }
    let mut chain = PackedBatches::EMPTY;
    for batch in of_stack.chunks(wanted) {
        if let Some(head) = links.pack(batch.iter().copied()) {
            chain.append(links, head);
        }
    }
    if chain.batches > 0 {
        stack.push(links, view.platform, chain.first, chain.last);
    }
    of_list.len()
}

/// Takes the topmost batch of a stack for a collector; `None` if the stack is empty.
pub(super) fn pop_batch<P: Platform>(view: ZoneView<'_, P>, stack: &BatchStack) -> Option<HugeBatch> {
    let links = view.huge_links();
    let head = stack.pop(links, view.platform)?;
    unpack(view, head).map(|(batch, _)| batch)
}

/// Unpacks a batch that the caller owns, and the link to the batch below; `None` if the table is damaged.
pub(super) fn unpack<P: Platform>(view: ZoneView<'_, P>, head: Link) -> Option<(HugeBatch, Link)> {
    let mut batch = HugeBatch::new();
    let below = view.huge_links().unpack(head, |place| batch.push(place));
    if below.is_none() {
        view.note_corrupt();
    }
    Some((batch, below?))
}
