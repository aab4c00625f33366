//! The background reclaimer of a node, in steps of bounded length: what the kernel's kswapd does.

use frameyard::compaction::CompactOutcome;
use frameyard::sync::{AtomicU64, Ordering};
use frameyard::units::ZoneKind;
use frameyard::watermarks::WatermarkLevel;
use frameyard::{NodeId, PageCount, Platform};

use super::scan::Scan;
use super::{CLUSTER, Caller, FIRST_PRIORITY};
use crate::counters::VmCounter;
use crate::lru::{BackgroundWord, LruList, ShardKey};
use crate::vm::Vm;

/// How many pages a step looks at, at the most.
const STEP: PageCount = PageCount(32 * CLUSTER);
/// What the word of the priority holds while the reclaimer sleeps; else it is the priority plus 1.
const ASLEEP: u64 = 0;

/// What a step of a node's background reclaimer came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReclaimStep {
    /// The node has enough free pages: nothing to do until some are allocated.
    Idle,
    /// So many pages were freed, perhaps none yet, and there is more to do.
    Progress(PageCount),
    /// The node has too few free pages, and all its pages were looked at without finding one that can be dropped.
    Stuck,
}

impl<P: Platform> Vm<'_, P> {
    /// One step of a node's background reclaimer: whoever has a thread for it calls this again and again, and waits a while
    /// after [`Idle`](ReclaimStep::Idle) and [`Stuck`](ReclaimStep::Stuck).
    ///
    /// It begins when requests find no zone of the node above its low watermark, or when watermarks were boosted because
    /// pageblocks came to hold frames of several types. It ends when requests find a zone above the high watermark, the
    /// boost included; then the boost is taken back, and the background compactor makes whole pageblocks of what is free.
    /// After the kernel's `balance_pgdat`. Looks at 1024 pages of inactive lists of files at the most, and as many active;
    /// and ages as many pages of spaces, which stay. A node that does not exist has nothing to do.
    pub fn reclaim_step(&self, node: NodeId) -> ReclaimStep {
        if node.0 >= self.yard().nodes() {
            return ReclaimStep::Idle;
        }
        let word = |word| self.shard(ShardKey { node, shard: 0 }).background(word);
        let (priority, fruitless) = (word(BackgroundWord::Priority), word(BackgroundWord::Fruitless));
        let found = priority.load(Ordering::Relaxed);
        self.yard().announce_reclaimer(node);
        let level = if found == ASLEEP && !self.is_boosted(node) { WatermarkLevel::Low } else { WatermarkLevel::High };
        let Some(highest_zone) = self.short_of_pages(node, level) else {
            self.yard().take_boosts_back(node);
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
        } else if self.is_fruitless(node, at, fruitless, done.looked_at) {
            self.yard().take_boosts_back(node);
            priority.store(ASLEEP, Ordering::Relaxed);
            return ReclaimStep::Stuck;
        }
        ReclaimStep::Progress(done.freed)
    }

    /// Whether watermarks of the node are lifted, because pageblocks came to hold frames of several types.
    fn is_boosted(&self, node: NodeId) -> bool {
        self.yard().zones().any(|zone| zone.id.node() == node && zone.watermarks.boost.0 > 0)
    }

    /// Whether all pages of files have been looked at for nothing since the last was freed.
    fn is_fruitless(&self, node: NodeId, priority: u32, fruitless: &AtomicU64, looked_at: PageCount) -> bool {
        let sum = fruitless.load(Ordering::Relaxed) + looked_at.0;
        fruitless.store(sum, Ordering::Relaxed);
        let pages = self.pages_on(node, LruList::InactiveFile) + self.pages_on(node, LruList::ActiveFile);
        priority == 0 && (sum >= pages.0 || looked_at.0 == 0)
    }

    /// The highest kind of zone that requests can ask this node for without finding one above the watermark.
    ///
    /// After the kernel's `pgdat_balanced`: of the zones that may serve a request one is enough, less what is kept from it.
    fn short_of_pages(&self, node: NodeId, level: WatermarkLevel) -> Option<ZoneKind> {
        let zones = || self.yard().zones().filter(move |zone| zone.id.node() == node);
        ZoneKind::ALL.into_iter().rev().find(|highest| {
            let is_there = zones().any(|zone| zone.id.kind() == *highest);
            let suffices = |zone: frameyard::stats::ZoneStatistics| {
                zone.free.0 > zone.watermarks.level(level).0 + zone.protection[*highest as usize].0
            };
            is_there && !zones().filter(|zone| zone.id.kind() <= *highest).any(suffices)
        })
    }

    /// One step of a node's background compactor ([`Yard::compact_background`](frameyard::Yard::compact_background)), which
    /// moves what this view owns.
    pub fn compact_step(&self, node: NodeId) -> Option<CompactOutcome> {
        self.yard().compact_background(node, &self.owners())
    }
}
