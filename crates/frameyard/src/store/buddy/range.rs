//! Taking a particular range of frames, if all of it is free.

use crate::memmap::{Located, MapBlock};
use crate::page::{FrameState, Residence, Tag};
use crate::platform::Platform;
use crate::units::{Block, MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::view::{LockedZone, ZoneView};

/// The frame that keeps a range from being taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RangeBlocked {
    /// Head of the block in the way, or the frame itself if no block covers it.
    pub(crate) head: Pfn,
    /// What that block is.
    pub(crate) state: FrameState,
    /// Its order.
    pub(crate) order: Order,
}

impl RangeBlocked {
    /// The zone of a range was not locked, so nothing is known about its blocks.
    pub(crate) fn unlocked(range: PfnRange) -> Self {
        Self { head: range.start, state: FrameState::InTransit, order: Order::ZERO }
    }
}

/// Which free lists a range may be taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RangeLists {
    /// The lists that serve allocations of the type: not those reserved for atomic high-order requests, and those of contiguous
    /// memory areas only for movable requests.
    Open,
    /// The lists of isolated pageblocks.
    Isolated,
}

impl RangeLists {
    fn have(self, list: MigrateType, wanted: MigrateType) -> bool {
        match (self, list) {
            (Self::Open, MigrateType::HighAtomic | MigrateType::Isolate) => false,
            (Self::Open, MigrateType::Cma) => wanted == MigrateType::Movable,
            (Self::Open, _) => true,
            (Self::Isolated, _) => list == MigrateType::Isolate,
        }
    }
}

/// A hold of the zone lock ends after that many blocks of a range, at the next border of a maximum-order block.
const BLOCKS: usize = if cfg!(loom) { 1 } else { 64 };

impl<P: Platform> ZoneView<'_, P> {
    /// Takes all frames of a range off the free lists, as the largest aligned blocks. The caller still has to mark them as allocated.
    ///
    /// A long range takes several holds of the zone lock. It is checked as a whole first, so a request takes nothing that could not
    /// have all; only if another CPU then takes a frame of the range does it put blocks back.
    ///
    /// # Errors
    ///
    /// The first block that is not free; nothing has changed then. The range must lie in present sections.
    pub(crate) fn take_range(
        self,
        range: PfnRange,
        lists: RangeLists,
        migrate_type: MigrateType,
    ) -> Result<(), RangeBlocked> {
        let from = |start| PfnRange { start, ..range };
        let lock = || self.lock().map_err(|_| RangeBlocked::unlocked(range));
        let mut locked = lock()?;
        let mut at = locked.free_part(range, lists, migrate_type)?;
        if at == range.end {
            locked.take_free(range, migrate_type);
            return Ok(());
        }
        drop(locked);
        while at < range.end {
            at = lock()?.free_part(from(at), lists, migrate_type)?;
        }
        at = range.start;
        while at < range.end {
            let part = lock().and_then(|mut locked| {
                let end = locked.free_part(from(at), lists, migrate_type)?;
                locked.take_free(PfnRange { start: at, end }, migrate_type);
                Ok(end)
            });
            match part {
                Ok(end) => at = end,
                Err(blocked) => {
                    self.put_back_range(PfnRange { end: at, ..range });
                    return Err(blocked);
                }
            }
        }
        Ok(())
    }

    /// Frees a range that was taken, a block in each hold of the lock.
    fn put_back_range(self, taken: PfnRange) {
        for Block { pfn, order } in taken.blocks(self.geometry.max_order()) {
            if let Ok(mut locked) = self.lock() {
                locked.free_to_pageblocks(pfn, order, Residence::Resident);
            }
        }
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// The end of the part of a range that one hold of the lock treats. Its frames are free.
    ///
    /// # Errors
    ///
    /// The first block that is not free.
    fn free_part(&self, range: PfnRange, lists: RangeLists, migrate_type: MigrateType) -> Result<Pfn, RangeBlocked> {
        let (mut at, mut blocks) = (range.start, 0);
        // Borders of maximum-order blocks cut no piece of the range in two.
        while at < range.end && (blocks < BLOCKS || !at.is_aligned(self.geometry.max_order())) {
            let (head, tag) = self.settled_block(at);
            if !tag.is(FrameState::BuddyFree) || tag.zone() != self.id || !lists.have(tag.migrate_type(), migrate_type)
            {
                return Err(RangeBlocked { head, state: tag.state(), order: tag.order() });
            }
            at = head + tag.order().pages();
            blocks += 1;
        }
        Ok(at.min(range.end))
    }

    /// Takes a range of free frames off the free lists.
    fn take_free(&mut self, range: PfnRange, migrate_type: MigrateType) {
        let mut at = range.start;
        while at < range.end {
            let (head, tag) = self.settled_block(at);
            at = head + tag.order().pages();
            self.remove_block(head, tag);
            self.page(head).set_tag(Tag::INTERIOR);
            let block = PfnRange { start: head, end: at };
            self.put_back_pieces(
                PfnRange { start: head, end: range.start.max(head) },
                tag.migrate_type(),
                tag.residence(),
            );
            self.put_back_pieces(
                PfnRange { start: range.end.min(block.end), end: block.end },
                tag.migrate_type(),
                tag.residence(),
            );
        }
        self.tag_pieces(range, FrameState::Allocated, migrate_type);
    }

    /// Takes at most `count` single frames of the movable block below pageblock order that begins at a frame, if it is free. Leaves the rest
    /// on the lists.
    pub(crate) fn take_singles(&mut self, head: Pfn, count: usize, mut take: impl FnMut(&Self, Pfn)) {
        let tag = self.settled_tag(head);
        let is_small = tag.order() < self.geometry.pageblock_order() && tag.migrate_type() == MigrateType::Movable;
        let taken = tag.order().pages().0.min(count as u64);
        if taken == 0 || !is_small || !self.is_listed(head, tag) {
            return;
        }
        self.remove_block(head, tag);
        for at in 0..taken {
            take(self, head + PageCount(at));
            self.count_direct_allocation(Order::ZERO);
        }
        let block = MapBlock { head: head.place(&self.map), order: tag.order() };
        self.put_back_from(block, taken as u32, MigrateType::Movable, tag.residence());
    }

    /// As [`ZoneView::covering_block`], and a block that looks free is free.
    pub(crate) fn settled_block(&self, pfn: Pfn) -> (Pfn, Tag) {
        self.covering_block_by(pfn, |pfn| self.settled_tag(pfn))
    }

    fn tag_pieces(&mut self, range: PfnRange, state: FrameState, migrate_type: MigrateType) {
        for Block { pfn, order } in range.blocks(self.geometry.max_order()) {
            self.tag_block(pfn, state, order, migrate_type);
        }
    }
}

impl<P: Platform> ZoneView<'_, P> {
    /// The largest blocks, of at most `largest`, that the frames at neighbouring places make up. The frames may lie on both sides of a
    /// hole, but a block lies in one section, where frames and places have the same alignment.
    pub(crate) fn blocks_at(self, first: u32, count: usize, largest: Order) -> impl Iterator<Item = MapBlock> {
        let places = PfnRange::new(Pfn(first.into()), PageCount(count as u64));
        places.blocks(largest).map(move |Block { pfn, order }| MapBlock { head: self.map.checked(pfn.0 as u32), order })
    }
}
