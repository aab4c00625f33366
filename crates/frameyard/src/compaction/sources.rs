//! The migrate scanner: finds allocated blocks, and asks their owners to isolate and move them.

use crate::compaction::Compaction;
use crate::compaction::request::{CompactCaller, CompactEffort};

use crate::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, OwnerKind};
use crate::page::{CountedPage, FrameState, Tag};
use crate::placement::DefragMode;
use crate::placement::defrag::least_free;
use crate::platform::Platform;
use crate::store;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};

/// Whether most blocks in a pageblock of that type can be moved.
pub(super) fn is_movable_block(migrate_type: MigrateType) -> bool {
    matches!(migrate_type, MigrateType::Movable | MigrateType::Cma)
}

/// The most blocks isolated at once (`COMPACT_CLUSTER_MAX`).
const CLUSTER: usize = 32;
/// The number of tries to move a busy block, in a compaction that may wait (`NR_MAX_MIGRATE_SYNC_RETRY`).
const SYNC_TRIES: u32 = 3;

/// A block isolated by its owner.
#[derive(Clone, Copy)]
struct Source<'a> {
    block: Block,
    owner: &'a dyn FrameOwner,
}

/// Blocks isolated by their owners.
pub(super) struct Sources<'a> {
    list: [Option<Source<'a>>; CLUSTER],
    len: usize,
    pages: u64,
}

impl<'a> Sources<'a> {
    pub(super) const fn new() -> Self {
        Self { list: [None; CLUSTER], len: 0, pages: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn push(&mut self, source: Source<'a>) {
        self.list[self.len] = Some(source);
        self.len += 1;
        self.pages += source.block.order.pages().0;
    }

    fn last(&self) -> Option<Source<'a>> {
        self.list[self.len.checked_sub(1)?]
    }

    fn pop(&mut self) -> Option<Source<'a>> {
        let last = self.last()?;
        self.len -= 1;
        self.pages -= last.block.order.pages().0;
        Some(last)
    }
}

/// Whether there were enough targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Supply {
    Enough,
    Exhausted,
}

/// What the migrate scanner found.
enum Found<'a> {
    /// No obstacle: free frames, frames in transit, or frames of another zone.
    Nothing,
    /// The owner isolated it.
    Taken(Source<'a>),
    /// A block that stays, so no free block can cover it.
    Stays,
}

impl<'a, P: Platform> Compaction<'a, P> {
    /// Scans upwards until some blocks are isolated, a pageblock is done, or the scanners meet
    /// (`isolate_migratepages`).
    pub(super) fn isolate_sources(&mut self) {
        loop {
            if self.scanners_met() || self.is_over_limit() {
                return;
            }
            let start = self.view.blocks.start_of(self.migrate_at).max(self.span.start);
            let end = self.end_of_block(self.migrate_at).min(self.span.end);
            let mut merged = 0;
            if self.migrate_at <= start {
                self.taken_in_block = 0;
                // Also without blocks to move: the pageblock may be free and unmerged.
                merged = store::merge_range(self.view, PfnRange { start, end });
            }
            if (self.migrate_at > start && self.view.blocks.has_memory(start))
                || (self.is_source(start) && self.is_worthwhile(PfnRange { start, end }))
            {
                return self.isolate_in(PfnRange { start, end });
            }
            self.migrate_at = self.view.map.numbering().next_present(end).min(self.span.end).max(end);
            if merged > 0 {
                // The merges may have made the wanted block.
                return;
            }
            if self.request.caller == CompactCaller::Stock && self.uses_hints() {
                self.remember_position();
            }
        }
    }

    /// Whether a pageblock is worth emptying for a whole one. If the yard keeps a stock of those: not if a block stays there, nor if the
    /// run refills the stock and the pageblock has too few free frames.
    fn is_worthwhile(&mut self, frames: PfnRange) -> bool {
        let pageblock = self.view.geometry.pageblock_order();
        if self.defrag == DefragMode::Off || self.request.order.is_none_or(|order| order < pageblock) {
            return true;
        }
        let least = match self.request.caller {
            CompactCaller::Stock => least_free(self.zone().compaction.emptiness(), pageblock),
            _ => PageCount(0),
        };
        let (read, free) = self.view.movable_pageblock_racy(frames);
        self.outcome.migrate_scanned.0 += read;
        free.is_some_and(|free| free >= least)
    }

