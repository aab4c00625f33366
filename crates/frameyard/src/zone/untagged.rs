//! The state of a frame, from its tag, the allocation map, and the block that covers it. Every reader of tags that may
//! meet a single frame outside its zone uses these functions.
//!
//! # Untagged frames
//!
//! A refill that divides a large block writes no tags to its frames, because that would touch a cache line for each.
//! The rule is in the header of [`page`](crate::page): a zero tag that no head covers is a single frame that has left
//! its zone. These functions apply the rule, cheapest first:
//!
//! | function | reads | finds |
//! |---|---|---|
//! | [`completed`](ZoneTables::completed) | a byte | allocated frames: the allocation map has a byte only for the head of a block |
//! | [`tag_at`](ZoneView::tag_at) | a page and a byte | the same, by frame number |
//! | [`uncovered`](ZoneView::uncovered) | two bytes, and large heads | frames on lists, if the caller knows that no head covers them: it has looked, or steps from head to head |
//! | [`covering_block`](ZoneView::covering_block) | up to a page per order | everything |
//!
//! A lock-free reader may take a frame for one on a list although it is in transit between blocks, because a merge
//! clears one head before the merged block has its tag.

use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{Order, PageCount, Pfn, ZoneId};
use crate::zone::huge_pool::POOLED_ORDERS;
use crate::zone::view::{ZoneTables, ZoneView};

impl ZoneTables {
    /// The zone whose single frames need no tag at that place once they have left it; `None` where they do: a zero tag may be that of
    /// a hole there, or of another zone's frame.
    #[inline(always)]
    pub(crate) fn untagged_zone_at(&self, place: usize) -> Option<ZoneId> {
        self.sections.at(place).uniform_zone().or_else(|| self.zone_of_line_at(place))
    }

    #[cold]
    fn zone_of_line_at(&self, place: usize) -> Option<ZoneId> {
        self.blocks.zone_at(place).filter(|_| self.mechanisms.is_of_one_zone(place))
    }

    /// What begins at a frame, whose page has the tag `in_page`: told apart are allocated blocks and those on per-CPU lists, and found
    /// are allocated frames without a tag. Keeps the validator's mark.
    #[inline(always)]
    pub(crate) fn completed(&self, pfn: Pfn, in_page: Tag) -> Tag {
        if in_page.is_untagged() {
            self.allocated_untagged(pfn, in_page)
        } else {
            self.allocation_map.read(pfn, in_page)
        }
    }

    fn allocated_untagged(&self, pfn: Pfn, in_page: Tag) -> Tag {
        let entry = self.allocation_map.entry(pfn).filter(|entry| pfn.is_aligned(entry.order()));
        match entry.zip(self.untagged_zone_at(self.map.place(pfn))) {
            Some((entry, zone)) => {
                let tag = Tag::new(FrameState::Allocated, entry.order(), entry.migrate_type(), zone);
                if in_page.is_seen() { tag.with_seen() } else { tag }
            }
            None => in_page,
        }
    }
}

