//! The table of pageblocks' links: batches of huge blocks lie here while they are in the depot, so that no page structure is touched.
//!
//! One entry of 8 bytes for each pageblock of the memory map, by its place: two links. A link is the number of a pageblock plus 1; 0
//! is none. (4 MiB for each TiB of memory in pageblocks of 2 MiB.)
//!
//! # A batch
//!
//! A batch has 1 to [`HUGE_BATCH`] blocks of pageblock order, its *members*: `m₀`, the head, to `m₁₅`.
//!
//! | entry of | low half | high half |
//! |---|---|---|
//! | `m₀` | `m₁` | the batch below on the stack |
//! | `mₖ`, k = 1 to 7 | `m₂ₖ` | `m₂ₖ₊₁` |
//!
//! So sixteen members take eight entries, and a reader that follows them waits for four of them one behind the other. Entries of
//! other members keep what they had.

use super::stack::Links;
use crate::page::Link;
use crate::platform::{Access, LineKind, Platform, SharedLine, copied_views};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::Order;
use crate::zone::fixed_vec::FixedVec;

/// The most blocks of a batch. (Few in models; three reach an entry of a member.)
pub(crate) const HUGE_BATCH: usize = if cfg!(loom) { 3 } else { 16 };

/// Huge blocks, by the places of their first frames.
pub(super) type HugeBatch = FixedVec<u32, HUGE_BATCH>;

/// The table, for pageblocks of that order.
pub(super) struct BlockLinks<'a, P> {
    table: &'static [AtomicU64],
    order: Order,
    platform: &'a P,
}

copied_views!(BlockLinks);

/// An entry with two links.
fn entry(low: Link, high: Link) -> u64 {
    u64::from(low.0) | u64::from(high.0) << 32
}

fn low(entry: u64) -> Link {
    Link(entry as u32)
}

fn high(entry: u64) -> Link {
    Link((entry >> 32) as u32)
}

impl<P: Platform> Links for BlockLinks<'_, P> {
    #[inline(always)]
    fn bits(self) -> u32 {
        usize::BITS - self.table.len().leading_zeros()
    }

    #[inline(always)]
    fn below(self, head: Link) -> Option<Link> {
        Some(high(self.read(head)?))
    }

    #[inline(always)]
    fn set_below(self, head: Link, below: Link) {
        if let Some(word) = self.word(head) {
            let first = low(word.load(Ordering::Relaxed));
            word.store(entry(first, below), Ordering::Relaxed);
        }
    }
}

impl<'a, P: Platform> BlockLinks<'a, P> {
    pub(super) fn new(table: &'static [AtomicU64], order: Order, platform: &'a P) -> Self {
        Self { table, order, platform }
    }

    #[inline(always)]
    fn word(self, link: Link) -> Option<&'static AtomicU64> {
        // `Link::NONE` wraps to a number behind every table.
        self.table.get(link.0.wrapping_sub(1) as usize)
    }

    #[inline(always)]
    fn read(self, link: Link) -> Option<u64> {
        let word = self.word(link)?;
        self.touch(word, Access::Read);
        Some(word.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn touch(self, word: &AtomicU64, access: Access) {
        self.platform.touch_line(SharedLine::of(LineKind::Mechanism, word), access);
    }

    /// The link to the block that begins at a place.
    #[inline(always)]
    fn link(self, place: u32) -> Link {
        Link((place >> self.order.0) + 1)
    }

    /// The place at which a linked pageblock begins; `None` if there is no such pageblock.
    #[inline(always)]
    fn place(self, link: Link) -> Option<u32> {
        let number = link.0.wrapping_sub(1);
        ((number as usize) < self.table.len()).then_some(number << self.order.0)
    }

    /// Packs the blocks that begin at some places, which the caller owns, into a batch. Returns the link to its head; `None` if there
    /// are no blocks, more than a batch has, or if none can begin there.
    pub(super) fn pack(self, members: &[AtomicU32]) -> Option<Link> {
        let links = |at: usize| members.get(at).map_or(Link::NONE, |place| self.link(place.load(Ordering::Relaxed)));
        if members.len() > HUGE_BATCH {
            return None;
        }
        let head = self.word(links(0))?;
        self.touch(head, Access::Write);
        head.store(entry(links(1), Link::NONE), Ordering::Relaxed);
        for at in 1..members.len().min(HUGE_BATCH.div_ceil(2)) {
            let member = self.word(links(at))?;
            self.touch(member, Access::Write);
            member.store(entry(links(2 * at), links(2 * at + 1)), Ordering::Relaxed);
        }
        Some(links(0))
    }

    /// Reads a batch, without a change, and gives each member's place to `take`, the head's first. `None` if a link leads nowhere: the
    /// table is damaged. Ends, whatever the table holds.
    #[inline(always)]
    pub(super) fn unpack(self, head: Link, mut take: impl FnMut(u32)) -> Option<Link> {
        let mut members = [Link::NONE; HUGE_BATCH];
        members[0] = head;
        let first = self.read(head)?;
        take(self.place(head)?);
        let mut len = 1;
        let mut pair = [low(first), Link::NONE];
        for at in 1.. {
            for member in pair {
                if member != Link::NONE && len < HUGE_BATCH {
                    take(self.place(member)?);
                    members[len] = member;
                    len += 1;
                }
            }
            if at >= len || 2 * at >= HUGE_BATCH {
                break;
            }
            let next = self.read(members[at])?;
            pair = [low(next), high(next)];
        }
        Some(high(first))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
