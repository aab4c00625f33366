//! Freeing: the check that decides between racing frees, the fast path, and what a bad free is told.
//!
//! The tag of the block's page is exchanged in one atomic step from allocated to per-CPU. Of two threads that
//! free the same block at once one succeeds; the other finds it free already and changes nothing.

use super::{FreeError, FreeProblem, Yard};
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, Pfn, PfnRange};
use crate::zone::pcp::{ListId, list_type};
use crate::zone::{add_exclusive, covering_block, poison};

impl<P: Platform> Yard<P> {
    /// Frees a block that [`alloc`](Self::alloc) gave out with the same order.
    ///
    /// After the kernel's `free_pages`. Cost in the common case: one atomic exchange on the frame's page, the
    /// caller's per-CPU lock (a try); a zone lock once a batch.
    ///
    /// # Errors
    ///
    /// [`FreeError`] names the frame and what it is instead; nothing has changed then.
    #[inline]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let Some(page) = self.page_of(pfn) else { return Err(self.refuse(pfn, order)) };
        let tag = page.tag();
        if !tag.is_block(FrameState::Allocated, order) {
            return Err(self.refuse(pfn, order));
        }
        let block_type = self.pageblocks().get(pfn);
        let list = list_type(block_type)
            .and_then(|list_type| Some((ListId::new(order, list_type, self.geometry)?, list_type)));
        let Some((list, list_type)) = list else { return self.free_to_zone(pfn, tag) };
        if page.replace_tag(tag, Tag::new(FrameState::PerCpu, order, list_type, tag.zone())).is_err() {
            return Err(self.refuse(pfn, order));
        }
        if self.prepare.bits() != 0 {
            poison::fill(&self.platform, self.geometry, pfn, order);
        }
        self.put_back(pfn, list, order, tag);
        Ok(())
    }

    /// Puts a block that the caller has claimed on the caller's list.
    #[inline(always)]
    fn put_back(&self, pfn: Pfn, list: ListId, order: Order, tag: Tag) {
        let pcp = self.tables.pcp_of(tag.zone(), self.cpu().index());
        let Some(mut lists) = pcp.try_lock(&self.platform) else { return self.insert(pfn, order, tag) };
        let index = self.map.index(pfn);
        add_exclusive(&lists.counts().frees, 1);
        if !lists.push(list, order, index) {
            lists.push_slow(self.zone_view(tag.zone()), list, index);
        }
    }

    /// Frees a block that has no per-CPU list, or must not stay on one.
    #[cold]
    #[inline(never)]
    fn free_to_zone(&self, pfn: Pfn, tag: Tag) -> Result<(), FreeError> {
        let order = tag.order();
        let page = self.map.page(pfn, &self.platform);
        if page.replace_tag(tag, tag.with_state(FrameState::InTransit)).is_err() {
            return Err(self.refuse(pfn, order));
        }
        if self.prepare.bits() != 0 {
            poison::fill(&self.platform, self.geometry, pfn, order);
        }
        self.insert(pfn, order, tag);
        Ok(())
    }

    /// Puts a block that the caller has claimed on its zone's free lists.
    #[cold]
    #[inline(never)]
    fn insert(&self, pfn: Pfn, order: Order, tag: Tag) {
        let view = self.zone_view(tag.zone());
        let mut locked = view.lock();
        let migrate_type: MigrateType = view.blocks.get(pfn);
        locked.free_block(pfn, order, migrate_type);
        locked.count_direct_free();
    }

    /// Frees a block that the caller owns for certain.
    pub(super) fn release(&self, pfn: Pfn, order: Order) {
        let freed = self.free(pfn, order);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    /// Frees every block of a range: all of it must be allocated, in blocks that end with the range.
    ///
    /// # Errors
    ///
    /// [`FreeError`] names the first frame that cannot be freed. Nothing has changed then, unless other threads
    /// free blocks of the same range at the same time: what this call had freed by then stays free.
    pub fn free_range(&self, range: PfnRange) -> Result<(), FreeError> {
        let mut at = range.start;
        while at < range.end {
            let order = self.block_to_free(at, range.end)?;
            at = at + order.pages();
        }
        let mut at = range.start;
        while at < range.end {
            let order = self.block_to_free(at, range.end)?;
            self.free(at, order)?;
            at = at + order.pages();
        }
        Ok(())
    }

    /// The order of the allocated block at a frame, if it ends before `end`.
    fn block_to_free(&self, pfn: Pfn, end: Pfn) -> Result<Order, FreeError> {
        let tag = self.page_of(pfn).map_or(Tag::INTERIOR, |page| page.tag());
        if !tag.is(FrameState::Allocated) {
            return Err(self.refuse(pfn, Order::ZERO));
        }
        let order = tag.order();
        if pfn + order.pages() > end {
            return Err(FreeError { pfn, order, problem: FreeProblem::PartOfBlock { order } });
        }
        Ok(order)
    }

    /// Says why a block cannot be freed.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse(&self, pfn: Pfn, order: Order) -> FreeError {
        FreeError { pfn, order, problem: self.problem(pfn, order) }
    }

    fn problem(&self, pfn: Pfn, order: Order) -> FreeProblem {
        let Some(page) = self.page_of(pfn) else { return FreeProblem::OutOfRange };
        let tag = page.tag();
        match tag.state() {
            FrameState::BuddyFree | FrameState::PerCpu | FrameState::InTransit => FreeProblem::AlreadyFree(tag.state()),
            // Freed and allocated anew between the check and this: what the caller holds is not this block.
            FrameState::Allocated if tag.order() == order => FreeProblem::AlreadyFree(FrameState::InTransit),
            FrameState::Allocated if order <= self.geometry.max_order() && !pfn.is_aligned(order) => {
                FreeProblem::Misaligned
            }
            FrameState::Allocated => FreeProblem::OtherOrder { allocated: tag.order() },
            FrameState::Interior => {
                let max_order = self.geometry.max_order();
                let (head, tag) = covering_block(max_order, pfn, |pfn| self.map.page(pfn, &self.platform).tag());
                match tag.state() {
                    // No block covers memory for a moment while free blocks merge.
                    FrameState::Interior if self.zone_of(pfn).is_some() => {
                        FreeProblem::AlreadyFree(FrameState::InTransit)
                    }
                    FrameState::Interior => FreeProblem::Hole,
                    state @ (FrameState::BuddyFree | FrameState::PerCpu | FrameState::InTransit) => {
                        FreeProblem::AlreadyFree(state)
                    }
                    state => FreeProblem::InsideBlock { head, order: tag.order(), state },
                }
            }
            state => FreeProblem::NotAllocated(state),
        }
    }
}
