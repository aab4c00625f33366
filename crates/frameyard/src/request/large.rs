//! Large blocks: allocated blocks of more than the maximum order, up to 1 GiB.
//!
//! Free memory has no such blocks. A request takes a free place as maximum-order blocks, as a request for a range does,
//! and joins them. From then on it is one allocated block: only the tag of its head and the first pageblock's byte in
//! the allocation map have the order. So here, too, the exchange of one byte decides racing frees. A free divides the
//! block into maximum-order blocks again.
//!
//! Only [`Allocated`](FrameState::Allocated) blocks are large. A [`Frames`](crate::Frames) guard owns a large block as
//! several maximum-order blocks, and counted blocks have at most the maximum order.
//!
//! The fast paths know nothing of large blocks: they refuse the order, and the slow path behind them handles it.

use crate::boot::HeaderWord;
use crate::gfp::Gfp;
use crate::owners::Owners;
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::store;
use crate::units::{Block, MigrateType, NodeId, Order, Pfn, PfnRange, ZoneId};
use crate::yard::{AllocError, FreeError, FreeProblem, Yard};
use crate::zone::{HeldFree, MapEntry, Reserves, WatermarkLevel};

impl<P: Platform> Yard<P> {
    /// Allocates a block above the maximum order from free memory. Drains the per-CPU lists if the request may wait.
    ///
    /// A zone is asked if it stays above its min watermark.
    pub(crate) fn alloc_large(&self, node: NodeId, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        let max = self.geometry.largest_order();
        if order > max {
            return Err(AllocError::OrderTooLarge { order, max });
        }
        if gfp.migrate_type().is_none() {
            return Err(AllocError::BadFlags(gfp));
        }
        self.refuse_damaged()?;
        let mut found = self.take_large(node, order, gfp)?;
        if found.is_none() && gfp.contains(Gfp::DIRECT_RECLAIM) && !gfp.contains(Gfp::NORETRY) {
            self.tables.count(HeaderWord::Drains);
            self.drain_all();
            found = self.take_large(node, order, gfp)?;
        }
        if let Some(pfn) = found {
            return Ok(pfn);
        }
        self.platform.lock_error().map_or(Ok(()), |error| Err(AllocError::Lock(error)))?;
        if !gfp.contains(Gfp::NOWARN) {
            self.tables.count(HeaderWord::Failures);
        }
        Err(self.out_of_memory(order, gfp, node))
    }

    /// Takes a free place of the zones that may serve a request: a clean region if there is one, else the first place.
    fn take_large(&self, node: NodeId, order: Order, gfp: Gfp) -> Result<Option<Pfn>, AllocError> {
        for id in self.zones_for(node, gfp).filter(|id| self.may_give_large(*id, order, gfp)) {
            let view = self.zone_view(id);
            let regions = self.emptiest_regions(view).filter(|_| order == self.geometry.largest_order());
            for memory in regions.chain(self.memory_in(id)) {
                if let Some(pfn) = self.take_large_of(memory, order, gfp)? {
                    return Ok(Some(pfn));
                }
            }
        }
        Ok(None)
    }

    /// The memory of a zone, ascending.
    fn memory_in(&self, id: ZoneId) -> impl Iterator<Item = PfnRange> + use<P> {
        self.tables.ranges().filter(move |(_, of)| *of == id).map(|(memory, _)| memory)
    }

    /// Takes the first free place of a range of memory.
    fn take_large_of(&self, memory: PfnRange, order: Order, gfp: Gfp) -> Result<Option<Pfn>, AllocError> {
        let mut at = memory.start.align_up(order);
        // Ends: each place begins above the one before.
        while let Some(start) = at.filter(|start| *start < memory.end && memory.end - *start >= order.pages()) {
            let place = PfnRange::new(start, order.pages());
            let behind = match self.block_in_use(place) {
                Some(behind) => behind,
                None => match self.take_free_range(place, gfp) {
                    Ok(_) => return self.join_taken(start, order).map(Some),
                    Err(AllocError::InUse { head, order, .. }) => head + order.pages(),
                    Err(AllocError::NotInitialised(_)) => place.end,
                    Err(other) => return Err(other),
                },
            };
            at = behind.max(Pfn(start.0 + 1)).align_up(order);
        }
        Ok(None)
    }

    /// Allocates a large block and has owners move blocks out of a place for it; `None` where no zone has enough free memory, or no
    /// place.
    pub(crate) fn move_for_large(
        &self,
        node: NodeId,
        order: Order,
        gfp: Gfp,
        owners: &Owners<'_>,
    ) -> Option<Result<Pfn, AllocError>> {
        let migrate_type = gfp.migrate_type()?;
        let mut problem = None;
        for id in self.zones_for(node, gfp) {
            let view = self.zone_view(id);
            let regions = self.emptiest_regions(view).filter(|_| order == self.geometry.largest_order());
            for memory in regions.chain(self.memory_in(id)) {
                if !self.may_give_large(id, order, gfp) {
                    break;
                }
                match self.first_place(memory, (order.pages(), order), migrate_type, gfp, owners) {
                    Ok(place) => return Some(self.join_taken(place.start, order)),
                    Err(Some(AllocError::Blocked(_) | AllocError::NotOneZone(_)) | None) => {}
                    Err(Some(other)) => _ = problem.get_or_insert(Err(other)),
                }
            }
        }
        problem
    }

