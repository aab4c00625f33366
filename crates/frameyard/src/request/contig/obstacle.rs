//! Obstacles: blocks in the way of a contiguous range. Their states are read without a lock, so only lasting states are
//! acted on at once; others are read again later.

use crate::owners::{Block, OwnerKind, Owners};
use crate::page::{CountedPage, FrameState, Tag};
use crate::platform::Platform;
use crate::request::contig::{BlockedBy, Blocker};
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::yard::Yard;

/// The distance at which a walk over a range prefetches page structures.
const AHEAD: PageCount = PageCount(32);

/// What covers a frame that a request wants free.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cover {
    /// On a free list.
    Free(Block),
    /// Counted, with an owner that can be asked.
    Owned(Block, OwnerKind),
    /// In transit, or held by a CPU that may free it in a moment: check again.
    Passing(Blocker),
    /// It will stay.
    Fixed(Blocker),
}

impl Cover {
    /// The frame behind it.
    pub(super) fn end(self) -> Pfn {
        match self {
            Self::Free(block) | Self::Owned(block, _) => block.frames().end,
            Self::Passing(blocker) | Self::Fixed(blocker) => blocker.frames().end,
        }
    }
}

impl<P: Platform> Yard<P> {
    /// What covers a frame of memory whose page is initialised.
    pub(super) fn cover_of(&self, pfn: Pfn, owners: &Owners<'_>) -> Cover {
        let ahead = pfn + AHEAD;
        if self.map.range().contains(ahead) {
            self.map.page(ahead, &self.platform).prefetch();
        }
        let tag = self.map.page(pfn, &self.platform).tag();
        if tag.is_block(FrameState::Counted, Order::ZERO) {
            return self.cover_of_counted(Block { pfn, order: Order::ZERO }, tag, owners);
        }
        let (head, tag) = self.covering(pfn);
        let block = Block { pfn: head, order: tag.order() };
        let blocker = |why| Blocker::new(block, tag.state(), why);
        match tag.state() {
            FrameState::BuddyFree => Cover::Free(block),
            FrameState::Counted => self.cover_of_counted(block, tag, owners),
            FrameState::Reserved => Cover::Fixed(blocker(BlockedBy::Reserved)),
            FrameState::Offline => Cover::Fixed(blocker(BlockedBy::Offline)),
            // Movable memory is allocated before it is counted, and stops being counted before it is freed.
            FrameState::Allocated if tag.migrate_type() == MigrateType::Movable => {
                Cover::Passing(blocker(BlockedBy::Unmovable))
            }
            FrameState::Interior | FrameState::PerCpu | FrameState::InTransit | FrameState::Isolated => {
                Cover::Passing(blocker(BlockedBy::Busy))
            }
            _ => Cover::Fixed(blocker(BlockedBy::Unmovable)),
        }
    }

    fn cover_of_counted(&self, block: Block, tag: Tag, owners: &Owners<'_>) -> Cover {
        let page = CountedPage::new(self.map.page(block.pfn, &self.platform), self.map.content().no_users());
        let owner = OwnerKind::of_word(page.owner());
        if owners.of(owner).is_some() {
            return Cover::Owned(block, owner);
        }
        let blocker = |why| Blocker { owner, ..Blocker::new(block, tag.state(), why) };
        // Between the two reads it may have become another's. What is the same twice is believed.
        if page.tag() == tag && OwnerKind::of_word(page.owner()) == owner {
            Cover::Fixed(blocker(BlockedBy::Unmovable))
        } else {
            Cover::Passing(blocker(BlockedBy::Busy))
        }
    }

    /// The first block of a range that will stay (`has_unmovable_pages`, `pfn_range_valid_contig`); memory whose pages
    /// are not initialised counts as what it will be. The range is memory of one zone.
    ///
    /// A contiguous memory area is in the way of all requests but those for the area.
    pub(super) fn first_obstacle(
        &self,
        range: PfnRange,
        migrate_type: MigrateType,
        owners: &Owners<'_>,
    ) -> Option<Blocker> {
        let blocks = self.pageblocks();
        let mut at = range.start;
        while at < range.end {
            let end = PfnRange::new(blocks.start_of(at), blocks.pages()).end.min(range.end);
            if !blocks.has_memory(at) {
                if let Some(pfn) = self.first_reserved(PfnRange { start: at, end }) {
                    let frame = Block { pfn, order: Order::ZERO };
                    return Some(Blocker::new(frame, FrameState::Uninitialised, BlockedBy::Reserved));
                }
                at = end;
                continue;
            }
            if migrate_type != MigrateType::Cma && blocks.lasting_type(at) == MigrateType::Cma {
                return Some(self.area_in_the_way(blocks.start_of(at)));
            }
            while at < end {
                let cover = self.cover_of(at, owners);
                if let Cover::Fixed(blocker) = cover {
                    return Some(blocker);
                }
                at = cover.end().max(Pfn(at.0 + 1));
            }
        }
        None
    }

    fn area_in_the_way(&self, pfn: Pfn) -> Blocker {
        let state = self.tag_at(pfn).state();
        Blocker::new(Block { pfn, order: self.geometry.pageblock_order() }, state, BlockedBy::Area)
    }

    /// The first frame of a range of memory that was reserved when the yard was created.
    fn first_reserved(&self, range: PfnRange) -> Option<Pfn> {
        let mut at = range.start;
        for (free, _) in self.tables.free_ranges_in(range) {
            if free.start > at {
                break;
            }
            at = free.end;
        }
        (at < range.end).then_some(at)
    }
}
