//! Defrag mode: a yard keeps a stock of whole free pageblocks (the kernel's `defrag_mode`).
//!
//! With the mode off, background workers keep free frames above the watermarks, in blocks of any size, and requests mix
//! types in a pageblock early. With the mode on:
//!
//! - A request that may wait compacts and reclaims before it mixes types in a pageblock.
//! - Background workers count free frames in whole pageblocks only (the kernel's `NR_FREE_PAGES_BLOCKS`): the *stock*.
//!   When it falls below the low mark, they refill it up to the high mark. The reclaimer frees the frames that
//!   compaction needs as targets. The compactor empties the pageblocks with the most free frames first, and leaves
//!   alone those with a block that cannot move.
//!
//! The mode is a word in the yard's header that only slow paths and background steps read, so the fast paths do not
//! depend on it.

use crate::page::FrameState;
use crate::platform::Platform;
use crate::store;
use crate::units::{Geometry, MigrateType, Order, PageCount, Pfn, PfnRange, named};
use crate::zone::compact_state::EMPTINESS_LEVELS;
use crate::zone::state::Zone;
use crate::zone::view::ZoneView;
use crate::zone::watermark::WatermarkLevel;

/// Whether a yard keeps a stock of whole free pageblocks.
///
/// Modelled on the kernel's sysctl `vm.defrag_mode`. Set in the configuration
/// ([`YardConfig::defrag_mode`](crate::YardConfig::defrag_mode));
/// [`Yard::set_defrag_mode`](crate::Yard::set_defrag_mode) changes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum DefragMode {
    /// No stock is kept: watermarks count all free frames.
    #[default]
    Off,
    /// Requests avoid mixing types in a pageblock, and background workers keep a stock of whole free pageblocks.
    On,
}

named!(DefragMode: Off => "off", On => "on");

impl DefragMode {
    pub(crate) fn from_bits(bits: u64) -> Self {
        if bits == Self::On as u64 { Self::On } else { Self::Off }
    }
}

/// The pageblocks of a stock: two, and one for each pair of a type that falls back and a type that it falls back to, as in the
/// kernel's recommended minimum for huge pages.
const STOCK: u64 = 2 + (MigrateType::PER_CPU * MigrateType::PER_CPU) as u64;
/// A stock takes at most one in this number of a zone's pageblocks.
const PART: u64 = 20;

/// The stock of a zone: how many free frames in whole pageblocks it should have, and how many it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stock {
    /// Below this, background workers refill the stock.
    pub low: PageCount,
    /// At this level, they stop.
    pub high: PageCount,
    /// The zone's free frames in whole pageblocks (the kernel's `NR_FREE_PAGES_BLOCKS`).
    pub free: PageCount,
    /// The free frames, in blocks of any size, that a refill needs: the high watermark, the stock, and targets for the
    /// blocks that move. Below this, the background reclaimer frees more.
    pub room: PageCount,
}

impl Stock {
    /// The stock of a zone with that many managed frames and that high watermark.
    pub(crate) fn of(managed: PageCount, high: PageCount, pageblock: Order) -> Self {
        let most = (managed.0 >> pageblock.0) / PART;
        let blocks = STOCK.max(high.0.div_ceil(pageblock.pages().0)).min(most);
        let pages = |blocks: u64| PageCount(blocks << pageblock.0);
        Self { low: pages(blocks.div_ceil(2)), high: pages(blocks), free: PageCount(0), room: high + pages(blocks + 2) }
    }
}

/// The free frames that a pageblock must have at that level before its other frames are moved: half of it, a quarter, an eighth; any.
pub(crate) fn least_free(level: u32, pageblock: Order) -> PageCount {
    if level + 1 >= EMPTINESS_LEVELS { PageCount(0) } else { PageCount(pageblock.pages().0 >> (level + 1)) }
}

