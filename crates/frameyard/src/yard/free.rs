//! Freeing: the check that decides between racing frees, the fast path, and what a bad free is told.
//!
//! The tag of the block's page is exchanged in one atomic step from allocated to per-CPU. Of two threads that
//! free the same block at once one succeeds; the other finds it free already and changes nothing. The exchange
//! decides this alone, so it is relaxed; the lock of the list that the block goes to orders everything else.

use super::{FreeError, FreeProblem, Yard};
use crate::boot::Poisoning;
use crate::page::{FrameState, Residence, Tag};
use crate::platform::Platform;
use crate::units::{CpuId, Order, Pfn, PfnRange, ZoneId};
use crate::zone::pcp::{ListId, LockedPcp, list_type};
use crate::zone::{covering_block, poison};

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
        // Single frames get code of their own, in which the order is a constant.
        if order == Order::ZERO { self.free_fast(pfn, Order::ZERO) } else { self.free_fast(pfn, order) }
    }

    #[inline(always)]
    fn free_fast(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if let Some(list_type) = self.fast.blocks.ordinary_type(pfn)
            && let Some(list) = ListId::small(order, list_type)
            && let Some(zone) = self.claim(pfn, order)
        {
            return self.put_back(self.platform.current_cpu(), pfn, list, order, zone);
        }
        self.free_special(pfn, order)
    }

    /// Turns an allocated block into one that is to stand on a per-CPU list; `None`, and nothing changed, where it
    /// is no such block.
    #[inline(always)]
    fn claim(&self, pfn: Pfn, order: Order) -> Option<ZoneId> {
        let page = self.map.page(pfn, &self.platform);
        let tag = page.tag();
        if !tag.is_block(FrameState::Allocated, order) {
            return None;
        }
        page.replace_tag(tag, tag.with_state(FrameState::PerCpu)).ok().map(|()| tag.zone())
    }

    /// Puts a claimed block on the caller's list.
    #[inline(always)]
    fn put_back(&self, cpu: CpuId, pfn: Pfn, list: ListId, order: Order, zone: ZoneId) -> Result<(), FreeError> {
        if let Some(pcp) = self.tables.pcp_of(zone, cpu)
            && let Some(mut lists) = pcp.try_lock(&self.platform, zone, cpu)
        {
            lists.count_free(list);
            if !lists.push(list, order, self.map.index(pfn)) {
                return self.make_room(lists, pfn, list, zone);
            }
            Ok(())
        } else if cpu.0 >= self.cpus {
            self.put_back_folded(pfn, list, order, zone)
        } else {
            self.put_back_elsewhere(cpu, pfn, list, order, zone)
        }
    }

    /// As [`put_back`](Self::put_back), where somebody is at the caller's lists.
    #[cold]
    #[inline(never)]
    fn put_back_elsewhere(
        &self,
        cpu: CpuId,
        pfn: Pfn,
        list: ListId,
        order: Order,
        zone: ZoneId,
    ) -> Result<(), FreeError> {
        let Some(mut lists) = self.lists_at_hand(self.zone_view(zone), cpu) else {
            return self.insert(pfn, order, zone);
        };
        lists.count_free(list);
        if lists.push(list, order, self.map.index(pfn)) { Ok(()) } else { self.make_room(lists, pfn, list, zone) }
    }

    /// As [`put_back`](Self::put_back), for a CPU that the yard does not know.
    #[cold]
    #[inline(never)]
    fn put_back_folded(&self, pfn: Pfn, list: ListId, order: Order, zone: ZoneId) -> Result<(), FreeError> {
        self.put_back(self.cpu(), pfn, list, order, zone)
    }

    #[cold]
    #[inline(never)]
    fn make_room(&self, mut lists: LockedPcp<'_, P>, pfn: Pfn, list: ListId, zone: ZoneId) -> Result<(), FreeError> {
        lists.push_slow(self.zone_view(zone), list, self.map.index(pfn));
        Ok(())
    }

    /// Everything but the fast path of small blocks: huge ones, other pageblocks, poisoning, bad frees.
    #[cold]
    #[inline(never)]
    fn free_special(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let Some(page) = self.page_of(pfn) else { return Err(self.refuse(pfn, order)) };
        let tag = page.tag();
        if !tag.is_block(FrameState::Allocated, order) {
            return Err(self.refuse(pfn, order));
        }
        // Claimed for no list yet, so that the block can be poisoned before anybody can have it.
        if page.replace_tag(tag, tag.with_state(FrameState::InTransit)).is_err() {
            return Err(self.refuse(pfn, order));
        }
        if self.poisoning == Poisoning::On {
            poison::fill(&self.platform, self.geometry, pfn, order);
        }
        let zone = tag.zone();
        let list_type = list_type(self.pageblocks().get(pfn));
        match list_type.and_then(|list_type| ListId::new(order, list_type, self.geometry)) {
            Some(list) => {
                page.set_tag(tag.with_state(FrameState::PerCpu));
                self.put_back(self.cpu(), pfn, list, order, zone)
            }
            None => self.insert(pfn, order, zone),
        }
    }

    /// Puts a block that the caller has claimed on its zone's free lists.
    #[cold]
    #[inline(never)]
    fn insert(&self, pfn: Pfn, order: Order, zone: ZoneId) -> Result<(), FreeError> {
        let mut locked = self.zone_view(zone).lock();
        locked.free_to_pageblocks(pfn, order, Residence::Resident);
        locked.count_direct_free(order);
        Ok(())
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
        let Some(page) = self.page_of(pfn) else {
            return match self.zone_of(pfn) {
                Some(_) => FreeProblem::NotAllocated(FrameState::Uninitialised),
                None if self.map.range().contains(pfn) => FreeProblem::Hole,
                None => FreeProblem::OutOfRange,
            };
        };
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
