//! Sizes that are no power of two, particular ranges, and splitting blocks.

use super::{AllocError, FreeError, RangeError, Yard};
use crate::boot::Poisoning;
use crate::boot::YardEvent;
use crate::gfp::Gfp;
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{Order, PageCount, Pfn, PfnRange};
use crate::zone::{RangeBlocked, RangeLists, pieces, poison};

impl<P: Platform> Yard<P> {
    /// Allocates `count` contiguous frames, whatever their number: the rest of the covering block is freed at once.
    ///
    /// After the kernel's `alloc_pages_exact`; unlike there, the frames stay in the largest aligned blocks.
    /// Free them with [`free_range`](Self::free_range).
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    pub fn alloc_exact(&self, count: PageCount, gfp: Gfp) -> Result<PfnRange, AllocError> {
        let max = self.geometry.max_order();
        let order = match Order::covering(count) {
            Some(order) if count.0 > 0 && order <= max => order,
            _ => return Err(AllocError::BadSize { count, max: max.pages() }),
        };
        let pfn = self.alloc(order, gfp)?;
        let range = PfnRange::new(pfn, count);
        if count != order.pages() {
            let rest = PfnRange { start: range.end, end: pfn + order.pages() };
            self.cut(pfn, range, rest);
            for (pfn, order) in pieces(rest, max) {
                self.release(pfn, order);
            }
        }
        Ok(range)
    }

    /// Gives both parts of an allocated block heads of their own. The caller owns the block.
    fn cut(&self, head: Pfn, first: PfnRange, rest: PfnRange) {
        let tag = self.map.page(head, &self.platform).tag();
        for part in [rest, first] {
            for (pfn, order) in pieces(part, self.geometry.max_order()) {
                let piece = Tag::new(FrameState::Allocated, order, tag.migrate_type(), tag.zone());
                self.map.page(pfn, &self.platform).set_tag(piece);
            }
        }
    }

    /// Splits an allocated block into single frames, each to be freed by itself (the kernel's `split_page`).
    ///
    /// The caller owns the block: nobody else may free it meanwhile.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where the block could not be freed either; nothing has changed then.
    pub fn split(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let tag = self.page_of(pfn).map_or(Tag::INTERIOR, |page| page.tag());
        if !tag.is_block(FrameState::Allocated, order) {
            return Err(self.refuse(pfn, order));
        }
        let single = Tag::new(FrameState::Allocated, Order::ZERO, tag.migrate_type(), tag.zone());
        for offset in (0..order.pages().0).rev() {
            self.map.page(pfn + PageCount(offset), &self.platform).set_tag(single);
        }
        Ok(())
    }

    /// Allocates exactly the frames of a range, if all of them are free.
    ///
    /// Memory of the range that is not initialised comes up first; frames on per-CPU lists are collected. Watermarks are
    /// not looked at. Frames of contiguous memory areas are for movable requests alone. The frames stand in the largest aligned blocks; free them with [`free_range`](Self::free_range). Takes the zone lock for as long as the
    /// range has blocks.
    ///
    /// # Errors
    ///
    /// [`RangeError`]: the first block that is in use, or why the range is none. Nothing is allocated then.
    pub fn alloc_range(&self, range: PfnRange, gfp: Gfp) -> Result<PfnRange, RangeError> {
        if range.is_empty() {
            return Err(RangeError::Empty);
        }
        let migrate_type = gfp.migrate_type().ok_or(RangeError::BadFlags(gfp))?;
        let zone = match self.tables.range_of(range.start) {
            Some((memory, zone)) if range.end <= memory.end => zone,
            _ => return Err(RangeError::NotOneZone(range)),
        };
        if gfp.contains(Gfp::ZERO) && self.platform.frame_bytes(range.start).is_none() {
            return Err(RangeError::NoFrameBytes(range.start));
        }
        if !self.ensure_initialised(range) {
            return Err(RangeError::NotInitialised(range));
        }
        let view = self.zone_view(zone);
        let take = || self.take_initialised(zone, || view.lock().take_range(range, RangeLists::Open, migrate_type));
        let taken = take().or_else(|blocked| match blocked.state {
            FrameState::PerCpu | FrameState::OwnedFree | FrameState::InTransit => {
                self.drain_zone(zone);
                take()
            }
            _ => Err(blocked),
        });
        taken.map_err(|RangeBlocked { head, state, order }| RangeError::InUse { head, order, state })?;
        if self.poisoning == Poisoning::On {
            self.check_range(range)?;
        }
        if gfp.contains(Gfp::ZERO) {
            for (pfn, order) in pieces(range, self.geometry.max_order()) {
                poison::zero(&self.platform, self.geometry, pfn, order);
            }
        }
        Ok(range)
    }

    /// Looks for damage in a range just taken: puts damaged blocks aside and gives the others back.
    #[cold]
    pub(super) fn check_range(&self, range: PfnRange) -> Result<(), RangeError> {
        let blocks = || pieces(range, self.geometry.max_order());
        let damaged = |pfn: Pfn, order: Order| poison::damaged(&self.platform, self.geometry, pfn, order);
        let first = blocks().find_map(|(block, order)| Some((damaged(block, order)?, block, order)));
        let Some((pfn, block, order)) = first else { return Ok(()) };
        for (pfn, order) in blocks() {
            if damaged(pfn, order).is_some() {
                let page = self.map.page(pfn, &self.platform);
                page.set_tag(page.tag().with_state(FrameState::Poisoned));
                self.tables.count(YardEvent::PoisonHit);
            } else {
                self.release(pfn, order);
            }
        }
        Err(RangeError::Poisoned { pfn, block, order })
    }
}
