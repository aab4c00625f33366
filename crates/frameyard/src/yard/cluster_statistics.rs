//! What is counted of clusters, of merging that is put off, and of who waits for it. Racy, like all statistics.

use super::Yard;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{MigrateType, PageCount, ZoneId};

/// Drains of single pages of one type, under a policy that lets them enter a zone as one cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClusterDrains {
    /// What a drain took from a list at once.
    pub drains: u64,
    /// Those of them that were exactly one batch of one type while merging could be skipped: what the published rule takes.
    pub ideal: u64,
    /// Those that entered as one cluster.
    pub whole: u64,
}

/// What is counted at the border of a zone by policies that put merging off or move clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClusterStatistics {
    /// Clusters that there can be.
    pub clusters: u64,
    /// Pages that one can have.
    pub limit: u64,
    /// Clusters in use.
    pub in_use: u64,
    /// Times that a page got no cluster because all were in use.
    pub used_up: u64,
    /// Pages on free lists that were freed without merging and not merged since.
    pub unmerged: PageCount,
    /// Frees that did not look at the buddy.
    pub skipped_merges: u64,
    /// Pages merged later, when somebody needed it.
    pub later_merges: u64,
    /// Clusters cut off their lists by refills.
    pub cuts: u64,
    /// The pages that they had.
    pub cut_pages: u64,
    /// Drains, by the type of the first page's pageblock; the last for types without per-CPU lists.
    pub drains: [ClusterDrains; MigrateType::PER_CPU + 1],
    /// Suspensions that had to wait for cuts in progress.
    pub waits: u64,
    /// How often they looked.
    pub wait_rounds: u64,
    /// Those that gave up.
    pub stalls: u64,
}

impl<P: Platform> Yard<P> {
    /// What is counted of clusters and unmerged pages in a zone; nothing where there is no such zone. No lock is taken.
    pub fn cluster_statistics(&self, zone: ZoneId) -> ClusterStatistics {
        let Some(zone) = self.tables.zones.get(zone.index()) else { return ClusterStatistics::default() };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (clusters, counters) = (zone.clusters(), &zone.crossing.counters);
        ClusterStatistics {
            clusters: clusters.count().into(),
            limit: clusters.limit() as u64,
            in_use: clusters.used_racy().into(),
            used_up: clusters.used_up(),
            unmerged: PageCount(clusters.skipped_racy()),
            skipped_merges: read(&counters.skipped_merges),
            later_merges: read(&counters.later_merges),
            cuts: read(&counters.cuts),
            cut_pages: read(&counters.cut_pages),
            drains: counters.drains.each_ref().map(|of| ClusterDrains {
                drains: read(&of.drains),
                ideal: read(&of.ideal),
                whole: read(&of.whole),
            }),
            waits: read(&counters.waits),
            wait_rounds: read(&counters.wait_rounds),
            stalls: read(&counters.stalls),
        }
    }
}
