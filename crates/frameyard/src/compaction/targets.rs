//! The free scanner, and the targets: isolated free blocks that contents move to.

use crate::boot::{HeaderWord, Poisoning};
use crate::compaction::Compaction;
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::store;
use crate::units::{Block, MigrateType, ORDER_SLOTS, Order, Pfn, PfnRange};
use crate::zone::{covering_block, poison};

/// The most targets.
const ROOM: usize = 64;
/// The most free blocks isolated in one hold of the zone lock (`COMPACT_CLUSTER_MAX`).
const CLUSTER: usize = 32;
/// Room kept free for the halves of blocks that are split.
const HALVES: usize = ORDER_SLOTS;

/// Isolated free blocks.
pub(super) struct Targets {
    blocks: [Block; ROOM],
    len: usize,
    pages: u64,
}

impl Targets {
    pub(super) const fn new() -> Self {
        Self { blocks: [Block { pfn: Pfn(0), order: Order::ZERO }; ROOM], len: 0, pages: 0 }
    }

    fn room(&self) -> usize {
        ROOM - self.len
    }

    /// Adds a block; there is room.
    fn push(&mut self, block: Block) {
        self.blocks[self.len] = block;
        self.len += 1;
        self.pages += block.order.pages().0;
    }

    fn pop(&mut self) -> Option<Block> {
        self.len = self.len.checked_sub(1)?;
        let block = self.blocks[self.len];
        self.pages -= block.order.pages().0;
        Some(block)
    }

    /// Takes the smallest block of at least that order whose halves fit the remaining room.
    fn take_smallest(&mut self, order: Order) -> Option<Block> {
        let room = self.room() + 1;
        let fits = |found: Order| found >= order && usize::from(found.0 - order.0) <= room;
        let blocks = self.blocks[..self.len].iter().copied().enumerate();
        let (at, block) = blocks.filter(|(_, block)| fits(block.order)).min_by_key(|(_, block)| block.order)?;
        self.len -= 1;
        self.blocks[at] = self.blocks[self.len];
        self.pages -= block.order.pages().0;
        Some(block)
    }
}