/// The stock of whole pageblocks that a zone should have, and what it has. Reads all bits. Possibly stale.
pub(crate) fn stock_racy<P: Platform>(view: ZoneView<'_, P>) -> Stock {
    let free = view.zone.free_in_pageblocks_racy(view.geometry) + store::whole_as_bits_racy(view);
    Stock { free, ..view.zone.wanted_stock(view.geometry) }
}

impl Zone {
    fn wanted_stock(&self, geometry: Geometry) -> Stock {
        Stock::of(self.managed(), self.watermark(WatermarkLevel::High), geometry.pageblock_order())
    }

    /// Below that number of free frames owners drop contents rather than move them. It exceeds what the reclaimer frees by a stock, so
    /// that a refill drops what it can while requests use the stock.
    pub(crate) fn discard_below(&self, geometry: Geometry) -> PageCount {
        let stock = self.wanted_stock(geometry);
        stock.room + stock.high
    }

    /// Free frames in whole pageblocks, deferred ones included. Possibly stale.
    fn free_in_pageblocks_racy(&self, geometry: Geometry) -> PageCount {
        self.pages_in_blocks_from_racy(geometry.pageblock_order(), geometry.max_order())
            + self.deferred_in_pageblocks_racy(geometry)
    }

    fn deferred_in_pageblocks_racy(&self, geometry: Geometry) -> PageCount {
        let orders = geometry.pageblock_order().index()..=geometry.max_order().index();
        orders.map(|order| PageCount(self.deferred.counted_blocks_racy(order) << order)).sum()
    }
}

impl<P: Platform> ZoneView<'_, P> {
    /// The free frames of a pageblock of which each other block can be moved, as far as its tags say, and the heads that were read;
    /// `None` where a block stays. Possibly stale.
    pub(crate) fn movable_pageblock_racy(self, frames: PfnRange) -> (u64, Option<PageCount>) {
        let (mut at, mut read, mut free) = (frames.start, 0, PageCount(0));
        while at < frames.end {
            let tag = self.tag_at(at);
            read += 1;
            let sound = tag.order() <= self.geometry.max_order() && at.is_aligned(tag.order());
            let pages = match tag.state() {
                FrameState::Interior => PageCount(1),
                _ if sound => tag.order().pages(),
                _ => PageCount(1),
            };
            match tag.state() {
                _ if tag.state() != FrameState::Interior && tag.zone() != self.id => return (read, None),
                FrameState::BuddyFree | FrameState::PerCpu => free += pages,
                FrameState::Interior | FrameState::Counted | FrameState::InTransit | FrameState::Isolated => {}
                _ => return (read, None),
            }
            at = Pfn(at.0 + pages.0);
        }
        (read, Some(free))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PAGEBLOCK: Order = Order(9);

    #[test]
    fn a_stock_is_eleven_pageblocks_or_the_high_watermark_if_that_is_more() {
        let of = |managed: u64, high| {
            let stock = Stock::of(PageCount(managed << 9), PageCount(high), PAGEBLOCK);
            assert_eq!(stock.room.0, high + stock.high.0 + 1024, "the targets are two pageblocks");
            (stock.low.0 >> 9, stock.high.0 >> 9)
        };
        assert_eq!(of(512, 1536), (6, 11));
        assert_eq!(of(8192, 20 * 512 + 1), (11, 21));
    }

    #[test]
    fn a_small_zone_keeps_a_twentieth_of_its_pageblocks() {
        let stock = |managed| Stock::of(PageCount(managed), PageCount(10_000), PAGEBLOCK).high.0 >> 9;
        assert_eq!((stock(100 << 9), stock(39 << 9), stock(19 << 9), stock(0)), (5, 1, 0, 0));
    }

    #[test]
    fn pageblocks_that_are_half_free_are_emptied_first_and_any_at_last() {
        let least: std::vec::Vec<u64> = (0..6).map(|level| least_free(level, PAGEBLOCK).0).collect();
        assert_eq!(least, [256, 128, 64, 0, 0, 0]);
    }
}
