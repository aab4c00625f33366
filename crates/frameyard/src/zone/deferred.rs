//! Deferred frames: memory of a zone whose page structures are not initialised yet.
//!
//! Deferred frames exist only as counts: the number of frames, and the number of blocks of each order that they will
//! make. Their page structures are not accessed. Depending on the initialisation mode, deferred frames count as managed
//! and free from the start (lazy), or become managed when they are initialised (deferred).
//!
//! The counts change under the zone lock, together with the free lists that the frames join. `blocks` and then `pages`
//! change last: a reader that no longer finds frames deferred finds them free, so no request fails in between. `cursor`
//! is a hint where to look next, and may have any value. `stalled` makes later requests skip a wait that an earlier
//! request has given up.

use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{ORDER_SLOTS, Order, PageCount, Pfn, PfnRange};
use crate::zone::exclusive::add_exclusive;

/// The frames of a zone that are still to be initialised and freed.
///
/// On cache lines of its own: every refill reads `pages`, which stays constant once the map is initialised, while the
/// counters beside it keep changing.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct DeferredFrames {
    pages: AtomicU64,
    /// 1 if deferred frames count as managed and free.
    counted: AtomicU32,
    cursor: AtomicU64,
    /// The value of `pages` when a request gave up waiting for other initialisers; 0: none has.
    stalled: AtomicU64,
    /// The blocks that the frames will make, by order; all of them Movable.
    blocks: [AtomicU64; ORDER_SLOTS],
}

all_atomic!(DeferredFrames { pages, counted, cursor, stalled, blocks });

impl DeferredFrames {
    /// The number of deferred frames, possibly stale.
    #[inline]
    pub(crate) fn pages_racy(&self) -> PageCount {
        // Acquire: pairs with the Release in `DeferredFrames::sub_initialised`.
        PageCount(self.pages.load(Ordering::Acquire))
    }

    /// Subtracts initialised frames, which are on the free lists and counted there. The caller holds the zone lock.
    pub(crate) fn sub_initialised(&self, pages: u64) {
        // Release: pairs with the Acquire in `DeferredFrames::pages_racy`.
        self.pages.store(self.pages.load(Ordering::Relaxed).wrapping_sub(pages), Ordering::Release);
    }

    /// Whether deferred frames that count as free will make a block of at least that order, possibly stale. If they have
    /// made one in the meantime, the caller finds it on the free lists.
    pub(crate) fn has_counted_block_racy(&self, order: Order) -> bool {
        self.is_counted() && self.highest_order_racy().is_some_and(|highest| highest >= order)
    }

    /// Whether deferred frames count as managed and free.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.load(Ordering::Relaxed) != 0
    }

    /// The number of deferred blocks of an order that count as free.
    pub(crate) fn counted_blocks_racy(&self, order: usize) -> u64 {
        if self.is_counted() { self.blocks[order].load(Ordering::Relaxed) } else { 0 }
    }

    /// The highest order of which deferred frames will make blocks, possibly stale.
    pub(crate) fn highest_order_racy(&self) -> Option<Order> {
        // Acquire: pairs with the Release in `DeferredFrames::listed`.
        let highest = self.blocks.iter().rposition(|blocks| blocks.load(Ordering::Acquire) > 0)?;
        Some(Order(highest as u8))
    }

    /// Subtracts blocks that are on the free lists now. The caller holds the zone lock.
    pub(crate) fn listed(&self, order: Order, count: u64) {
        let blocks = &self.blocks[order.index()];
        // Release: pairs with the Acquire in `DeferredFrames::highest_order_racy`.
        blocks.store(blocks.load(Ordering::Relaxed).wrapping_sub(count), Ordering::Release);
    }

    /// Where to look first for a section to initialise.
    pub(crate) fn cursor(&self) -> Pfn {
        Pfn(self.cursor.load(Ordering::Relaxed))
    }

    /// Whether a request gave up waiting and nothing has been initialised since.
    pub(crate) fn is_stalled(&self) -> bool {
        let stalled = self.stalled.load(Ordering::Relaxed);
        stalled != 0 && stalled == self.pages_racy().0
    }

    /// Records that a request gave up waiting for other initialisers.
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

    /// From now on deferred frames count as managed and free.
    pub(crate) fn count(&self) {
        self.counted.store(1, Ordering::Relaxed);
    }
}

/// Calls `visit` with the number of blocks of each order that [`PfnRange::blocks`] cuts a range into, without a step for
/// each block.
pub(crate) fn for_each_size(range: PfnRange, max_order: Order, mut visit: impl FnMut(Order, u64)) {
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

    #[test]
    fn deferred_blocks_are_counted_like_the_pieces_they_become() {
        for (start, end) in [(0, 0), (0, 1), (1, 4096), (1023, 5 * 1024 + 7), (2048, 4096), (5, 6), (1000, 1024)] {
            let range = PfnRange { start: Pfn(start), end: Pfn(end) };
            let mut counted = [0; ORDER_SLOTS];
            for_each_size(range, Order(10), |order, count| counted[order.index()] += count);
            let mut cut = [0; ORDER_SLOTS];
            range.blocks(Order(10)).for_each(|block| cut[block.order.index()] += 1);
            assert_eq!(counted, cut, "{range}");
        }
    }
}
