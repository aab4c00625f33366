//! Memory of a zone whose page structures are not initialised yet.
//!
//! What is pending is known by counting alone: how many frames, and how many blocks of each order they will make.
//! Nothing looks at their pages. Depending on when the memory map comes up, pending frames count as managed and
//! free from the start (lazily), or become managed when they are initialised (deferred).
//!
//! Counts change under the zone lock, together with the free lists that the frames join; read without it they are
//! a moment old. `blocks` and then `pages` change last: whoever finds frames no longer pending finds them free, so that
//! no request is refused between the two. `cursor` is a hint where to look next, and may be anything; `stalled` spares
//! those who come after somebody who waited in vain the same.

use super::{LockedZone, add_exclusive};
use crate::page::Residence;
use crate::platform::Platform;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{MigrateType, ORDER_SLOTS, Order, PageCount, Pfn, PfnRange};

/// The frames of a zone that are still to be initialised and freed.
///
/// Lines of its own: every refill looks at `pages`, which nobody writes any more once the map is up, while counters
/// beside it go on changing.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Pending {
    pages: AtomicU64,
    /// 1 where pending frames count as managed and free.
    counted: AtomicU32,
    cursor: AtomicU64,
    /// `pages` when somebody waited in vain for what others are initialising; 0: nobody has.
    stalled: AtomicU64,
    /// The blocks that they will make, by order; all of them Movable.
    blocks: [AtomicU64; ORDER_SLOTS],
}

impl Pending {
    /// How many frames are pending, a moment ago.
    #[inline]
    pub(crate) fn pages_racy(&self) -> PageCount {
        // Acquire: pairs with the Release in `brought_in`.
        PageCount(self.pages.load(Ordering::Acquire))
    }

    /// So many frames are pending no more: they are on the free lists, and counted there. For the holder of the lock.
    pub(super) fn brought_in(&self, pages: u64) {
        // Release: pairs with the Acquire in `pages_racy`.
        self.pages.store(self.pages.load(Ordering::Relaxed).wrapping_sub(pages), Ordering::Release);
    }

    /// Whether pending frames that count as free will make a block of at least that order, a moment ago. Where they
    /// made one in the meantime, the caller finds it on the free lists.
    pub(crate) fn has_counted_block_racy(&self, order: Order) -> bool {
        self.is_counted() && self.highest_order_racy().is_some_and(|highest| highest >= order)
    }

    /// Whether pending frames count as managed and free.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.load(Ordering::Relaxed) != 0
    }

    /// How many blocks of an order count as free though they are pending.
    pub(crate) fn counted_blocks_racy(&self, order: usize) -> u64 {
        if self.is_counted() { self.blocks[order].load(Ordering::Relaxed) } else { 0 }
    }

    /// The highest order of which pending frames will make blocks, a moment ago.
    pub(crate) fn highest_order_racy(&self) -> Option<Order> {
        // Acquire: pairs with the Release in `listed`.
        let highest = self.blocks.iter().rposition(|blocks| blocks.load(Ordering::Acquire) > 0)?;
        Some(Order(highest as u8))
    }

    /// So many blocks are on the free lists. For the holder of the lock.
    fn listed(&self, order: Order, count: u64) {
        let blocks = &self.blocks[order.index()];
        // Release: pairs with the Acquire in `highest_order_racy`.
        blocks.store(blocks.load(Ordering::Relaxed).wrapping_sub(count), Ordering::Release);
    }

    /// Where to look first for a section to initialise.
    pub(crate) fn cursor(&self) -> Pfn {
        Pfn(self.cursor.load(Ordering::Relaxed))
    }

    /// Whether somebody has waited in vain for others, and nothing has come of it since.
    pub(crate) fn is_stalled(&self) -> bool {
        let stalled = self.stalled.load(Ordering::Relaxed);
        stalled != 0 && stalled == self.pages_racy().0
    }

    /// Says that waiting for others was in vain.
    pub(crate) fn set_stalled(&self) {
        self.stalled.store(self.pages_racy().0, Ordering::Relaxed);
    }

    pub(crate) fn set_cursor(&self, pfn: Pfn) {
        self.cursor.store(pfn.0, Ordering::Relaxed);
    }

    /// Adds a range of free memory, while the yard is being created.
    pub(crate) fn add(&self, range: PfnRange, max_order: Order) {
        add_exclusive(&self.pages, range.count().0);
        for_each_size(range, max_order, |order, count| add_exclusive(&self.blocks[order.index()], count));
    }

    /// From now on pending frames count as managed and free.
    pub(super) fn count(&self) {
        self.counted.store(1, Ordering::Relaxed);
    }
}

impl super::Zone {
    /// Counts all pending frames as managed and free. Only while the yard is being created.
    pub(crate) fn count_pending(&self) {
        let pages = self.pending.pages_racy();
        self.pending.count();
        add_exclusive(&self.facts.managed, pages.0);
        add_exclusive(&self.free_pages, pages.0);
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Frees a range of pending frames whose page structures are initialised now. It ends where maximum-order blocks
    /// do, or where free memory does, so that it makes the blocks that were counted.
    pub(crate) fn bring_in(&mut self, range: PfnRange) {
        let max_order = self.geometry.max_order();
        for (pfn, order) in super::pieces(range, max_order) {
            self.free_to_pageblocks(pfn, order, Residence::Resident);
        }
        let pending = &self.zone.pending;
        for_each_size(range, max_order, |order, count| pending.listed(order, count));
        if pending.is_counted() {
            // They were counted as free already.
            self.free_change = self.free_change.wrapping_sub(range.count().0);
        } else {
            add_exclusive(&self.zone.facts.managed, range.count().0);
        }
        self.brought_in += range.count().0;
    }

    /// Whether a request should rather have more memory initialised than take another type's blocks: as long as that
    /// brings a block that is large enough, and larger than any that can be had of type Movable. Were all memory
    /// initialised, the request would fall back to such a block.
    pub(super) fn should_grow_first(&self, order: Order) -> bool {
        let Some(highest) = self.zone.pending.highest_order_racy() else { return false };
        highest >= order && self.orders_from(highest, MigrateType::Movable) == 0
    }
}

/// Calls `visit` with how many blocks of each order a range is cut into (as by [`pieces`](super::pieces)), without
/// going from block to block.
fn for_each_size(range: PfnRange, max_order: Order, mut visit: impl FnMut(Order, u64)) {
    let mut rest = range;
    while let Some(order) = rest.first_block(max_order) {
        let count = if order == max_order { rest.count().0 >> order.0 } else { 1 };
        visit(order, count);
        rest.start = rest.start + PageCount(count << order.0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::zone::pieces;

    #[test]
    fn blocks_are_counted_as_they_will_be_cut() {
        for (start, end) in [(0, 0), (0, 1), (1, 4096), (1023, 5 * 1024 + 7), (2048, 4096), (5, 6), (1000, 1024)] {
            let range = PfnRange { start: Pfn(start), end: Pfn(end) };
            let mut counted = [0; ORDER_SLOTS];
            for_each_size(range, Order(10), |order, count| counted[order.index()] += count);
            let mut cut = [0; ORDER_SLOTS];
            pieces(range, Order(10)).for_each(|(_, order)| cut[order.index()] += 1);
            assert_eq!(counted, cut, "{range}");
        }
    }
}
