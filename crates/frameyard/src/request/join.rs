//! Joining allocated blocks into a larger one.

use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, Pfn, PfnRange};
use crate::yard::{FreeError, FreeProblem, Yard};

impl<P: Platform> Yard<P> {
    /// Joins the allocated blocks that make up the `2^order` frames from `pfn` on into one block. Their bytes do not
    /// change. The block is [freed](Self::free) as one, and [`split_at`](Self::split_at) or [`split`](Self::split)
    /// divides it again.
    ///
    /// The caller owns all the blocks. They may have any orders and come from several allocations. The order may be
    /// above the yard's maximum, up to that of [1 GiB](crate::Geometry::largest_order). The joined block has the
    /// migration type of its parts, and is unmovable if they differ. If the frames are one block already, nothing
    /// changes.
    ///
    /// The kernel has no such call: there a block that was split stays split until it is freed.
    ///
    /// # Cost
    ///
    /// For each part, an atomic exchange on its byte in the allocation map and an access to the page structure of its
    /// head. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`FreeError`]; nothing has changed then:
    ///
    /// - [`FreeProblem::OrderTooLarge`] or [`FreeProblem::Misaligned`] for an order or a frame at which no block can begin.
    /// - [`FreeProblem::NotOneZone`] if the frames are in several zones or contain a hole.
    /// - The error that [`free_range`](Self::free_range) would return for the frames: a part is free, reserved, owned
    ///   by a guard, counted, offline or pooled.
    /// - [`FreeProblem::PartOfBlock`] or [`FreeProblem::InsideBlock`] if a part belongs to a block that reaches beyond the
    ///   frames.
    pub fn join(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let max = self.geometry.largest_order();
        let refused = |problem| Err(FreeError { pfn, order, problem });
        if order > max {
            return refused(FreeProblem::OrderTooLarge { max });
        }
        if !pfn.is_aligned(order) {
            return refused(FreeProblem::Misaligned);
        }
        let range = PfnRange::new(pfn, order.pages());
        let Some((memory, zone)) = self.tables.range_of(pfn) else { return Err(self.refuse(pfn, order)) };
        if range.end > memory.end {
            return refused(FreeProblem::NotOneZone);
        }
        let joined = self.check_parts(range)?;
        if self.allocation_map().entry(pfn).is_some_and(|entry| entry.order() == order) {
            return Ok(());
        }
        self.note_tagged(pfn, order);
        self.claim_parts(range, joined)?;
        // The head first: its tag covers all parts from now on.
        let (first, mut at) = (self.length_of_part(pfn), pfn);
        self.map.page(pfn, &self.platform).set_tag(Tag::new(FrameState::Allocated, order, joined, zone));
        at = at + first.pages();
        while at < range.end {
            let length = self.length_of_part(at);
            self.map.page(at, &self.platform).become_interior(self.map.template(at, Some(zone)));
            at = at + length.pages();
        }
        self.mark_block(pfn, order, joined);
        Ok(())
    }

    /// The migration type of a block that joins all of a range, if it consists of allocated blocks.
    fn check_parts(&self, range: PfnRange) -> Result<MigrateType, FreeError> {
        let (mut at, mut joined) = (range.start, None);
        while at < range.end {
            let order = self.block_to_free(at, range.end)?;
            let of_part = self.allocation_map().entry(at).map_or(MigrateType::Unmovable, |entry| entry.migrate_type());
            joined = Some(if joined.is_none_or(|joined| joined == of_part) { of_part } else { MigrateType::Unmovable });
            at = at + order.pages();
        }
        Ok(joined.unwrap_or(MigrateType::Unmovable))
    }

    /// Ends the allocation of all parts of a range. Undone if another thread frees one meanwhile.
    fn claim_parts(&self, range: PfnRange, joined: MigrateType) -> Result<(), FreeError> {
        let mut at = range.start;
        while at < range.end {
            let claimed = self
                .block_to_free(at, range.end)
                .and_then(|order| self.clear_block(at, order).map(|_| order).ok_or_else(|| self.refuse(at, order)));
            match claimed {
                Ok(order) => {
                    let page = self.map.page(at, &self.platform);
                    if order > Order::ZERO && page.tag().is_untagged() {
                        // The tag has the length of the part from now on.
                        page.set_tag(Tag::new(FrameState::Allocated, order, joined, self.zone_of_block(at)));
                    }
                    at = at + order.pages();
                }
                Err(refused) => {
                    self.give_back_parts(PfnRange { end: at, ..range }, joined);
                    return Err(refused);
                }
            }
        }
        Ok(())
    }

    /// Marks claimed parts allocated again.
    #[cold]
    fn give_back_parts(&self, claimed: PfnRange, joined: MigrateType) {
        let mut at = claimed.start;
        while at < claimed.end {
            let order = self.length_of_part(at);
            self.mark_block(at, order, joined);
            at = at + order.pages();
        }
    }

    /// The order of a part that was claimed: that in its tag; a single frame may have none.
    fn length_of_part(&self, pfn: Pfn) -> Order {
        match self.map.page(pfn, &self.platform).tag() {
            tag if tag.is_untagged() => Order::ZERO,
            tag => tag.order(),
        }
    }
}
