//! Blocks of orders without lists that move past the zone lock, one by one, under the lock of a CPU's lists.

use super::{Flow, LockedPcp, PcpCounts};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{MigrateType, Order};
use crate::zone::effort::Effort;
use crate::zone::exclusive::add_exclusive;
use crate::zone::request::BlockRequest;
use crate::zone::transfer::{self, Delivered, RefillRequest};
use crate::zone::view::ZoneView;

/// The direction of a block, as a place in the counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Allocated = 0,
    Freed = 1,
}

impl PcpCounts {
    fn count_stacked(&self, way: Way, order: Order) {
        let [blocks, pages] = &self.stacked[way as usize];
        add_exclusive(blocks, 1);
        add_exclusive(pages, order.pages().0);
    }

    /// The blocks allocated and those freed, possibly stale.
    pub(super) fn stacked_racy(&self) -> [Flow; 2] {
        self.stacked.each_ref().map(|counts| {
            let [blocks, pages] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            Flow { blocks, pages }
        })
    }
}

impl<P: Platform> LockedPcp<'_, P> {
    /// Takes a block of an order without a list from the mechanism in force, which may fetch it from the zone. `None` if there is none.
    #[inline(never)]
    pub(crate) fn take_stacked(&mut self, view: ZoneView<'_, P>, blocks: BlockRequest, effort: &Effort) -> Option<u32> {
        let batch_type = Some(blocks.migrate_type);
        let refill = RefillRequest { blocks, cpu: self.cpu(), wanted: 1, room: 1, given_out: 0, batch_type, effort };
        let mut taken = None;
        transfer::fetch(view, refill, |delivered| match delivered {
            Delivered::Blocks(batch) => taken = batch.first().copied(),
            Delivered::Packed(batches) => {
                self.expect_sound(batches.unpack(view, blocks.order, |batch| taken = batch.first().copied()));
            }
        });
        taken.inspect(|_| self.pcp.counts.count_stacked(Way::Allocated, blocks.order))
    }

    /// Gives a freed block of an order without a list to the mechanism in force; whether that took it.
    #[inline(never)]
    pub(crate) fn give_stacked(
        &mut self,
        view: ZoneView<'_, P>,
        index: u32,
        (order, list_type): (Order, MigrateType),
    ) -> bool {
        let is_taken = transfer::give_back_stacked(view, self.cpu(), index, (order, list_type));
        if is_taken {
            self.pcp.counts.count_stacked(Way::Freed, order);
        }
        is_taken
    }
}
