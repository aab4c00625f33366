//! What is counted of clusters, of merging that is put off, and of who waits for it. Racy, like all statistics.

use super::YardZone;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{MigrateType, PageCount};
use crate::zone::ClusterDrains;

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
    /// Times somebody had to wait for cuts in progress, or for others who took batches out of the depot.
    pub waits: u64,
    /// How often they looked.
    pub wait_rounds: u64,
    /// Those that gave up.
    pub stalls: u64,
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// What is counted of clusters and unmerged pages in a zone, by all CPUs; nothing where there is no such zone. No lock
    /// is taken.
    ///
    /// # Cost
    ///
    /// Reads two lines for each CPU.
    pub fn clusters(self) -> ClusterStatistics {
        let Self { yard, id: zone } = self;
        let Some(of_zone) = yard.tables.zones.get(zone.index()) else { return ClusterStatistics::default() };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (clusters, waits) = (of_zone.clusters(), &of_zone.transfer.waits);
        let transfer = yard.zone(zone).transfers();
        ClusterStatistics {
            clusters: clusters.count().into(),
            limit: clusters.limit() as u64,
            in_use: clusters.used_racy().into(),
            used_up: clusters.used_up(),
            unmerged: PageCount(clusters.skipped_racy()),
            skipped_merges: transfer.skipped_merges,
            later_merges: transfer.later_merges,
            cuts: transfer.cuts,
            cut_pages: transfer.cut_pages,
            drains: transfer.drains,
            waits: read(&waits.waits),
            wait_rounds: read(&waits.rounds),
            stalls: read(&waits.stalls),
        }
    }
}
