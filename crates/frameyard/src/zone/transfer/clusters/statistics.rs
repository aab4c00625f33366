//! Statistics of clusters and of deferred merges. Possibly stale, like all statistics.

use crate::units::{MigrateType, PageCount};

/// Drains of single pages of one type, under a policy that splices them into a zone as one cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ClusterDrains {
    /// Batches that drains took from a list at once.
    pub drains: u64,
    /// The part of them that was exactly one batch of one type while merging could be skipped: what the published rule takes.
    pub ideal: u64,
    /// The part of them that was spliced in as one cluster.
    pub whole: u64,
}

impl ClusterDrains {
    /// The sum of two counts.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            drains: self.drains.wrapping_add(other.drains),
            ideal: self.ideal.wrapping_add(other.ideal),
            whole: self.whole.wrapping_add(other.whole),
        }
    }
}

/// Clusters and deferred merges of one zone, and waits for transfers in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClusterStatistics {
    /// Cluster records.
    pub clusters: u64,
    /// The most pages in a cluster.
    pub limit: u64,
    /// Cluster records in use.
    pub in_use: u64,
    /// Times that a page got no cluster because all records were in use.
    pub used_up: u64,
    /// Pages on free lists that were freed without merging and have not merged since.
    pub unmerged: PageCount,
    /// Frees without a look at the buddy.
    pub skipped_merges: u64,
    /// Pages merged later, when a caller needed it.
    pub later_merges: u64,
    /// Clusters that refills detached from their lists.
    pub detachments: u64,
    /// Their pages.
    pub detached_pages: u64,
    /// Drains, by the type of the first page's pageblock; the last entry for types without per-CPU lists.
    pub drains: [ClusterDrains; MigrateType::PER_CPU + 1],
    /// Waits for detachments in progress, or for CPUs that collect batches of the depot.
    pub waits: u64,
    /// Looks during these waits.
    pub wait_rounds: u64,
    /// Waits that gave up.
    pub stalls: u64,
}

pub(in crate::zone::transfer) use counts::Counts;

mod counts {
    use super::{ClusterDrains, ClusterStatistics};
    use crate::sync::{AtomicU64, Ordering, all_atomic};
    use crate::units::MigrateType;
    use crate::zone::transfer::clusters::list::State;

    /// What clusters count for one CPU.
    #[derive(Default)]
    pub(in crate::zone::transfer) struct Counts {
        pub(in crate::zone::transfer::clusters) detachments: AtomicU64,
        pub(in crate::zone::transfer::clusters) detached_pages: AtomicU64,
        /// By the type of the first page's pageblock; the last entry for types without per-CPU lists.
        pub(in crate::zone::transfer::clusters) drains: [DrainCounts; MigrateType::PER_CPU + 1],
    }

    all_atomic!(Counts { detachments, detached_pages, drains });

    /// [`ClusterDrains`], being counted.
    #[derive(Default)]
    pub(in crate::zone::transfer::clusters) struct DrainCounts {
        pub(in crate::zone::transfer::clusters) drains: AtomicU64,
        pub(in crate::zone::transfer::clusters) ideal: AtomicU64,
        pub(in crate::zone::transfer::clusters) whole: AtomicU64,
    }

    all_atomic!(DrainCounts { drains, ideal, whole });

    fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    impl Counts {
        /// Detached clusters and their pages.
        pub(in crate::zone::transfer) fn detached(&self) -> (u64, u64) {
            (read(&self.detachments), read(&self.detached_pages))
        }

        pub(in crate::zone::transfer) fn drains(&self) -> [ClusterDrains; MigrateType::PER_CPU + 1] {
            self.drains.each_ref().map(|counts| ClusterDrains {
                drains: read(&counts.drains),
                ideal: read(&counts.ideal),
                whole: read(&counts.whole),
            })
        }
    }

    impl State {
        pub(in crate::zone::transfer) fn add_to(&self, statistics: &mut ClusterStatistics) {
            statistics.clusters = self.count().into();
            statistics.limit = self.limit() as u64;
            statistics.in_use = self.used_racy().into();
            statistics.used_up = self.used_up();
        }
    }
}
