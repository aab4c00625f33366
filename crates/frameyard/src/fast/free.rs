//! Freeing: the check that decides racing frees, the fast path, and the error of a bad free.
//!
//! One atomic exchange clears the byte of the block's head in the [`AllocationMap`](crate::zone::AllocationMap). If two
//! threads free the same block at once, one of them wins; the other gets an error and has changed nothing. The block's
//! page structure is not touched. It is written only when the block is packed into a batch or drained, together with
//! others, so that their cache misses overlap. The word of the pageblock has the type and the zone.

use crate::boot::{PageChecks, Poisoning};
use crate::lists::{ListId, LockedPcp, list_type};
use crate::page::FrameState;
use crate::platform::{Activity, Platform, Probe};
use crate::store::{self, page_check};
use crate::units::{CpuId, Order, PageCount, Pfn, ZoneId};
use crate::yard::{FreeError, FreeProblem, Yard};
use crate::zone::poison;

impl<P: Platform> Yard<P> {
    /// Frees a block that [`alloc`](Self::alloc) returned, with the same order.
    ///
    /// Modelled on the kernel's `free_pages`. In the common case this costs an atomic exchange on the frame's byte in
    /// the allocation map, and a restartable sequence ([`Platform::has_sequences`]) or a try of the CPU's own lock. A
    /// drain takes the zone lock at most once per batch.
    ///
    /// # Errors
    ///
    /// [`FreeError`] names the frame and its state; nothing has changed then. After [`FreeProblem::Lock`] the block may be lost.
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.platform.probe().begin_activity(Activity::Free);
        // Single frames get code of their own, in which the order is a constant.
        let freed = if order == Order::ZERO { self.free_fast(pfn, Order::ZERO) } else { self.free_larger(pfn, order) };
        self.platform.probe().end_activity(Activity::Free, PageCount(0));
        freed
    }

    #[inline]
    fn free_larger(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_fast(pfn, order)
    }

    #[inline(always)]
    fn free_fast(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        // The place in the largest run, or one behind its end.
        let place = pfn.0.wrapping_sub(self.fast.largest_start.0) as usize;
        let place = match self.fast.largest.clear_allocated_at(&self.platform, place, order) {
            Some(_) => Some(place),
            None if order == Order::ZERO => self.clear_frame_in_other_run(pfn),
            None => self.clear_in_other_run(pfn, order),
        };
        match place {
            Some(place) => self.free_block_at(place, order),
            None => Err(self.refuse(pfn, order)),
        }
    }

    #[cold]
    #[inline(never)]
    fn clear_in_other_run(&self, pfn: Pfn, order: Order) -> Option<usize> {
        if order > self.geometry.max_order() {
            return self.allocation_map().clear_large(&self.platform, pfn, order).map(|_| self.map.place(pfn));
        }
        self.clear_outside(pfn, order)
    }

    /// As [`clear_in_other_run`](Self::clear_in_other_run): see `mark_frame_in_other_run`.
    #[cold]
    #[inline(never)]
    fn clear_frame_in_other_run(&self, pfn: Pfn) -> Option<usize> {
        self.clear_outside(pfn, Order::ZERO)
    }

    /// Ends the allocation of a block outside the largest run. Returns its place; `None` if no such block is allocated there.
    #[inline(always)]
    fn clear_outside(&self, pfn: Pfn, order: Order) -> Option<usize> {
        // The table of sections names no frame of the largest run by its number.
        let place = self.fast.other_runs.place(pfn);
        self.allocation_map().clear_allocated_at(&self.platform, place, order).map(|_| place)
    }

    /// Frees a block that the caller holds exclusively and that is not marked allocated: pushes it onto the caller's
    /// list, or the zone's free list.
    ///
    /// The tag of its head says that it has left the zone. All other words of its pages are as after initialisation.
    /// A block whose list cannot be locked is lost.
    #[inline(always)]
    pub(crate) fn free_block(&self, pfn: Pfn, order: Order) {
        let _ = self.free_block_at(self.map.place(pfn), order);
    }

    /// As [`free_block`](Self::free_block), by the place of the block's head in the map.
    #[inline(always)]
    pub(crate) fn free_block_at(&self, place: usize, order: Order) -> Result<(), FreeError> {
        let index = place as u32;
        self.fast.blocks.touch_at(&self.platform, place);
        if let Some((list_type, zone)) = self.fast.blocks.ordinary_at(place)
            && let Some(list) = ListId::new(order, list_type, self.list_orders)
        {
            if let Some(cpu) = self.platform.sequence_cpu() {
                return self.push_in_sequence(cpu, index, list, order, zone);
            }
            self.push_to_list(self.platform.current_cpu(), index, list, order, zone)
        } else {
            self.free_larger_block(index, order)
        }
    }

    /// Pushes a block that the caller holds exclusively onto the caller's list.
    #[inline(always)]
    fn push_to_list(&self, cpu: CpuId, index: u32, list: ListId, order: Order, zone: ZoneId) -> Result<(), FreeError> {
        match self.tables.pcp_of(zone, cpu).and_then(|pcp| pcp.try_lock(&self.platform, zone, cpu)) {
            Some(lists) => self.push_locked(lists, index, list, zone),
            None => self.push_to_list_from(cpu, index, list, order, zone),
        }
    }

    /// As [`push_to_list`](Self::push_to_list), in a sequence.
    #[inline(always)]
    fn push_in_sequence(
        &self,
        cpu: CpuId,
        index: u32,
        list: ListId,
        order: Order,
        zone: ZoneId,
    ) -> Result<(), FreeError> {
        match self.tables.pcp_of(zone, cpu) {
            Some(pcp) if self.platform.push_in_sequence(cpu, pcp.own_list(list), index) => Ok(()),
            _ => self.push_to_list_from(cpu, index, list, order, zone),
        }
    }

    #[inline(always)]
    fn push_locked(
        &self,
        mut lists: LockedPcp<'_, P>,
        index: u32,
        list: ListId,
        zone: ZoneId,
    ) -> Result<(), FreeError> {
        if lists.push(list, index) { Ok(()) } else { self.push_overflowing(lists, index, list, zone) }
    }

    /// As [`push_to_list`](Self::push_to_list), where the caller's lists are locked, or the yard does not know its CPU.
    #[cold]
    #[inline(never)]
    fn push_to_list_from(
        &self,
        cpu: CpuId,
        index: u32,
        list: ListId,
        order: Order,
        zone: ZoneId,
    ) -> Result<(), FreeError> {
        match self.try_lock_lists_from(self.zone_view(zone), CpuId(cpu.0 % self.cpus)) {
            Some(lists) => self.push_locked(lists, index, list, zone),
            None => self.insert(index, order, zone),
        }
    }

    #[cold]
    #[inline(never)]
    fn push_overflowing(
        &self,
        mut lists: LockedPcp<'_, P>,
        index: u32,
        list: ListId,
        zone: ZoneId,
    ) -> Result<(), FreeError> {
        let _error_of_an_earlier_call = self.platform.lock_error();
        lists.push_slow(self.zone_view(zone), list, index);
        drop(lists);
        self.check_freed(index, list.order(self.geometry))
    }

    /// The error of a free during which a lock was not taken.
    fn check_freed(&self, index: u32, order: Order) -> Result<(), FreeError> {
        let pfn = self.map.pfn(index);
        let failed = |error| Err(FreeError { pfn, order, problem: FreeProblem::Lock(error) });
        self.platform.lock_error().map_or(Ok(()), failed)
    }

    /// What the fast path leaves. Blocks of a pageblock that is being emptied become free at once, past the lists.
    #[inline(never)]
    fn free_larger_block(&self, index: u32, order: Order) -> Result<(), FreeError> {
        if let Some((_, zone)) = self.fast.blocks.lasting_at(index as usize)
            && store::put_direct(self.zone_view(zone), self.platform.current_cpu(), index as usize, order)
        {
            return Ok(());
        }
        self.free_slow(index, order)
    }

    /// What the fast path leaves: orders without lists, pageblocks of other types, poisoning, checks.
    #[cold]
    #[inline(never)]
    fn free_slow(&self, index: u32, order: Order) -> Result<(), FreeError> {
        let pfn = self.map.pfn(index);
        if order > self.geometry.max_order() {
            return self.free_large(pfn, order);
        }
        // As in the kernel, the caller hears nothing of a bad page.
        if self.checks == PageChecks::All && !self.is_free_block_good(pfn, order) {
            return Ok(());
        }
        // Before the block is on a list: once it is, another CPU could allocate it.
        if self.poisoning == Poisoning::On {
            // SAFETY: the block is no longer allocated and on no list yet: it is the caller's.
            unsafe { poison::fill(&self.platform, self.geometry, pfn, order) };
        }
        let zone = self.zone_of_block(pfn);
        let found = self.pageblocks().get(pfn);
        match list_type(found).and_then(|list_type| ListId::new(order, list_type, self.list_orders)) {
            Some(list) => self.push_to_list(self.cpu(), index, list, order, zone),
            None => self.insert(index, order, zone),
        }
    }

    /// Whether no page of a block is bad that the caller holds exclusively. Otherwise the block is out of use now.
    pub(crate) fn is_free_block_good(&self, pfn: Pfn, order: Order) -> bool {
        let (view, block) = (self.zone_view(self.zone_of_block(pfn)), self.map.checked(self.map.index(pfn)));
        let bad = page_check::problem_of_block(view, block, order);
        bad.inspect(|bad| page_check::retire(view, block, order, *bad)).is_none()
    }

    /// Frees a block that the caller holds exclusively to its zone's free lists.
    #[cold]
    #[inline(never)]
    fn insert(&self, index: u32, order: Order, zone: ZoneId) -> Result<(), FreeError> {
        let _error_of_an_earlier_call = self.platform.lock_error();
        store::give_back_block(self.zone_view(zone), self.cpu(), self.map.pfn(index), order);
        self.check_freed(index, order)
    }

    /// Frees a block that the caller owns for certain.
    pub(crate) fn release(&self, pfn: Pfn, order: Order) {
        // A refusal loses nothing: a bad free of other code has won. The platform keeps the error of a lock.
        let _ = self.free(pfn, order);
    }

    /// The reason why a block cannot be freed.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&self, pfn: Pfn, order: Order) -> FreeError {
        FreeError { pfn, order, problem: self.problem(pfn, order) }
    }

    fn problem(&self, pfn: Pfn, order: Order) -> FreeProblem {
        if self.page_of(pfn).is_none() {
            return match self.zone_of(pfn) {
                None if self.devices().page(pfn).is_some() => FreeProblem::NotAllocated(FrameState::Device),
                Some(_) => FreeProblem::NotAllocated(FrameState::Uninitialised),
                None if self.map.range().contains(pfn) => FreeProblem::Hole,
                None => FreeProblem::OutOfRange,
            };
        }
        let tag = match self.tag_at(pfn) {
            tag if tag.is(FrameState::Interior) => self.large_at(pfn).map_or(tag, |(_, tag)| tag),
            tag => tag,
        };
        match tag.state() {
            state if is_free(state) => FreeProblem::AlreadyFree(self.visible_state(pfn, tag)),
            // Freed and allocated again between the check and this: the caller's block is gone.
            FrameState::Allocated if tag.order() == order => FreeProblem::AlreadyFree(FrameState::InTransit),
            FrameState::Allocated if order <= self.geometry.largest_order() && !pfn.is_aligned(order) => {
                FreeProblem::Misaligned
            }
            FrameState::Allocated => FreeProblem::OtherOrder { allocated: tag.order() },
            FrameState::Interior => {
                let (head, tag) = self.covering(pfn);
                match tag.state() {
                    // No block covers memory for a moment while free blocks merge.
                    FrameState::Interior if self.zone_of(pfn).is_some() => {
                        FreeProblem::AlreadyFree(FrameState::InTransit)
                    }
                    FrameState::Interior => FreeProblem::Hole,
                    state if is_free(state) => FreeProblem::AlreadyFree(self.visible_state(head, tag)),
                    state if head == pfn => FreeProblem::NotAllocated(state),
                    state => FreeProblem::InsideBlock { head, order: tag.order(), state },
                }
            }
            state => FreeProblem::NotAllocated(state),
        }
    }
}

/// Whether a block of that state is free, on whichever list, or in transit to one.
const fn is_free(state: FrameState) -> bool {
    matches!(state, FrameState::BuddyFree | FrameState::PerCpu | FrameState::InTransit)
}
