//! Sizes that are no power of two, particular ranges, and splitting blocks.

use super::{AllocError, FreeError, RangeError, Yard};
use crate::boot::Poisoning;
use crate::boot::YardEvent;
use crate::gfp::Gfp;
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange, ZoneId};
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
        loop {
            let pfn = self.alloc(order, gfp)?;
            if count == order.pages() {
                return Ok(PfnRange::new(pfn, count));
            }
            // Somebody may have freed it meanwhile that does not own it.
            if let Some(entry) = self.allocation_map.clear_allocated(&self.platform, pfn, order) {
                return Ok(self.cut(PfnRange::new(pfn, order.pages()), count, entry.migrate_type()));
            }
        }
    }

    /// Hands out the first frames of a block that the caller has alone, and frees the others.
    fn cut(&self, block: PfnRange, count: PageCount, migrate_type: MigrateType) -> PfnRange {
        let first = PfnRange::new(block.start, count);
        let rest = PfnRange { start: first.end, end: block.end };
        let zone = self.zone_of_block(block.start);
        for part in [rest, first] {
            self.tag_pieces(part, migrate_type, zone);
        }
        self.hand_out_pieces(first, migrate_type);
        for (pfn, order) in pieces(rest, self.geometry.max_order()) {
            self.put_away(pfn, order);
        }
        first
    }

    /// Gives the largest aligned pieces of a range that the caller has alone heads of their own.
    fn tag_pieces(&self, range: PfnRange, migrate_type: MigrateType, zone: ZoneId) {
        for (pfn, order) in pieces(range, self.geometry.max_order()) {
            let piece = Tag::new(FrameState::Allocated, order, migrate_type, zone);
            self.map.page(pfn, &self.platform).set_tag(piece);
        }
    }

    /// Hands out a range that the caller has alone, in the largest aligned pieces, which are tagged.
    pub(super) fn hand_out_pieces(&self, range: PfnRange, migrate_type: MigrateType) {
        for (pfn, order) in pieces(range, self.geometry.max_order()) {
            self.allocation_map.mark_allocated(&self.platform, pfn, order, migrate_type);
        }
    }

    /// Hands out the frames of a block that the caller has alone, each by itself.
    pub(super) fn hand_out_single(&self, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        let single = Tag::new(FrameState::Allocated, Order::ZERO, migrate_type, self.zone_of_block(pfn));
        // The head last: as long as it says how large the block is, no frame of it seems to be in none.
        for offset in (0..order.pages().0).rev() {
            self.map.page(pfn + PageCount(offset), &self.platform).set_tag(single);
            self.allocation_map.mark_allocated(&self.platform, pfn + PageCount(offset), Order::ZERO, migrate_type);
        }
    }

    /// Splits an allocated block into single frames, each to be freed by itself (the kernel's `split_page`).
    ///
    /// # Errors
    ///
    /// [`FreeError`] where the block could not be freed either; nothing has changed then.
    pub fn split(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let Some(entry) = self.allocation_map.clear_allocated(&self.platform, pfn, order) else {
            return Err(self.refuse(pfn, order));
        };
        self.hand_out_single(pfn, order, entry.migrate_type());
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
            FrameState::PerCpu | FrameState::HeldFree | FrameState::InTransit | FrameState::Interior => {
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
        self.hand_out_pieces(range, migrate_type);
        Ok(range)
    }

    /// Looks for damage in a range just taken and not handed out yet: puts damaged blocks aside and gives the others back.
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
                self.put_away(pfn, order);
            }
        }
        Err(RangeError::Poisoned { pfn, block, order })
    }
}
