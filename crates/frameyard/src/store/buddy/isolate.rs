//! Isolated pageblocks: nothing is allocated from them, and frames freed there stay there.
//!
//! # Protocol
//!
//! Isolating and restoring a pageblock changes its type and its free lists in one hold of the zone lock. So under the
//! lock, every free block of an isolated pageblock is on an Isolate list, which no request searches, and no block on
//! any other list is in an isolated pageblock. Frames can still be allocated from per-CPU lists. They get there without
//! the zone lock, by the type that the free has read: a free that began before the isolation may put its frame on a
//! list after it, once. So an isolator drains the lists as long as it finds frames of the range that are neither free
//! nor allocated. A later free sees the type Isolate and goes directly to the zone.
//!
//! Only the taker of a range decides that all of it is free, under the lock, and takes it in the same hold.
//!
//! Only the isolator of a pageblock restores it, because a second isolation is refused. A pageblock keeps its old type
//! in its own word, so isolators need not store it.

use crate::memmap::{Located, MapBlock, MapPlace};
use crate::page::{FrameState, Residence, Tag};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::exclusive::{add_exclusive, sub_exclusive};
use crate::zone::view::{ListRules, LockedZone};

impl<P: Platform> LockedZone<'_, P> {
    /// Whether the pageblock that begins at a frame is free as a whole.
    pub(crate) fn is_whole(&self, start: Pfn) -> bool {
        let (_, tag) = self.settled_block(start);
        tag.is(FrameState::BuddyFree) && tag.order() >= self.geometry.pageblock_order()
    }

    /// Isolates the pageblock that begins at `start` (`set_migratetype_isolate`); `false`, with nothing changed, if it is isolated
    /// already. All its memory is initialised and the zone's.
    #[must_use]
    pub(crate) fn isolate_pageblock(&mut self, start: Pfn) -> bool {
        let Some(was) = self.blocks.isolate(start) else { return false };
        if was == MigrateType::HighAtomic {
            sub_exclusive(&self.zone.reserved_highatomic, self.blocks.pages().0);
        }
        self.move_pageblock(start, MigrateType::Isolate);
        true
    }

    /// Restores the type of an isolated pageblock (`unset_migratetype_isolate`).
    pub(crate) fn unisolate_pageblock(&mut self, start: Pfn) {
        let Some(mut was) = self.blocks.restore(start) else { return };
        if self.changes_when_whole(was) && self.is_whole(start) {
            let block = MapBlock { head: start.place(&self.map), order: self.geometry.pageblock_order() };
            was = self.type_when_whole(block, was);
        }
        if was == MigrateType::HighAtomic {
            add_exclusive(&self.zone.reserved_highatomic, self.blocks.pages().0);
        }
        self.move_pageblock(start, was);
    }

    /// Takes the free block below pageblock order that begins at a place off an Isolate list, if there is one. Returns its order.
    pub(crate) fn take_isolated(&mut self, block: MapPlace) -> Option<Order> {
        let pfn = self.map.pfn(block);
        let tag = self.settled_tag(pfn);
        let is_isolated = self.is_listed(pfn, tag) && tag.migrate_type() == MigrateType::Isolate;
        if !is_isolated || tag.order() >= self.geometry.pageblock_order() {
            return None;
        }
        self.remove_block(block, tag);
        self.page(block).set_tag(Tag::INTERIOR);
        Some(tag.order())
    }

    /// Moves the free blocks of a pageblock to the lists of the type that it has now. A block that reaches beyond is split.
    fn move_pageblock(&mut self, start: Pfn, to: MigrateType) {
        let pageblock = PfnRange::new(start, self.blocks.pages());
        let (head, tag) = self.settled_block(start);
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
    pub(crate) fn free_by_type(&mut self, block: impl Located, order: Order) {
        let block = block.place(&self.map);
        if order > self.geometry.pageblock_order() {
            self.free_to_pageblocks(self.map.pfn(block), order, Residence::Resident);
        } else {
            self.free_block(block, order, self.blocks.get_at(block));
        }
    }

    /// Frees a block to the lists of the pageblocks that it lies in, in parts if their types differ (`split_large_buddy`). The caller
    /// owns it, as for [`free_block`](Self::free_block).
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
