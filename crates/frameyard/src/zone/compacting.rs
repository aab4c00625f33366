//! What compaction asks of a zone: whether it is worthwhile, and free blocks to move to.

use super::compact_state::COSTLY_ORDER;
use super::fallback::{fallbacks, may_convert};
use super::state::{HeldFree, Reserves, Zone};
use super::view::LockedZone;
use super::watermark::WatermarkLevel;
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount, Pfn, ZoneKind};

/// The sizes of a zone's free blocks (the kernel's `struct contig_page_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FreeShape {
    /// Free frames.
    pub(crate) pages: u64,
    /// Free blocks.
    pub(crate) blocks: u64,
    /// Blocks of the requested order that they would make.
    pub(crate) suitable: u64,
}

impl Zone {
    /// The sizes of free blocks with respect to `order` (`fill_contig_page_info`). Deferred memory is left out: it is whole.
    pub(crate) fn free_shape_racy(&self, order: Order, max_order: Order) -> FreeShape {
        let mut shape = FreeShape::default();
        for at in 0..=max_order.index() {
            let blocks = self.ordinary_blocks_racy(at);
            shape.blocks = shape.blocks.saturating_add(blocks);
            shape.pages = shape.pages.saturating_add(blocks << at);
            if at >= order.index() {
                shape.suitable = shape.suitable.saturating_add(blocks << (at - order.index()));
            }
        }
        shape
    }

    /// Frames on the free lists in blocks of at least that order, without those of isolated pageblocks. Possibly stale.
    pub(crate) fn pages_in_blocks_from_racy(&self, order: Order, max_order: Order) -> PageCount {
        (order.index()..=max_order.index()).map(|at| PageCount(self.ordinary_blocks_racy(at) << at)).sum()
    }

    /// Free blocks of an order, without those of isolated pageblocks.
    fn ordinary_blocks_racy(&self, order: usize) -> u64 {
        let ordinary = MigrateType::LISTED.into_iter().filter(|migrate_type| *migrate_type != MigrateType::Isolate);
        ordinary.fold(0, |sum, migrate_type| self.free_blocks_racy(order, migrate_type).saturating_add(sum))
    }

    /// Whether there is enough free memory to move blocks to while a block of `order` is made (`compaction_suitable`): twice its
    /// size above the watermark. `chained` frames join the free lists meanwhile.
    pub(crate) fn has_room_to_compact_racy(&self, order: Order, highest: ZoneKind, chained: PageCount) -> bool {
        let mark = if order > COSTLY_ORDER { WatermarkLevel::Low } else { WatermarkLevel::Min };
        let needed = self.watermark(mark) + PageCount(2 * order.pages().0) + self.protection(highest);
        self.free_pages_racy() + chained > needed
    }

    /// Whether a request of that order and type would find a block (`zone_watermark_ok` with the minimum).
    pub(crate) fn would_serve_racy(&self, order: Order, highest: ZoneKind, migrate_type: MigrateType) -> bool {
        let reserves = Reserves { cma: migrate_type == MigrateType::Movable, ..Reserves::default() };
        self.watermark_ok_with_racy(order, WatermarkLevel::Min, highest, reserves, HeldFree::default())
    }

    /// Whether there is a free block for a request of that order and type without mixing types in a pageblock
    /// (the second half of `__compact_finished`).
    pub(crate) fn has_suitable_block_racy(
        &self,
        order: Order,
        migrate_type: MigrateType,
        pageblock_order: Order,
    ) -> bool {
        let orders = |migrate_type: MigrateType| self.orders_from_racy(order, migrate_type);
        if orders(migrate_type) != 0 || (migrate_type == MigrateType::Movable && orders(MigrateType::Cma) != 0) {
            return true;
        }
        let convertible = |other: MigrateType| {
            orders(other)
                .checked_ilog2()
                .is_some_and(|highest| may_convert(Order(order.0 + highest as u8), migrate_type, pageblock_order))
        };
        fallbacks(migrate_type).into_iter().any(convertible)
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Takes a free block of an order below `limit` and of an allowed type off the lists, to move another block to it; its tag.
    /// Keeps the minimum watermark (`__isolate_free_page`).
    pub(crate) fn isolate_free_block(
        &mut self,
        pfn: Pfn,
        limit: Order,
        allowed: fn(MigrateType) -> bool,
    ) -> Option<Tag> {
        let tag = self.settled_tag(pfn);
        if !tag.is(FrameState::BuddyFree)
            || tag.zone() != self.id
            || tag.order() >= limit
            || !allowed(tag.migrate_type())
        {
            return None;
        }
        let PageCount(pages) = tag.order().pages();
        let kept = self.zone.watermark(WatermarkLevel::Min) + PageCount(pages);
        if self.free_pages() <= kept && self.free_pages() + self.chained_racy() <= kept {
            return None;
        }
        self.remove_block(pfn, tag);
        let isolated = tag.without_tentative().without_merge_skipped().with_state(FrameState::Isolated);
        self.page(pfn).set_tag(isolated);
        self.count_moved(PageCount(pages));
        Some(isolated)
    }

    /// Frees a block whose only user gives it up.
    pub(crate) fn free_compacted(&mut self, pfn: Pfn, order: Order) {
        self.free_by_type(pfn, order);
        self.count_moved(order.pages());
    }
}