impl<P: Platform> Compaction<'_, P> {
    /// A target of that order, allocated to the compactor; `wanted` frames are still to be moved.
    pub(super) fn target(&mut self, order: Order, wanted: u64) -> Option<Pfn> {
        loop {
            if self.targets.pages < wanted || self.targets.len == 0 {
                self.isolate_free(wanted);
            }
            let Block { pfn, order: found } = self.take_target(order)?;
            self.split_target(pfn, found, order);
            if self.is_sound(pfn, order) {
                if self.view.allocation_map.mark_allocated(self.view.platform, pfn, order, MigrateType::Movable) {
                    return Some(pfn);
                }
                self.view.note_corrupt();
                return None;
            }
        }
    }

    /// Takes a target of at least that order off the list. Isolates more blocks while all on the list are smaller and it has room.
    fn take_target(&mut self, order: Order) -> Option<Block> {
        loop {
            let (found, before) = (self.targets.take_smallest(order), self.targets.pages);
            if found.is_some() {
                return found;
            }
            self.isolate_free(before + order.pages().0);
            if self.targets.pages == before {
                return None;
            }
        }
    }

    /// Splits a block down to an order, and keeps the upper halves as targets.
    fn split_target(&mut self, pfn: Pfn, found: Order, order: Order) {
        let tag = self.view.page(pfn).tag();
        let mut half = found;
        while half > order {
            half.0 -= 1;
            let upper = pfn + half.pages();
            self.view.page(upper).set_tag(Tag::new(FrameState::Isolated, half, tag.migrate_type(), self.view.id));
            self.targets.push(Block { pfn: upper, order: half });
        }
        let allocated = Tag::new(FrameState::Allocated, order, MigrateType::Movable, self.view.id);
        self.view.page(pfn).set_tag(allocated);
    }

    /// Whether a block is undamaged: not written while it was free. Poisons a damaged block.
    fn is_sound(&self, pfn: Pfn, order: Order) -> bool {
        // SAFETY: the compactor has isolated the block.
        let is_damaged = || unsafe { poison::damaged(self.view.platform, self.view.geometry, pfn, order) }.is_some();
        if self.poisoning == Poisoning::Off || !is_damaged() {
            return true;
        }
        let page = self.view.page(pfn);
        page.set_tag(page.tag().with_state(FrameState::Poisoned));
        self.tables.count(HeaderWord::PoisonHits);
        false
    }

    /// Fills a block that the compactor owns, if the yard poisons free memory.
    pub(super) fn poison(&self, pfn: Pfn, order: Order) {
        if self.poisoning == Poisoning::On {
            // SAFETY: an owner has vacated the block or never used it, so only the compactor accesses its bytes.
            unsafe { poison::fill(self.view.platform, self.view.geometry, pfn, order) };
        }
    }

    /// Takes back a target that an owner did not use. Its bytes may have been written.
    pub(super) fn take_back(&mut self, pfn: Pfn, order: Order) {
        let is_ours = self.view.allocation_map.clear_allocated(self.view.platform, pfn, order).is_some();
        if !is_ours {
            return;
        }
        let page = self.view.page(pfn);
        page.set_tag(page.tag().with_state(FrameState::Isolated));
        self.poison(pfn, order);
        if self.targets.room() > 0 {
            self.targets.push(Block { pfn, order });
        } else if let Ok(mut locked) = self.view.lock() {
            locked.free_compacted(pfn, order);
        }
    }

    /// Returns all targets to the free lists, where the next run finds them again.
    pub(super) fn give_back_targets(&mut self) {
        if self.targets.len == 0 {
            return;
        }
        let mut highest = Pfn(0);
        let Ok(mut locked) = self.view.lock() else { return };
        while let Some(Block { pfn, order }) = self.targets.pop() {
            locked.free_compacted(pfn, order);
            highest = highest.max(pfn);
        }
        drop(locked);
        let end = self.end_of_block(highest);
        if self.uses_hints() && self.zone().compaction.cached_free() < end {
            self.zone().compaction.set_free(end);
        }
    }

    /// Moves the free scanner down until there are enough targets (`isolate_freepages`).
    fn isolate_free(&mut self, wanted: u64) {
        while self.targets.pages < wanted && self.targets.room() > HALVES && !self.scanners_met() {
            let frames = self.free_block();
            if self.free_next <= frames.start && !self.is_target(frames.start) {
                self.next_free_block(frames);
                continue;
            }
            if self.free_next <= frames.start {
                // Only blocks on the free lists can become targets.
                store::collect_around(self.view, frames.start);
            }
            self.free_next = self.free_next.max(frames.start);
            let went_on = self.isolate_free_in(frames, wanted);
            if self.free_next >= frames.end {
                if self.uses_hints() {
                    self.hints().set(frames.start);
                }
                self.next_free_block(frames);
            } else if !went_on {
                break;
            }
        }
    }

    /// The frames of the zone in the pageblock that the free scanner is at.
    fn free_block(&self) -> PfnRange {
        let start = self.view.blocks.start_of(Pfn(self.free_end.0 - 1));
        PfnRange { start, end: self.free_end }.intersection(self.span)
    }

    fn next_free_block(&mut self, frames: PfnRange) {
        let start = self.view.blocks.start_of(frames.start);
        self.free_end = self.view.map.numbering().present_before(start);
        self.free_next = Pfn(0);
        if self.uses_hints() {
            self.zone().compaction.set_free(start);
        }
    }

    /// Whether blocks may move to a pageblock (`suitable_migration_target` and `isolation_suitable`).
    fn is_target(&self, start: Pfn) -> bool {
        let blocks = self.view.blocks;
        if !blocks.has_memory(start)
            || (self.uses_hints() && self.hints().is_set(start))
            || (self.spares_tainted && !self.view.is_clean(start))
        {
            return false;
        }
        let (_, tag) = covering_block(self.view.geometry.max_order(), start, |pfn| self.view.page(pfn).tag());
        let whole = tag.is(FrameState::BuddyFree) && tag.order() >= self.target_limit();
        !whole && (self.target_types())(blocks.get(start))
    }

    /// Free blocks from this order on are left whole.
    fn target_limit(&self) -> Order {
        let pageblock = self.view.geometry.pageblock_order();
        self.request.order.map_or(pageblock, |order| order.clamp(Order(1), pageblock))
    }

    /// Isolates free blocks upwards from the free scanner's position, at most `CLUSTER` of them. `false` if blocks were seen and none
    /// could be taken.
    fn isolate_free_in(&mut self, frames: PfnRange, wanted: u64) -> bool {
        let mut seen = [Pfn(0); CLUSTER];
        let count = self.find_free(frames, wanted, &mut seen);
        if count == 0 {
            return true;
        }
        let limit = self.target_limit();
        let allowed = self.target_types();
        let before = self.targets.pages;
        let Ok(mut locked) = self.view.lock() else { return false };
        for pfn in &seen[..count] {
            if let Some(tag) = locked.isolate_free_block(*pfn, limit, allowed) {
                self.targets.push(Block { pfn: *pfn, order: tag.order() });
            }
        }
        drop(locked);
        let taken = self.targets.pages - before;
        self.outcome.isolated.0 += taken;
        taken > 0
    }

    /// Finds free blocks without the lock; returns their number. Moves the scanner behind them.
    fn find_free(&mut self, frames: PfnRange, wanted: u64, seen: &mut [Pfn; CLUSTER]) -> usize {
        let limit = self.target_limit();
        let most = self.targets.room().saturating_sub(HALVES).min(CLUSTER);
        let mut pages = self.targets.pages;
        let mut count = 0;
        while self.free_next < frames.end && count < most && pages < wanted {
            let at = self.free_next;
            let tag = self.view.page(at).tag();
            if tag.is(FrameState::BuddyFree) && tag.zone() == self.view.id && tag.order() < limit {
                seen[count] = at;
                count += 1;
                pages += tag.order().pages().0;
            }
            self.outcome.free_scanned.0 += 1;
            self.free_next = at + self.length_at(at, tag);
        }
        count
    }
}