    /// Whether a pageblock may have blocks to move (`suitable_migration_source` and `isolation_suitable`).
    fn is_source(&self, start: Pfn) -> bool {
        let blocks = self.view.blocks;
        if !blocks.has_memory(start) || (self.uses_hints() && self.hints().is_set(start)) {
            return false;
        }
        let tag = self.view.page(start).tag();
        if tag.is(FrameState::BuddyFree) && tag.order() >= self.view.geometry.pageblock_order() {
            return false;
        }
        let block_type = blocks.get(start);
        if block_type == MigrateType::Isolate {
            return false;
        }
        if self.request.effort != CompactEffort::Async || self.request.caller != CompactCaller::Direct {
            return true;
        }
        match self.request.migrate_type {
            MigrateType::Movable => is_movable_block(block_type),
            wanted => block_type == wanted,
        }
    }

    /// Scans a pageblock from the scanner's position (`isolate_migratepages_block`).
    fn isolate_in(&mut self, frames: PfnRange) {
        while self.migrate_at < frames.end && self.sources.len < CLUSTER {
            let at = self.migrate_at;
            let tag = self.view.tag_at(at);
            let pages = self.length_at(at, tag);
            self.outcome.migrate_scanned.0 += 1;
            self.migrate_at = at + pages;
            match self.look_at(at, tag, pages) {
                Found::Nothing => {}
                Found::Taken(source) => {
                    self.sources.push(source);
                    self.taken_in_block += 1;
                    self.outcome.isolated += pages;
                }
                Found::Stays => self.skip_spoilt(at, frames.end),
            }
        }
        if self.migrate_at >= frames.end {
            self.leave_block(frames);
        }
    }