    /// Whether a zone would stay above its min watermark if a large block were taken. Possibly stale.
    fn may_give_large(&self, id: ZoneId, order: Order, gfp: Gfp) -> bool {
        let view = self.zone_view(id);
        let cma = gfp.migrate_type() == Some(MigrateType::Movable);
        let reserves = Reserves { min: gfp.contains(Gfp::HIGH), cma, ..Reserves::default() };
        // Whether there is such a block is not the question here.
        let held = HeldFree { largest: Some(order), pages: store::held_pages_racy(view) };
        view.zone.watermark_ok_with_racy(order, WatermarkLevel::Min, gfp.highest_zone(), reserves, held)
    }

    /// The frame behind a block of a place that is in use, as page structures say. Blocks on per-CPU lists and in transit are not.
    fn block_in_use(&self, place: PfnRange) -> Option<Pfn> {
        let mut at = place.start;
        while at < place.end {
            if !self.pageblocks().has_memory(at) {
                at = PfnRange::new(self.pageblocks().start_of(at), self.pageblocks().pages()).end;
                continue;
            }
            let (head, tag) = self.covering(at);
            let behind = (head + tag.order().pages()).max(Pfn(at.0 + 1));
            match tag.state() {
                FrameState::BuddyFree | FrameState::PerCpu | FrameState::InTransit | FrameState::Interior => {
                    at = behind;
                }
                _ => return Some(behind),
            }
        }
        None
    }

    /// Joins the blocks of a place that was just allocated.
    fn join_taken(&self, pfn: Pfn, order: Order) -> Result<Pfn, AllocError> {
        if self.join(pfn, order).is_ok() {
            return Ok(pfn);
        }
        // A bad free has taken a part.
        for Block { pfn, order } in PfnRange::new(pfn, order.pages()).blocks(self.geometry.max_order()) {
            self.release(pfn, order);
        }
        Err(AllocError::Taken)
    }

    /// Frees a large block that the caller holds exclusively: divides it, and frees the parts.
    #[cold]
    pub(crate) fn free_large(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.divide(pfn, order, FrameState::Allocated, self.pageblocks().get(pfn));
        let mut freed = Ok(());
        for Block { pfn, order } in PfnRange::new(pfn, order.pages()).blocks(self.geometry.max_order()) {
            // After an error, too: the other parts have their own lists.
            freed = freed.and(self.free_block_at(self.map.place(pfn), order));
        }
        freed
    }

    /// Tags a large block, which the caller holds exclusively, as maximum-order blocks.
    fn divide(&self, pfn: Pfn, order: Order, state: FrameState, migrate_type: MigrateType) {
        let (max, zone) = (self.geometry.max_order(), self.zone_of_block(pfn));
        // The head last: its tag covers all blocks until then.
        for part in (0..1 << (order.0 - max.0)).rev() {
            let part = Pfn(pfn.0 + (part << max.0));
            self.map.page(part, &self.platform).set_tag(Tag::new(state, max, migrate_type, zone));
        }
    }

    /// Makes a guard's blocks of an allocated large block; returns the frame behind it. `None` if no such block is allocated there.
    #[cold]
    #[inline(never)]
    pub(crate) fn own_large(&self, pfn: Pfn, order: Order) -> Option<Pfn> {
        let entry = self.allocation_map().clear_large(&self.platform, pfn, order)?;
        self.divide(pfn, order, FrameState::Owned, entry.migrate_type());
        Some(pfn + order.pages())
    }

    /// Divides an allocated large block that has a bad page. Parts with bad pages go out of use, parts without are free.
    #[cold]
    pub(crate) fn retire_parts(&self, pfn: Pfn, order: Order) {
        let Some(entry) = self.allocation_map().clear_large(&self.platform, pfn, order) else { return };
        self.divide(pfn, order, FrameState::Allocated, entry.migrate_type());
        let range = PfnRange::new(pfn, order.pages());
        self.mark_pieces(range, entry.migrate_type());
        for Block { pfn, order } in range.blocks(self.geometry.max_order()) {
            if self.is_good_or_retired(pfn, order) {
                self.release(pfn, order);
            }
        }
    }

    /// The large block that begins at a frame. Any frame number is allowed.
    pub(crate) fn large_at(&self, pfn: Pfn) -> Option<(Pfn, Tag)> {
        self.any_zone_view().large_around(pfn).filter(|(head, tag)| *head == pfn && !tag.is(FrameState::Pooled))
    }

    /// The reason why a block cannot become a counted one: as [`refuse`](Self::refuse), unless it is a large one that is allocated.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse_large(&self, pfn: Pfn, order: Order) -> FreeError {
        let max = self.geometry.max_order();
        if order > max && self.allocation_map().entry(pfn).is_some_and(|entry| entry.order() == order) {
            return FreeError { pfn, order, problem: FreeProblem::OrderTooLarge { max } };
        }
        self.refuse(pfn, order)
    }

    /// Ends the allocation of a block of any order: the caller owns it from now on. `None` if no such block is allocated there.
    pub(crate) fn clear_block(&self, pfn: Pfn, order: Order) -> Option<MapEntry> {
        let map = self.allocation_map();
        match order > self.geometry.max_order() {
            true => map.clear_large(&self.platform, pfn, order),
            false => map.clear_allocated(&self.platform, pfn, order),
        }
    }

    /// Marks a tagged block of any order allocated. The caller holds it exclusively.
    pub(crate) fn mark_block(&self, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        if order > self.geometry.max_order() {
            let _ = self.allocation_map().mark_large(&self.platform, pfn, order, migrate_type);
        } else {
            let _ = self.mark_allocated(pfn, order, migrate_type);
        }
    }
}
