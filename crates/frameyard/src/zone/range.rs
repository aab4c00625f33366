//! Taking a particular range of frames, if all of it is free.

use super::view::LockedZone;
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, Pfn, PfnRange};

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

impl<P: Platform> LockedZone<'_, P> {
    /// Takes all frames of a range off the free lists, as the largest aligned blocks. The caller still has to mark them as allocated.
    ///
    /// # Errors
    ///
    /// The first block that is not free; nothing has changed then. The range must lie in present sections.
    pub(crate) fn take_range(
        &mut self,
        range: PfnRange,
        lists: RangeLists,
        migrate_type: MigrateType,
    ) -> Result<(), RangeBlocked> {
        let mut at = range.start;
        while at < range.end {
            let (head, tag) = self.covering_block(at);
            if !tag.is(FrameState::BuddyFree) || tag.zone() != self.id || !lists.have(tag.migrate_type(), migrate_type)
            {
                return Err(RangeBlocked { head, state: tag.state(), order: tag.order() });
            }
            at = head + tag.order().pages();
        }
        let mut at = range.start;
        while at < range.end {
            let (head, tag) = self.covering_block(at);
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
        Ok(())
    }

    /// The block that covers a frame; the frame itself with an interior tag if there is none. A block that looks free is free.
    pub(crate) fn covering_block(&self, pfn: Pfn) -> (Pfn, Tag) {
        covering_block(self.geometry.max_order(), pfn, |pfn| self.settled_tag(pfn))
    }

    fn tag_pieces(&mut self, range: PfnRange, state: FrameState, migrate_type: MigrateType) {
        for (pfn, order) in pieces(range, self.geometry.max_order()) {
            self.tag_block(pfn, state, order, migrate_type);
        }
    }
}

/// The block that covers a frame, found by its possible heads; the frame itself if none covers it.
pub(crate) fn covering_block(max_order: Order, pfn: Pfn, tag_of: impl Fn(Pfn) -> Tag) -> (Pfn, Tag) {
    for order in 0..=max_order.0 {
        let head = pfn.align_down(Order(order));
        let tag = tag_of(head);
        if tag.state() != FrameState::Interior && tag.order().0 >= order {
            return (head, tag);
        }
    }
    (pfn, Tag::INTERIOR)
}

/// A range cut into the largest naturally aligned blocks of at most `max_order`.
pub(crate) fn pieces(range: PfnRange, max_order: Order) -> impl Iterator<Item = (Pfn, Order)> {
    let mut rest = range;
    core::iter::from_fn(move || {
        let order = rest.first_block(max_order)?;
        let pfn = rest.start;
        rest.start = pfn + order.pages();
        Some((pfn, order))
    })
}