impl<P: Platform> ZoneView<'_, P> {
    /// What begins at a frame, [`completed`](ZoneTables::completed). An interior tag if no block of the order in the page's tag begins
    /// there, or the frame is on a list and has no tag.
    #[inline(always)]
    pub(crate) fn tag_at(&self, pfn: Pfn) -> Tag {
        let in_page = self.page(pfn).tag();
        match in_page.of_block_at(pfn, self.geometry.max_order()) {
            tag if tag == in_page => self.completed(pfn, tag),
            interior => interior,
        }
    }

    /// What a frame of initialised memory is that is not allocated, has the zero tag `in_page`, and that no head of at most the largest
    /// order covers: on a list, without a tag. Interior in a hole, in a large block, and where frames have tags.
    pub(crate) fn uncovered(&self, pfn: Pfn, in_page: Tag) -> Tag {
        let zone = self.untagged_zone_at(self.map.place(pfn));
        match zone.filter(|_| in_page.is_untagged() && self.blocks.has_memory(pfn) && self.large_around(pfn).is_none())
        {
            Some(zone) => {
                let tag = Tag::new(FrameState::PerCpu, Order::ZERO, self.blocks.get(pfn), zone);
                if in_page.is_seen() { tag.with_seen() } else { tag }
            }
            None => in_page,
        }
    }

    /// The block above the maximum order that has a frame: a large one that is allocated, or the page of a pool. Any frame number is
    /// allowed.
    ///
    /// Cost: the page structure of the maximum-order block around the frame, and in most cases no other: its tag is zero inside a
    /// large block.
    #[cold]
    pub(crate) fn large_around(&self, pfn: Pfn) -> Option<(Pfn, Tag)> {
        let max = self.geometry.max_order();
        let largest = POOLED_ORDERS.into_iter().fold(self.geometry.largest_order(), Order::max);
        let mut head = pfn.align_down(max);
        let mut tag = self.page_of(head)?.tag();
        if !tag.is_untagged() && tag.order() <= max {
            return None;
        }
        (max.0 + 1..=largest.0).map(Order).find_map(|order| {
            let next = pfn.align_down(order);
            // Read once, although it may be the head of blocks of several orders.
            if next != head {
                (head, tag) = (next, self.page_of(next)?.tag());
            }
            if tag.order() != order {
                return None;
            }
            if tag.is(FrameState::Pooled) {
                return POOLED_ORDERS.contains(&order).then_some((head, tag));
            }
            tag.has_left_zone().then(|| (head, self.allocation_map.read(head, tag)))
        })
    }

    /// The block that covers a frame of initialised memory; the frame itself with an interior tag if there is none.
    pub(crate) fn covering_block(&self, pfn: Pfn) -> (Pfn, Tag) {
        self.covering_block_by(pfn, |pfn| self.tag_at(pfn))
    }

    /// As [`covering_block`](Self::covering_block), with a look-up of tags of the caller's.
    pub(crate) fn covering_block_by(&self, pfn: Pfn, tag_of: impl Fn(Pfn) -> Tag) -> (Pfn, Tag) {
        let (head, tag) = covering_block(self.geometry.max_order(), pfn, tag_of);
        if !tag.is(FrameState::Interior) {
            return (head, tag);
        }
        if let Some(found) = self.large_around(pfn) {
            return found;
        }
        // Read again: another process may have written any order meanwhile.
        (pfn, self.uncovered(pfn, self.page(pfn).tag()).of_block_at(pfn, self.geometry.max_order()))
    }

    /// What the entry `pfn` of a list is, whose page has the tag `in_page`. For the validator: a frame inside a block is none.
    pub(crate) fn tag_on_list(&self, pfn: Pfn, in_page: Tag) -> Tag {
        let tag = self.completed(pfn, in_page);
        if !tag.is(FrameState::Interior) || !in_page.is_untagged() {
            return tag;
        }
        match self.covering_block(pfn) {
            (head, tag) if head == pfn => tag,
            _ => in_page,
        }
    }
}

impl<P: Platform> ZoneView<'_, P> {
    /// For the validator: marks the page of a block that a list has, so that a second list with it shows. Returns the blocks that the walk
    /// over all frames will find, and their order: a larger block without a tag is as many single frames to it. `None` if the frame is no
    /// such block, or is marked.
    pub(crate) fn mark_listed(&self, pfn: Pfn, order: Order) -> Option<(Order, u64)> {
        let is_untagged = self.page_of(pfn)?.tag().without_seen().is_untagged();
        let each = if is_untagged { Order::ZERO } else { order };
        let blocks = 1 << (order.0 - each.0);
        for at in 0..blocks {
            let pfn = pfn + PageCount(at);
            let page = self.page_of(pfn)?;
            let in_page = page.tag();
            if in_page.is_seen() || !self.tag_on_list(pfn, in_page).is_block(FrameState::PerCpu, each) {
                return None;
            }
            let _ = page.replace_tag(in_page, in_page.with_seen());
        }
        Some((each, blocks))
    }
}

/// The block whose head covers a frame, found by its possible heads; the frame itself if none covers it.
pub(crate) fn covering_block(max_order: Order, pfn: Pfn, tag_of: impl Fn(Pfn) -> Tag) -> (Pfn, Tag) {
    for order in 0..=max_order.0 {
        let head = pfn.align_down(Order(order));
        let tag = tag_of(head).of_block_at(head, max_order);
        if tag.state() != FrameState::Interior && tag.order().0 >= order {
            return (head, tag);
        }
    }
    (pfn, Tag::INTERIOR)
}
