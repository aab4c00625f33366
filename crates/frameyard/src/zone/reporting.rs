//! Free blocks on their way to the host and back: taken off the lists a few at a time, so that allocation goes on.
//!
//! While they are out they are in transit: nobody allocates them, and nothing merges with them. They come back as reported
//! blocks. A reported block behaves as any free block; its parts stay reported when it is cut, and a block merged from two
//! is reported if both are. An allocation ends it, for it gives the frames a new tag.

use super::{LockedZone, WatermarkLevel};
use crate::page::{FrameState, Residence};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount, Pfn};

/// The most blocks that are out at once (the kernel's `PAGE_REPORTING_CAPACITY`).
const CAPACITY: usize = 32;
/// The most blocks looked at in one hold of the zone lock.
const LOOKS: u64 = 256;

/// Blocks of one order that are out.
pub(crate) struct ReportBatch {
    blocks: [Pfn; CAPACITY],
    len: usize,
}

impl ReportBatch {
    pub(crate) fn blocks(&self) -> &[Pfn] {
        &self.blocks[..self.len]
    }
}

/// What a look at a list gave.
pub(crate) struct Taken {
    pub(crate) batch: ReportBatch,
    /// How many blocks were looked at.
    pub(crate) looked: u64,
    /// Whether the zone has so little free memory that no more may be taken.
    pub(crate) at_watermark: bool,
}

impl<P: Platform> LockedZone<'_, P> {
    /// Takes unreported blocks off a list, from its head on, as long as the zone stays above its low watermark. Reported
    /// ones on the way go to its tail: they are allocated last, and are not in the way of the next look.
    pub(crate) fn take_unreported(
        &mut self,
        order: Order,
        migrate_type: MigrateType,
        looks: u64,
        most: usize,
    ) -> Taken {
        let low = self.zone.watermark(WatermarkLevel::Low);
        let mut taken =
            Taken { batch: ReportBatch { blocks: [Pfn(0); CAPACITY], len: 0 }, looked: 0, at_watermark: false };
        while taken.looked < looks.min(LOOKS) && taken.batch.len < most.min(CAPACITY) {
            let Some(pfn) = self.first_block(order, migrate_type) else { break };
            let tag = self.page(pfn).tag();
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
            taken.batch.blocks[taken.batch.len] = pfn;
            taken.batch.len += 1;
        }
        taken
    }

    /// Puts blocks that were out back on the lists; the first `reported` of them are reported. How many frames those are.
    pub(crate) fn put_back_reported(&mut self, batch: &ReportBatch, order: Order, reported: usize) -> PageCount {
        for (at, pfn) in batch.blocks().iter().enumerate() {
            let residence = if at < reported { Residence::Reported } else { Residence::Resident };
            self.free_to_pageblocks(*pfn, order, residence);
        }
        PageCount((reported as u64) << order.0)
    }
}
