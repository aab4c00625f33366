//! The background reclaimer of a node, in steps of bounded length: the kernel's kswapd.

use frameyard::compaction::CompactOutcome;
use frameyard::stats::ZoneStatistics;
use frameyard::sync::{AtomicU64, Ordering};
use frameyard::units::ZoneKind;
use frameyard::watermarks::WatermarkLevel;
use frameyard::{DefragMode, NodeId, PageCount, Platform};

use super::scan::Scan;
use super::{CLUSTER, Caller, FIRST_PRIORITY};
use crate::counters::VmCounter;
use crate::lru::{BackgroundWord, LruList, ShardKey};
use crate::vm::Vm;

/// The largest number of pages that a step scans.
const STEP: PageCount = PageCount(32 * CLUSTER);
/// The priority word while the reclaimer sleeps. Otherwise it is the priority plus 1.
const ASLEEP: u64 = 0;

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReclaimStep {
    /// The node has enough free pages. Sleep until more are allocated.
    Idle,
    /// This many pages were freed, possibly 0, and there is more to do.
    Progress(PageCount),
    /// The node has too few free pages, and no page that was scanned can be dropped.
    Stuck,
}

impl<P: Platform> Vm<'_, P> {
    /// Runs one step of a node's background reclaimer. A background thread calls this in a loop, and sleeps after
    /// [`Idle`](ReclaimStep::Idle) and [`Stuck`](ReclaimStep::Stuck).
    ///
    /// Reclaim starts when no zone of the node is above its low watermark, or when watermarks have been boosted because
    /// pageblocks mix types. With [`DefragMode::On`], it also starts when a zone has too few free pages to refill its
    /// stock of whole pageblocks. It ends when there is a zone above the high watermark including the boost. Then the
    /// boost is removed, and the background compactor assembles whole pageblocks.
    pub fn reclaim_step(&self, node: NodeId) -> ReclaimStep {
        if node.0 >= self.yard().nodes() {
            return ReclaimStep::Idle;
        }
        let Some(shard) = self.shard(ShardKey { node, shard: 0 }) else { return ReclaimStep::Stuck };
        let word = |word| shard.background(word);
        let (priority, fruitless) = (word(BackgroundWord::Priority), word(BackgroundWord::Fruitless));
        let found = priority.load(Ordering::Relaxed);
        self.yard().compaction().announce_reclaimer(node);
        let level = if found == ASLEEP && !self.is_boosted(node) { WatermarkLevel::Low } else { WatermarkLevel::High };
        let Some(highest_zone) = self.short_of_pages(node, level).or_else(|| self.short_of_room(node, level)) else {
            self.yard().compaction().take_boosts_back(node);
            priority.store(ASLEEP, Ordering::Relaxed);
            return ReclaimStep::Idle;
        };
        let at = if found == ASLEEP {
            self.count(VmCounter::Pageoutrun, 1);
            fruitless.store(0, Ordering::Relaxed);
            self.lru_drain();
            FIRST_PRIORITY
        } else {
            (found - 1).min(u64::from(FIRST_PRIORITY)) as u32
        };
        let (caller, wanted) = (Caller::Background, PageCount(4 * CLUSTER));
        let done = self.shrink_node(&Scan { caller, node, highest_zone, priority: at, wanted, most: Some(STEP) });
        let next = if done.freed.0 < CLUSTER { at.saturating_sub(1) } else { at };
        priority.store(u64::from(next) + 1, Ordering::Relaxed);
        if done.freed.0 > 0 {
            fruitless.store(0, Ordering::Relaxed);
        } else if self.is_fruitless(node, at, fruitless, done.scanned) {
            self.yard().compaction().take_boosts_back(node);
            priority.store(ASLEEP, Ordering::Relaxed);
            return ReclaimStep::Stuck;
        }
        ReclaimStep::Progress(done.freed)
    }

    /// Whether watermarks of the node are boosted, because pageblocks mix types.
    fn is_boosted(&self, node: NodeId) -> bool {
        self.yard().stats().zones().any(|zone| zone.id.node() == node && zone.watermarks.boost.0 > 0)
    }

    /// Whether all file pages were scanned without success since the last was freed.
    fn is_fruitless(&self, node: NodeId, priority: u32, fruitless: &AtomicU64, scanned: PageCount) -> bool {
        let sum = fruitless.load(Ordering::Relaxed).saturating_add(scanned.0);
        fruitless.store(sum, Ordering::Relaxed);
        let pages = self.pages_on(node, LruList::InactiveFile) + self.pages_on(node, LruList::ActiveFile);
        priority == 0 && (sum >= pages.0 || scanned.0 == 0)
    }

    /// The highest zone kind of requests that find no zone of this node above the watermark.
    ///
    /// After the kernel's `pgdat_balanced`: one zone that may serve the request is enough, less its protection.
    fn short_of_pages(&self, node: NodeId, level: WatermarkLevel) -> Option<ZoneKind> {
        let zones = || self.yard().stats().zones().filter(move |zone| zone.id.node() == node);
        ZoneKind::ALL.into_iter().rev().find(|highest| {
            let is_there = zones().any(|zone| zone.id.kind() == *highest);
            let suffices = |zone: ZoneStatistics| {
                zone.free.0 > zone.watermarks.level(level).0 + zone.protection[*highest as usize].0
            };
            is_there && !zones().filter(|zone| zone.id.kind() <= *highest).any(suffices)
        })
    }

    /// The highest kind of the zones of this node with too few whole pageblocks in stock and too few free pages for the compactor to make
    /// more. `None` while the yard keeps no stock.
    fn short_of_room(&self, node: NodeId, level: WatermarkLevel) -> Option<ZoneKind> {
        let yard = self.yard();
        if yard.defrag_mode() == DefragMode::Off {
            return None;
        }
        let zones = yard.stats().zones().filter(|zone| zone.id.node() == node);
        let is_short = |zone: &ZoneStatistics| {
            yard.zone(zone.id).stock().is_some_and(|stock| {
                let wanted = if level == WatermarkLevel::Low { stock.low } else { stock.high };
                stock.free < wanted && zone.free < stock.room
            })
        };
        zones.filter(is_short).map(|zone| zone.id.kind()).max()
    }

    /// Runs one step of a node's background compactor
    /// ([`YardCompaction::background`](frameyard::views::YardCompaction::background)) with the owners of this view.
    pub fn compact_step(&self, node: NodeId) -> Option<CompactOutcome> {
        self.yard().compaction().background(node, &self.owners())
    }
}
