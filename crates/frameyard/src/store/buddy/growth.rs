//! Growth: adding deferred memory to the free lists once its page structures are initialised, and frames that leave the
//! zone and come back.

use crate::page::Residence;
use crate::platform::Platform;
use crate::units::{Block, MigrateType, Order, PageCount, PfnRange};
use crate::zone::deferred::for_each_size;
use crate::zone::exclusive::{add_exclusive, sub_exclusive};
use crate::zone::view::LockedZone;

impl<P: Platform> LockedZone<'_, P> {
    /// Frees a range of deferred frames whose page structures are initialised now, and of which those of `put`, ascending, are free already. The
    /// range ends at the end of a maximum-order block or of free memory, so that it makes the blocks that were counted.
    pub(crate) fn add_initialised(&mut self, range: PfnRange, put: impl Iterator<Item = PfnRange>) {
        let (max_order, mut start) = (self.geometry.max_order(), range.start);
        for put in put.chain([PfnRange { start: range.end, ..range }]) {
            for Block { pfn, order } in (PfnRange { start, end: put.start }).blocks(max_order) {
                self.free_to_pageblocks(pfn, order, Residence::Resident);
            }
            start = put.end;
        }
        let deferred = &self.zone.deferred;
        for_each_size(range, max_order, |order, count| deferred.listed(order, count));
        if deferred.is_counted() {
            // These frames already counted as free.
            self.free_change = self.free_change.wrapping_sub(range.count().0);
        } else {
            add_exclusive(&self.zone.facts.managed, range.count().0);
        }
        self.initialised += range.count().0;
    }

    /// Counts frames that leave the zone: they are on no list.
    pub(crate) fn remove_present(&mut self, pages: PageCount) {
        let facts = &self.zone.facts;
        [&facts.present, &facts.managed].into_iter().for_each(|count| sub_exclusive(count, pages.0));
    }

    /// Counts frames that come back to the zone. The caller frees them.
    pub(crate) fn add_present(&mut self, pages: PageCount) {
        let facts = &self.zone.facts;
        [&facts.present, &facts.managed].into_iter().for_each(|count| add_exclusive(count, pages.0));
    }

    /// Whether a request should have more memory initialised before it takes another type's blocks: while that yields a
    /// large enough block that is larger than every free Movable block. With all memory initialised the request would fall
    /// back to such a block.
    pub(crate) fn should_grow_first(&self, order: Order) -> bool {
        let Some(highest) = self.zone.deferred.highest_order_racy() else { return false };
        highest >= order && self.orders_from(highest, MigrateType::Movable) == 0
    }
}
