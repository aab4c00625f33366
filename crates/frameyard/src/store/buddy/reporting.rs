//! Free-page reporting: blocks whose memory goes back to the host. They leave the free lists a few at a time, so that
//! allocation continues.
//!
//! Meanwhile they are in transit: no request can allocate them, and nothing merges with them. They come back as
//! reported blocks. A reported block behaves like any free block. Its parts stay reported when it is split; a block
//! merged from two is reported if both are. Allocating a block ends this state, because it gives the frames a new tag.

use crate::page::{FrameState, Residence};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount, Pfn};
use crate::zone::fixed_vec::FixedVec;
use crate::zone::view::LockedZone;
use crate::zone::watermark::WatermarkLevel;

/// The most blocks that are out at once (the kernel's `PAGE_REPORTING_CAPACITY`).
const CAPACITY: usize = 32;
/// The most blocks examined in one hold of the zone lock.
const LOOKS: u64 = 256;

/// Blocks of one order that are out.
pub(crate) struct ReportBatch {
    blocks: FixedVec<Pfn, CAPACITY>,
}

impl ReportBatch {
    pub(crate) fn blocks(&self) -> &[Pfn] {
        &self.blocks
    }
}

/// The blocks of one visit to a list.
pub(crate) struct Taken {
    pub(crate) batch: ReportBatch,
    /// Blocks examined.
    pub(crate) looked: u64,
    /// Whether the zone has so little free memory that no more may be taken.
    pub(crate) at_watermark: bool,
}

impl<P: Platform> LockedZone<'_, P> {
    /// Takes unreported blocks off a list, from its head on, while the zone stays above its low watermark. Reported ones on the way
    /// go to its tail: they are allocated last, and out of the way of the next visit.
    pub(crate) fn take_unreported(
        &mut self,
        order: Order,
        migrate_type: MigrateType,
        looks: u64,
        most: usize,
    ) -> Taken {
        let low = self.zone.watermark(WatermarkLevel::Low);
        let mut taken = Taken { batch: ReportBatch { blocks: FixedVec::new() }, looked: 0, at_watermark: false };
        while taken.looked < looks.min(LOOKS) && taken.batch.blocks.len() < most.min(CAPACITY) {
            let Some((pfn, tag)) = self.first_block(order, migrate_type) else { break };
            taken.looked += 1;
            if tag.residence() == Residence::Reported {
                self.relink_block(pfn, tag, migrate_type);
                continue;
            }
            if self.free_pages() <= low + order.pages() {
                taken.at_watermark = true;
                break;
            }
            self.remove_block(pfn, tag);
            self.tag_block(pfn, FrameState::InTransit, order, migrate_type);
            taken.batch.blocks.push(pfn);
        }
        taken
    }

    /// Puts blocks back on the lists, the first `reported` of them as reported. Returns the frames of those.
    pub(crate) fn put_back_reported(&mut self, batch: &ReportBatch, order: Order, reported: usize) -> PageCount {
        for (at, pfn) in batch.blocks().iter().enumerate() {
            let residence = if at < reported { Residence::Reported } else { Residence::Resident };
            self.free_to_pageblocks(*pfn, order, residence);
        }
        PageCount((reported as u64) << order.0)
    }
}