    fn look_at(&mut self, at: Pfn, tag: Tag, pages: PageCount) -> Found<'a> {
        if tag.zone() != self.view.id {
            return Found::Nothing;
        }
        match tag.state() {
            FrameState::Counted => self.ask_owner(Block { pfn: at, order: tag.order() }, pages),
            FrameState::Interior
            | FrameState::BuddyFree
            | FrameState::PerCpu
            | FrameState::InTransit
            | FrameState::Isolated => Found::Nothing,
            _ => {
                self.outcome.unmovable += pages;
                Found::Stays
            }
        }
    }

    /// Has a block's owner isolate it, unless it is at least as large as the wanted block (`skip_isolation_on_order`).
    fn ask_owner(&mut self, block: Block, pages: PageCount) -> Found<'a> {
        let limit = self.request.order.unwrap_or(self.view.geometry.pageblock_order());
        if block.order >= limit.max(Order(1)) || block.order >= self.view.geometry.pageblock_order() {
            return Found::Stays;
        }
        let page = CountedPage::new(self.view.page(block.pfn), self.view.map.content().no_users());
        let Some(owner) = self.owners.of(OwnerKind::of_word(page.owner())) else {
            self.outcome.unmovable += pages;
            return Found::Stays;
        };
        match owner.isolate(block, self.request.effort.mode()) {
            Ok(()) => return Found::Taken(Source { block, owner }),
            Err(MigrateProblem::Gone) => return Found::Nothing,
            Err(MigrateProblem::Pinned) => self.outcome.pinned += pages,
            Err(MigrateProblem::Unmovable) => self.outcome.unmovable += pages,
            Err(MigrateProblem::Busy | MigrateProblem::Failed) => self.outcome.busy += pages,
        }
        Found::Stays
    }

    /// Skips the rest of a wanted block that contains a block which cannot move. Only in a direct compaction that must not wait: it
    /// puts back what it has isolated there, and the scanner continues behind the wanted block (`skip_on_failure`).
    fn skip_spoilt(&mut self, at: Pfn, end: Pfn) {
        let Some(order) = self
            .request
            .order
            .filter(|_| self.request.caller == CompactCaller::Direct && self.request.effort == CompactEffort::Async)
        else {
            return;
        };
        let start = at.align_down(order);
        while self.sources.last().is_some_and(|source| source.block.pfn >= start) {
            if let Some(source) = self.sources.pop() {
                source.owner.put_back(source.block);
                self.taken_in_block -= 1;
            }
        }
        self.migrate_at = self.migrate_at.max((start + order.pages()).min(end));
    }

    /// Records that a pageblock was scanned, and sets its hint if it had no block to move.
    fn leave_block(&mut self, frames: PfnRange) {
        if !self.uses_hints() {
            return;
        }
        if self.taken_in_block == 0 {
            self.hints().set(frames.start);
        }
        self.remember_position();
    }

    /// Makes the next run with hints continue here.
    fn remember_position(&self) {
        let scanners = match self.request.effort.mode() {
            MigrateMode::Async => 1,
            MigrateMode::Sync => 2,
        };
        self.zone().compaction.advance_migrate(self.migrate_at, scanners);
    }

    /// Moves the isolated blocks, and puts back what cannot be moved. Frees the vacated blocks.
    pub(super) fn migrate_sources(&mut self) -> Supply {
        let discards = self.discards();
        let mut supply = Supply::Enough;
        let mut moved = [Block { pfn: Pfn(0), order: Order::ZERO }; CLUSTER];
        let mut count = 0;
        let mut wanted = self.sources.pages;
        // Last first: each block leaves the list before it gets another holder.
        while let Some(source) = self.sources.pop() {
            let pages = source.block.order.pages();
            if discards && source.owner.discard(source.block).is_ok() {
                wanted -= pages.0;
                self.outcome.discarded += pages;
                moved[count] = source.block;
                count += 1;
                continue;
            }
            let target = if supply == Supply::Enough { self.target(source.block.order, wanted) } else { None };
            wanted -= pages.0;
            match target {
                Some(to) if self.move_to(source, to) => {
                    self.outcome.migrated += pages;
                    moved[count] = source.block;
                    count += 1;
                }
                Some(_) => self.outcome.failed += pages,
                None => {
                    source.owner.put_back(source.block);
                    self.outcome.failed += pages;
                    // Single frames may still find a target where a larger block does not.
                    if source.block.order == Order::ZERO {
                        supply = Supply::Exhausted;
                    }
                }
            }
        }
        self.free_moved(&moved[..count]);
        supply
    }

    /// Whether owners drop contents rather than move them: while the yard refills its stock and free frames are short, as the reclaimer
    /// would drop pages too.
    fn discards(&self) -> bool {
        let (zone, geometry) = (self.zone(), self.view.geometry);
        self.defrag == DefragMode::On
            && self.request.order.is_some_and(|order| order >= geometry.pageblock_order())
            && zone.free_pages_racy() < zone.discard_below(geometry)
    }

    /// Has the owner move a block; puts it back if that fails (`unmap_and_move`).
    fn move_to(&mut self, source: Source<'a>, to: Pfn) -> bool {
        let Source { block, owner } = source;
        let mode = self.request.effort.mode();
        let tries = if mode == MigrateMode::Sync { SYNC_TRIES } else { 1 };
        for attempt in 0..tries {
            match owner.migrate(block, to, mode) {
                Ok(()) => return true,
                Err(MigrateProblem::Busy) if attempt + 1 < tries => self.view.platform.wait(attempt),
                Err(_) => break,
            }
        }
        owner.put_back(block);
        self.take_back(to, block.order);
        false
    }

    /// Frees vacated blocks under one hold of the zone lock.
    fn free_moved(&mut self, blocks: &[Block]) {
        let claimed = |block: &Block| {
            self.view.allocation_map.clear_allocated(self.view.platform, block.pfn, block.order).is_some()
        };
        blocks.iter().for_each(|block| self.poison(block.pfn, block.order));
        if blocks.is_empty() {
            return;
        }
        // The freed blocks shall merge, so collect what mechanisms hold of their pageblocks.
        for block in blocks {
            store::collect_around(self.view, block.pfn);
        }
        let Ok(mut locked) = self.view.lock() else { return };
        for block in blocks.iter().filter(|block| claimed(block)) {
            locked.free_compacted(block.pfn, block.order);
        }
    }
}
