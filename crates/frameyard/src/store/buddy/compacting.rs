//! What compaction asks of a zone: whether it is worthwhile, and free blocks to move to.

use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount, Pfn, ZoneKind};
use crate::zone::compact_state::COSTLY_ORDER;
use crate::zone::state::{HeldFree, Reserves, Zone};
use crate::zone::view::LockedZone;
use crate::zone::watermark::WatermarkLevel;

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
    /// The sizes of free blocks with respect to `order` (`fill_contig_page_info`), those of the free lists and `elsewhere`, by order. Deferred memory is
    /// left out: it is whole.
    pub(crate) fn free_shape_racy(
        &self,
        order: Order,
        max_order: Order,
        elsewhere: impl Fn(Order) -> u64,
    ) -> FreeShape {
        let mut shape = FreeShape::default();
        for at in 0..=max_order.index() {
            let blocks = self.ordinary_blocks_racy(at).saturating_add(elsewhere(Order(at as u8)));
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
        let ordinary = MigrateType::ALL.into_iter().filter(|migrate_type| *migrate_type != MigrateType::Isolate);
        ordinary.fold(0, |sum, migrate_type| self.free_blocks_racy(order, migrate_type).saturating_add(sum))
    }

    /// Whether there is enough free memory to move blocks to while a block of `order` is made (`compaction_suitable`): twice its
    /// size above the watermark. `held` frames join the free lists meanwhile.
    pub(crate) fn has_room_to_compact_racy(&self, order: Order, highest: ZoneKind, held: PageCount) -> bool {
        let mark = if order > COSTLY_ORDER { WatermarkLevel::Low } else { WatermarkLevel::Min };
        let needed = self.watermark(mark) + PageCount(2 * order.pages().0) + self.protection(highest);
        self.free_pages_racy() + held > needed
    }

    /// Whether a request of that order and type would find a block (`zone_watermark_ok` with the minimum).
    pub(crate) fn would_serve_racy(&self, order: Order, highest: ZoneKind, migrate_type: MigrateType) -> bool {
        let reserves = Reserves { cma: migrate_type == MigrateType::Movable, ..Reserves::default() };
        self.watermark_ok_with_racy(order, WatermarkLevel::Min, highest, reserves, HeldFree::default())
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
        if self.free_pages() <= kept {
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
