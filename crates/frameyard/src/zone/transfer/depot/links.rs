//! The table of batches of huge blocks: they lie here while they are in the depot, so that no page structure is touched.
//!
//! One [`BatchLine`], a cache line, for each pageblock of the memory map, by its place: a batch lies in the line of its head. So a CPU
//! that takes a batch from another fetches one line. (32 MiB for each TiB of memory in pageblocks of 2 MiB, of which only lines that
//! were used take memory.)

use super::stack::Links;
use crate::page::Link;
use crate::platform::{Access, LineKind, Platform, SharedLine, copied_views};
use crate::sync::{AtomicU32, Ordering, all_atomic};
use crate::units::Order;
use crate::zone::fixed_vec::FixedVec;

/// The most blocks of a batch. (Few in models.)
pub(crate) const HUGE_BATCH: usize = if cfg!(loom) { 3 } else { 16 };

/// Huge blocks, by the places of their first frames.
pub(super) type HugeBatch = FixedVec<u32, HUGE_BATCH>;

/// The batch whose head is a pageblock. What a batch left behind stays there.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct BatchLine {
    /// The number of the head of the batch below on the stack, plus 1; 0 for none.
    below: AtomicU32,
    /// The places of the other members, plus 1; 0 behind the last.
    others: [AtomicU32; HUGE_BATCH - 1],
}

all_atomic!(BatchLine { below, others });

#[cfg(not(loom))]
const _: () = assert!(size_of::<BatchLine>() == 64, "a batch is one cache line");

/// The table, for pageblocks of that order. A link names a pageblock by its number.
pub(super) struct BlockLinks<'a, P> {
    table: &'static [BatchLine],
    order: Order,
    platform: &'a P,
}

copied_views!(BlockLinks);

impl<P: Platform> Links for BlockLinks<'_, P> {
    #[inline(always)]
    fn bits(self) -> u32 {
        usize::BITS - self.table.len().leading_zeros()
    }

    #[inline(always)]
    fn below(self, head: Link) -> Option<Link> {
        let line = self.line(head)?;
        self.touch(line, Access::Read);
        Some(Link(line.below.load(Ordering::Relaxed)))
    }

    #[inline(always)]
    fn set_below(self, head: Link, below: Link) {
        if let Some(line) = self.line(head) {
            line.below.store(below.0, Ordering::Relaxed);
        }
    }
}

impl<'a, P: Platform> BlockLinks<'a, P> {
    pub(super) fn new(table: &'static [BatchLine], order: Order, platform: &'a P) -> Self {
        Self { table, order, platform }
    }

    #[inline(always)]
    fn line(self, head: Link) -> Option<&'static BatchLine> {
        // `Link::NONE` wraps to a number behind every table.
        self.table.get(head.0.wrapping_sub(1) as usize)
    }

    #[inline(always)]
    fn touch(self, line: &BatchLine, access: Access) {
        self.platform.touch_line(SharedLine::of(LineKind::Mechanism, line), access);
    }

    /// Whether a block begins at a place.
    #[inline(always)]
    fn may_begin(self, place: u32) -> bool {
        place.trailing_zeros() >= self.order.0.into() && ((place >> self.order.0) as usize) < self.table.len()
    }

    /// Packs the blocks that begin at some places, which the caller owns, into a batch. Returns the link to its head; `None` if there
    /// are no blocks or more than a batch has, or if the first cannot begin there.
    #[inline(always)]
    pub(super) fn pack(self, mut members: impl ExactSizeIterator<Item = u32>) -> Option<Link> {
        let head = Link((members.next()? >> self.order.0) + 1);
        let (line, others) = (self.line(head)?, members.len());
        if others > line.others.len() {
            return None;
        }
        self.touch(line, Access::Write);
        for (slot, place) in line.others.iter().zip(members) {
            slot.store(place.wrapping_add(1), Ordering::Relaxed);
        }
        if let Some(behind) = line.others.get(others) {
            behind.store(0, Ordering::Relaxed);
        }
        Some(head)
    }

    /// Reads a batch, without a change, and gives each member's place to `take`, the head's first. Returns the link to the batch
    /// below; `None` if no block can begin at a place: the table is damaged.
    #[inline(always)]
    pub(super) fn unpack(self, head: Link, mut take: impl FnMut(u32)) -> Option<Link> {
        let line = self.line(head)?;
        self.touch(line, Access::Read);
        take((head.0 - 1) << self.order.0);
        for slot in &line.others {
            let Some(place) = slot.load(Ordering::Relaxed).checked_sub(1) else { break };
            if !self.may_begin(place) {
                return None;
            }
            take(place);
        }
        Some(Link(line.below.load(Ordering::Relaxed)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
