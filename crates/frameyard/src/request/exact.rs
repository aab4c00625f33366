//! Allocating counts that are not a power of two, taking ranges of free frames, splitting blocks, and freeing parts of them.

use crate::boot::{HeaderWord, Poisoning};
use crate::gfp::Gfp;
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::request::frames::MOST_TRIES;
use crate::store::buddy::{RangeBlocked, RangeLists};
use crate::units::{Block, MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::yard::{AllocError, FreeError, FreeProblem, Yard};
use crate::zone::{MapEntry, Patience, poison};

impl<P: Platform> Yard<P> {
    /// Allocates `count` contiguous frames out of a block that `alloc` returns, and frees the rest of the block.
    ///
    /// After the kernel's `alloc_pages_exact`. Unlike there, the frames stay in the largest aligned blocks.
    pub(crate) fn alloc_count(
        &self,
        count: PageCount,
        alloc: impl Fn(Order) -> Result<Pfn, AllocError>,
    ) -> Result<PfnRange, AllocError> {
        let max = self.geometry.max_order();
        let order = match Order::covering(count) {
            Some(order) if order <= max => order,
            _ => return Err(AllocError::CountTooLarge { count, max: max.pages() }),
        };
        for _ in 0..MOST_TRIES {
            let pfn = alloc(order)?;
            if count == order.pages() {
                return Ok(PfnRange::new(pfn, count));
            }
            // A bad free may have won the block meanwhile.
            if let Some(entry) = self.allocation_map().clear_allocated(&self.platform, pfn, order) {
                return Ok(self.cut(PfnRange::new(pfn, order.pages()), count, entry.migrate_type()));
            }
        }
        Err(AllocError::Taken)
    }

    /// Allocates the first frames of a block that the caller holds exclusively, and frees the rest.
    fn cut(&self, block: PfnRange, count: PageCount, migrate_type: MigrateType) -> PfnRange {
        let first = PfnRange::new(block.start, count);
        let rest = PfnRange { start: first.end, end: block.end };
        let zone = self.zone_of_block(block.start);
        let allocated = Tag::new(FrameState::Allocated, Order::ZERO, migrate_type, zone);
        self.tag_parts([rest, first], allocated);
        self.mark_pieces(first, migrate_type);
        for Block { pfn, order } in rest.blocks(self.geometry.max_order()) {
            self.free_block(pfn, order);
        }
        first
    }

    /// Tags the largest aligned pieces of the parts of a block that the caller holds exclusively, each as `of_block` with its
    /// order. The part with the head comes last: until then, the head's tag covers the block.
    pub(crate) fn tag_parts(&self, parts: [PfnRange; 2], of_block: Tag) {
        for Block { pfn, order } in parts.into_iter().flat_map(|part| part.blocks(self.geometry.largest_order())) {
            self.note_tagged(pfn, order);
            let piece = Tag::new(of_block.state(), order, of_block.migrate_type(), of_block.zone());
            self.map.page(pfn, &self.platform).set_tag(piece);
        }
    }

    /// Marks the largest aligned pieces of a range allocated. They are tagged, and the caller holds them exclusively.
    pub(crate) fn mark_pieces(&self, range: PfnRange, migrate_type: MigrateType) {
        for Block { pfn, order } in range.blocks(self.geometry.max_order()) {
            let _ = self.mark_allocated(pfn, order, migrate_type);
        }
    }

    /// Marks each frame of a block allocated as a single frame. The caller holds the block exclusively.
    pub(crate) fn mark_single_frames(&self, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        let single = Tag::new(FrameState::Allocated, Order::ZERO, migrate_type, self.zone_of_block(pfn));
        self.note_tagged(pfn, order);
        // The head last: its tag covers the block until then, so every frame stays in some block.
        for offset in (0..order.pages().0).rev() {
            self.map.page(pfn + PageCount(offset), &self.platform).set_tag(single);
            let _ = self.mark_allocated(pfn + PageCount(offset), Order::ZERO, migrate_type);
        }
    }

    /// Splits an allocated block of any order into single frames, which are freed one by one (the kernel's `split_page`).
    ///
    /// # Errors
    ///
    /// [`FreeError`] in the cases in which [`free`](Self::free) fails, too; nothing has changed then.
    pub fn split(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let Some(entry) = self.clear_block(pfn, order) else { return Err(self.refuse(pfn, order)) };
        self.mark_single_frames(pfn, order, entry.migrate_type());
        Ok(())
    }

    /// Divides the allocated block that covers `at`, so that one block ends and another begins there. The parts are the
    /// largest aligned blocks that fit, and each is freed on its own. If a block begins at `at` already, nothing
    /// changes.
    ///
    /// The caller owns the block. Like the kernel's `split_page`, but it makes as few blocks as possible.
    ///
    /// # Cost
    ///
    /// Reads a byte of the allocation map for each order, and writes the page structure and the byte of each part's head. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`FreeError`] if no allocated block covers `at`; nothing has changed then.
    pub fn split_at(&self, at: Pfn) -> Result<(), FreeError> {
        let Some((head, entry)) = self.allocated_around(at) else { return Err(self.refuse(at, Order::ZERO)) };
        if head == at {
            return Ok(());
        }
        let order = entry.order();
        let Some(entry) = self.clear_block(head, order) else { return Err(self.refuse(head, order)) };
        let parts = [PfnRange { start: at, end: head + order.pages() }, PfnRange { start: head, end: at }];
        let allocated = Tag::new(FrameState::Allocated, order, entry.migrate_type(), self.zone_of_block(head));
        self.tag_parts(parts, allocated);
        for Block { pfn, order } in parts.into_iter().flat_map(|part| part.blocks(self.geometry.largest_order())) {
            self.mark_block(pfn, order, entry.migrate_type());
        }
        Ok(())
    }

    /// Frees the frames of a range: whole blocks and parts of blocks, whichever requests allocated them. A block that reaches
    /// beyond the range is [divided](Self::split_at), and its other frames stay allocated.
    ///
    /// The caller owns the frames.
    ///
    /// # Cost
    ///
    /// Reads the byte of each block in the allocation map, then divides at most two blocks, then frees each block in the
    /// range as [`free`](Self::free) does.
    ///
    /// # Errors
    ///
    /// [`FreeError`] names the first frame that is not allocated: it is free, reserved, in a hole, of a device, or owned by a
    /// guard or by another [owner](crate::owners) of counted blocks. The whole range is checked first, so nothing has changed
    /// then. If other threads wrongly free or divide blocks of the same range meanwhile, blocks that this call has freed stay
    /// free, and blocks that it has divided stay divided. After [`FreeProblem::Lock`], a block may be lost.
    pub fn free_range(&self, range: PfnRange) -> Result<(), FreeError> {
        let blocks = self.blocks_around(range)?;
        if blocks.start < range.start {
            self.split_at(range.start)?;
        }
        if range.end < blocks.end {
            self.split_at(range.end)?;
        }
        let mut at = range.start;
        while at < range.end {
            let order = self.block_to_free(at, range.end)?;
            self.free(at, order)?;
            at = at + order.pages();
        }
        Ok(())
    }

    /// The range of the allocated blocks that cover a range.
    fn blocks_around(&self, range: PfnRange) -> Result<PfnRange, FreeError> {
        let mut around = range;
        let mut at = range.start;
        while at < range.end {
            let Some((head, entry)) = self.allocated_around(at) else { return Err(self.refuse(at, Order::ZERO)) };
            around.start = around.start.min(head);
            at = head + entry.order().pages();
        }
        around.end = around.end.max(at);
        Ok(around)
    }

    /// The head of the allocated block that covers a frame, and its entry. Any frame number is allowed.
    pub(crate) fn allocated_around(&self, pfn: Pfn) -> Option<(Pfn, MapEntry)> {
        let map = self.allocation_map();
        // Whatever begins at a frame covers it.
        let own = map.entry(pfn).map(|entry| (pfn, entry));
        let block_of = |order: Order| {
            let head = pfn.align_down(order);
            map.entry(head).filter(|entry| entry.order() == order).map(|entry| (head, entry))
        };
        own.or_else(|| (1..=self.geometry.largest_order().0).map(Order).find_map(block_of))
    }

    /// The order of the allocated block at a frame, if it ends before `end`.
    pub(crate) fn block_to_free(&self, pfn: Pfn, end: Pfn) -> Result<Order, FreeError> {
        let Some(entry) = self.allocation_map().entry(pfn) else { return Err(self.refuse(pfn, Order::ZERO)) };
        let order = entry.order();
        if pfn + order.pages() > end {
            return Err(FreeError { pfn, order, problem: FreeProblem::PartOfBlock { order } });
        }
        Ok(order)
    }

    /// Allocates the frames of a range if all of them are free.
    ///
    /// Deferred memory of the range is initialised first, and per-CPU lists are drained. Watermarks do not apply. Frames
    /// of contiguous memory areas serve movable requests only. Takes a long range in several holds of the zone lock.
    pub(crate) fn take_free_range(&self, range: PfnRange, gfp: Gfp) -> Result<PfnRange, AllocError> {
        if range.is_empty() {
            return Err(AllocError::Empty);
        }
        let migrate_type = gfp.migrate_type().ok_or(AllocError::BadFlags(gfp))?;
        let zone = match self.tables.range_of(range.start) {
            Some((memory, zone)) if range.end <= memory.end => zone,
            _ => return Err(AllocError::NotOneZone(range)),
        };
        self.check_zeroing(range, gfp)?;
        let patience = Patience::of(gfp);
        if !self.ensure_initialised(range, patience) {
            return Err(AllocError::NotInitialised(range));
        }
        let view = self.zone_view(zone);
        let range_of_zone = || view.take_range(range, RangeLists::Open, migrate_type);
        // Memory that another CPU initialises becomes bits meanwhile.
        let with_bits = || {
            self.zone(zone).collect_bits(range);
            range_of_zone()
        };
        let taken = range_of_zone().or_else(|blocked| match blocked.state {
            FrameState::PerCpu | FrameState::InTransit | FrameState::Interior => {
                self.zone(zone).drain_with(patience);
                self.take_initialised(zone, patience, with_bits)
            }
            _ => Err(blocked),
        });
        taken.map_err(|RangeBlocked { head, state, order }| AllocError::InUse { head, order, state })?;
        self.finish_range(range, migrate_type, gfp)
    }

    /// Refuses to zero frames whose bytes the platform does not map.
    pub(crate) fn check_zeroing(&self, range: PfnRange, gfp: Gfp) -> Result<(), AllocError> {
        let zeroes = !gfp.contains(Gfp::ZERO) || self.platform.frame_bytes(range.start).is_some();
        if zeroes { Ok(()) } else { Err(AllocError::NoFrameBytes(range.start)) }
    }

    /// Checks a range that has left the free lists for damage, zeroes it if requested, and marks it allocated.
    pub(crate) fn finish_range(
        &self,
        range: PfnRange,
        migrate_type: MigrateType,
        gfp: Gfp,
    ) -> Result<PfnRange, AllocError> {
        if self.poisoning == Poisoning::On {
            self.check_range(range)?;
        }
        if gfp.contains(Gfp::ZERO) {
            for Block { pfn, order } in range.blocks(self.geometry.max_order()) {
                // SAFETY: the range has left the free lists and is not allocated yet: it is the caller's.
                unsafe { poison::zero(&self.platform, self.geometry, pfn, order) };
            }
        }
        self.mark_pieces(range, migrate_type);
        Ok(range)
    }

    /// Takes a damaged block, which the caller holds exclusively, out of use.
    pub(crate) fn retire_damaged(&self, pfn: Pfn, order: Order) {
        let page = self.map.page(pfn, &self.platform);
        let tag = match page.tag() {
            tag if tag.is_untagged() => {
                Tag::new(FrameState::Poisoned, order, self.pageblocks().get(pfn), self.zone_of_block(pfn))
            }
            tag => tag.with_state(FrameState::Poisoned),
        };
        page.set_tag(tag);
        self.tables.count(HeaderWord::PoisonHits);
    }

    /// Checks a range that was just taken for damage. Damaged blocks go out of use, the rest is freed.
    #[cold]
    fn check_range(&self, range: PfnRange) -> Result<(), AllocError> {
        let blocks = || range.blocks(self.geometry.max_order());
        // SAFETY: the caller has just taken the range and has not allocated it yet.
        let damaged = |Block { pfn, order }| unsafe { poison::damaged(&self.platform, self.geometry, pfn, order) };
        let first = blocks().find_map(|block| Some((damaged(block)?, block)));
        let Some((pfn, first)) = first else { return Ok(()) };
        for block in blocks() {
            if damaged(block).is_some() {
                self.retire_damaged(block.pfn, block.order);
            } else {
                self.free_block(block.pfn, block.order);
            }
        }
        Err(AllocError::Poisoned { pfn, block: first.pfn, order: first.order })
    }
}
