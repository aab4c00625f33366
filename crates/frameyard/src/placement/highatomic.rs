//! Pageblocks reserved for high-order allocations that must not wait.

use crate::platform::Platform;
use crate::units::{MigrateType, Order, Pfn};
use crate::zone::exclusive::{add_exclusive, sub_exclusive};
use crate::zone::view::{ListRules, LockedZone};

/// At most `1 / SHARE` of a zone is reserved.
const SHARE: u64 = if cfg!(loom) { 4 } else { 100 };

impl<P: Platform> LockedZone<'_, P> {
    /// Reserves the pageblock of a block just allocated for later requests of the kind (`reserve_highatomic_pageblock`).
    ///
    /// Reserves at most one percent of the zone, and nothing if that is less than a pageblock.
    pub(crate) fn reserve_highatomic(&mut self, pfn: Pfn, order: Order) {
        let block = self.blocks.pages().0;
        let most = self.zone.managed().0 / SHARE;
        if most < block || self.zone.reserved_highatomic_racy().0 >= most.next_multiple_of(block) {
            return;
        }
        if !self.blocks.types_of(pfn, order).all(|migrate_type| migrate_type.index() < MigrateType::PER_CPU) {
            return;
        }
        if order >= self.geometry.pageblock_order() {
            self.set_types(pfn, order, MigrateType::HighAtomic);
            add_exclusive(&self.zone.reserved_highatomic, order.pages().0);
        } else if self.use_of_pageblock(pfn).is_some() {
            self.convert_pageblock(pfn, MigrateType::HighAtomic);
            add_exclusive(&self.zone.reserved_highatomic, block);
        }
    }

    /// Returns one reserved pageblock to ordinary use (`unreserve_highatomic_pageblock`); whether there was one.
    pub(crate) fn unreserve_highatomic(&mut self, to: MigrateType) -> bool {
        let Some(order) = self.smallest_order(Order::ZERO, MigrateType::HighAtomic) else { return false };
        let Some((pfn, tag)) = self.first_block(order, MigrateType::HighAtomic) else { return false };
        if order >= self.geometry.pageblock_order() {
            self.set_types(pfn, order, to);
            self.remove_block(pfn, tag);
            // Merges with neighbours that its reservation kept apart.
            self.free_block_as(pfn, order, to, tag.residence());
            sub_exclusive(&self.zone.reserved_highatomic, order.pages().0);
        } else {
            // What is in use there may not move.
            let to = if self.zone.keeps_regions() { MigrateType::Unmovable } else { to };
            self.convert_pageblock(pfn, to);
            sub_exclusive(&self.zone.reserved_highatomic, self.blocks.pages().0);
        }
        true
    }
}
