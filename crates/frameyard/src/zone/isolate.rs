//! Isolated pageblocks: nothing is allocated from them, and what is freed there stays there.
//!
//! # Protocol
//!
//! Isolating a pageblock and undoing it are done under the zone lock, type and free lists together. So under the lock
//! every free block of an isolated pageblock is on an Isolate list, which no request looks at, and no block on any other
//! list lies in one. What can still come out of an isolated pageblock is what stands on per-CPU lists. Frames get there
//! without the zone lock, by the type that the freeing thread has read before: a free that began before the isolation may
//! put its frame on a list after it, once. So whoever has isolated a range drains the lists as often as he finds frames of
//! the range that are neither free nor anybody's; a frame freed later sees the type Isolate and goes to the zone at once.
//!
//! That all of a range is free is decided under the lock alone, by its taker, who takes it in the same hold.
//!
//! Whoever has isolated a pageblock is the only one to undo it: a second one is refused. A pageblock remembers its type
//! in its own byte, so isolators keep nothing.

use super::{LockedZone, add_exclusive, sub_exclusive};
use crate::page::{FrameState, Residence, Tag};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};

impl<P: Platform> LockedZone<'_, P> {
    /// Isolates the pageblock that begins at `start` (`set_migratetype_isolate`); `false`, and nothing changed, where it
    /// is isolated already. All its memory is the zone's, and initialised.
    #[must_use]
    pub(crate) fn isolate_pageblock(&mut self, start: Pfn) -> bool {
        let Some(was) = self.blocks.isolate(start) else { return false };
        if was == MigrateType::HighAtomic {
            sub_exclusive(&self.zone.reserved_highatomic, self.blocks.pages().0);
        }
        self.move_pageblock(start, MigrateType::Isolate);
        true
    }

    /// Gives an isolated pageblock its type back (`unset_migratetype_isolate`).
    pub(crate) fn unisolate_pageblock(&mut self, start: Pfn) {
        let Some(was) = self.blocks.restore(start) else { return };
        if was == MigrateType::HighAtomic {
            add_exclusive(&self.zone.reserved_highatomic, self.blocks.pages().0);
        }
        self.move_pageblock(start, was);
    }

    /// Moves the free blocks of a pageblock to the lists of the type that it has now. A block that reaches beyond is cut.
    fn move_pageblock(&mut self, start: Pfn, to: MigrateType) {
        let pageblock = PfnRange::new(start, self.blocks.pages());
        let (head, tag) = self.covering_block(start);
        let block = PfnRange::new(head, tag.order().pages());
        if block.end < pageblock.end || tag.is(FrameState::Interior) {
            self.relink_range(pageblock, to);
        } else if tag.is(FrameState::BuddyFree) && tag.zone() == self.id {
            self.remove_block(head, tag);
            self.page(head).set_tag(Tag::INTERIOR);
            self.put_back_pieces(PfnRange { start: head, end: start }, tag.migrate_type(), tag.residence());
            self.put_back_pieces(
                PfnRange { start: pageblock.end, end: block.end },
                tag.migrate_type(),
                tag.residence(),
            );
            // Merges with neighbours of the same kind.
            self.free_block_as(start, self.geometry.pageblock_order(), to, tag.residence());
        }
    }

    /// Frees a block to the list of its pageblock's type; one larger than a pageblock may lie in pageblocks of several types.
    #[inline(always)]
    pub(crate) fn free_by_type(&mut self, pfn: Pfn, order: Order) {
        if order > self.geometry.pageblock_order() {
            self.free_to_pageblocks(pfn, order, Residence::Resident);
        } else {
            self.free_block(pfn, order, self.blocks.get(pfn));
        }
    }

    /// Frees a block to the lists of the pageblocks that it lies in, in parts where they are of different types
    /// (`split_large_buddy`). The caller owns it, as for [`free_block`](Self::free_block).
    pub(crate) fn free_to_pageblocks(&mut self, pfn: Pfn, order: Order, residence: Residence) {
        let migrate_type = self.blocks.get(pfn);
        if self.blocks.types_of(pfn, order).all(|other| other == migrate_type) {
            self.free_block_as(pfn, order, migrate_type, residence);
            return;
        }
        let pageblock_order = self.geometry.pageblock_order();
        self.page(pfn).set_tag(Tag::INTERIOR);
        for at in (0..order.pages().0).step_by(1 << pageblock_order.0) {
            let part = pfn + PageCount(at);
            self.free_block_as(part, pageblock_order, self.blocks.get(part), residence);
        }
    }
}
