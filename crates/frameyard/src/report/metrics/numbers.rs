//! The numbers that are metrics: their names, what they mean, and where in a row they stand.

use super::MetricsRow;

/// How a metric changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MetricKind {
    /// It only rises.
    Counter,
    /// It rises and falls.
    Gauge,
}

/// For what a metric is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MetricScope {
    /// For each zone and CPU. What did without the lists of a CPU may have some of it, too.
    Cpu,
    /// For each zone. It stands in the row without a CPU.
    Zone,
}

macro_rules! metrics {
    ($(
        $variant:ident $name:literal $([$family:literal $label:literal])? $kind:ident of $scope:ident
            $help:literal |$row:ident| $value:expr;
    )*) => {
        /// A number that is counted for each zone, and most for each CPU there.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Metric {
            $(#[doc = $help] $variant,)*
        }

        impl Metric {
            /// All of them, in the order in which they are written.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in text and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The name of the family in which those of other migration types are; [`name`](Self::name) where it is not
            /// told by type. Families stand together in [`ALL`](Self::ALL). Prometheus has the family with `frameyard_`
            /// before it and, where it is a counter, `_total` behind it.
            #[must_use]
            pub const fn family(self) -> &'static str {
                match self { $(Self::$variant => [$name $(, $family)?][[$name $(, $family)?].len() - 1]),* }
            }

            /// The migration type that it is of, as it is told from others of the family; `other` is any that has no
            /// per-CPU lists.
            #[must_use]
            pub const fn migrate_type(self) -> Option<&'static str> {
                match self { $(Self::$variant => [None $(, Some($label))?][[$name $(, $label)?].len() - 1]),* }
            }

            /// How it changes.
            #[must_use]
            pub const fn kind(self) -> MetricKind {
                match self { $(Self::$variant => MetricKind::$kind),* }
            }

            /// For what it is counted.
            #[must_use]
            pub const fn scope(self) -> MetricScope {
                match self { $(Self::$variant => MetricScope::$scope),* }
            }

            /// What it means, in one line; the same for all of a family.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }

            /// Its value in a row; `None` where rows of that sort have none.
            #[must_use]
            pub fn value(self, row: &MetricsRow) -> Option<u64> {
                match self { $(Self::$variant => { let $row = row; $value })* }
            }
        }
    };
}

metrics! {
    Acquisitions "zone_lock_acquisitions" Counter of Cpu
        "Times the zone lock was taken."
        |row| Some(row.lock.uses.acquisitions);
    Contended "zone_lock_contended" Counter of Cpu
        "Times somebody else held the zone lock when it was asked for."
        |row| Some(row.lock.uses.contended);
    PagesMoved "zone_lock_pages_moved" Counter of Cpu
        "Page frames that crossed the zone lock, either way."
        |row| Some(row.lock.pages_moved);
    PcpPages "pcp_pages" Gauge of Cpu
        "Page frames on per-CPU lists."
        |row| row.lists.map(|lists| lists.pages.0);
    PcpRefills "pcp_refills" Counter of Cpu
        "Batches that per-CPU lists fetched from the zone."
        |row| row.lists.map(|lists| lists.traffic.refills);
    PcpDrains "pcp_drains" Counter of Cpu
        "Batches that per-CPU lists gave back to the zone."
        |row| row.lists.map(|lists| lists.traffic.drains);
    SkippedMerges "skipped_merges" Counter of Cpu
        "Page frames freed without a look at their buddies."
        |row| Some(row.transfer.skipped_merges);
    LaterMerges "later_merges" Counter of Cpu
        "Merges of page frames that had skipped it, made later, on demand."
        |row| Some(row.transfer.later_merges);
    UnmergedPages "unmerged_pages" Gauge of Zone
        "Page frames on free lists that skipped merging and have not been merged since."
        |row| row.shared.map(|shared| shared.clusters.unmerged.0);
    ClustersMax "clusters_max" Gauge of Zone
        "Clusters that there can be."
        |row| row.shared.map(|shared| shared.clusters.clusters);
    ClustersInUse "clusters_in_use" Gauge of Zone
        "Clusters in use."
        |row| row.shared.map(|shared| shared.clusters.in_use);
    ClustersUsedUp "clusters_used_up" Counter of Zone
        "Times no cluster was left for page frames that could have had one."
        |row| row.shared.map(|shared| shared.clusters.used_up);
    ClusterCuts "cluster_cuts" Counter of Cpu
        "Clusters that refills cut off their lists."
        |row| Some(row.transfer.detachments);
    ClusterCutPages "cluster_cut_pages" Counter of Cpu
        "Page frames of the clusters that refills cut off their lists."
        |row| Some(row.transfer.detached_pages);
    CutWaits "cut_waits" Counter of Zone
        "Waits for cuts in progress, or for others who take batches out of the depot."
        |row| row.shared.map(|shared| shared.clusters.waits);
    CutWaitRounds "cut_wait_rounds" Counter of Zone
        "Looks that waits for cuts in progress took."
        |row| row.shared.map(|shared| shared.clusters.wait_rounds);
    CutStalls "cut_stalls" Counter of Zone
        "Waits for cuts in progress that were given up."
        |row| row.shared.map(|shared| shared.clusters.stalls);
    OverflowDrainsUnmovable "overflow_drains_unmovable" ["overflow_drains" "unmovable"] Counter of Cpu
        "Drains of an overflowing list of single page frames, by the type of the first; counted by cluster-bulk."
        |row| Some(row.transfer.drains[0].drains);
    OverflowDrainsMovable "overflow_drains_movable" ["overflow_drains" "movable"] Counter of Cpu
        "Drains of an overflowing list of single page frames, by the type of the first; counted by cluster-bulk."
        |row| Some(row.transfer.drains[1].drains);
    OverflowDrainsReclaimable "overflow_drains_reclaimable" ["overflow_drains" "reclaimable"] Counter of Cpu
        "Drains of an overflowing list of single page frames, by the type of the first; counted by cluster-bulk."
        |row| Some(row.transfer.drains[2].drains);
    OverflowDrainsOther "overflow_drains_other" ["overflow_drains" "other"] Counter of Cpu
        "Drains of an overflowing list of single page frames, by the type of the first; counted by cluster-bulk."
        |row| Some(row.transfer.drains[3].drains);
    FullBatchDrainsUnmovable "full_batch_drains_unmovable" ["full_batch_drains" "unmovable"] Counter of Cpu
        "Those of overflow_drains that were one batch of one type while merging could be skipped: the ideal case."
        |row| Some(row.transfer.drains[0].ideal);
    FullBatchDrainsMovable "full_batch_drains_movable" ["full_batch_drains" "movable"] Counter of Cpu
        "Those of overflow_drains that were one batch of one type while merging could be skipped: the ideal case."
        |row| Some(row.transfer.drains[1].ideal);
    FullBatchDrainsReclaimable "full_batch_drains_reclaimable" ["full_batch_drains" "reclaimable"] Counter of Cpu
        "Those of overflow_drains that were one batch of one type while merging could be skipped: the ideal case."
        |row| Some(row.transfer.drains[2].ideal);
    FullBatchDrainsOther "full_batch_drains_other" ["full_batch_drains" "other"] Counter of Cpu
        "Those of overflow_drains that were one batch of one type while merging could be skipped: the ideal case."
        |row| Some(row.transfer.drains[3].ideal);
    ClusterDrainsUnmovable "cluster_drains_unmovable" ["cluster_drains" "unmovable"] Counter of Cpu
        "Those of overflow_drains that entered the zone as one cluster."
        |row| Some(row.transfer.drains[0].whole);
    ClusterDrainsMovable "cluster_drains_movable" ["cluster_drains" "movable"] Counter of Cpu
        "Those of overflow_drains that entered the zone as one cluster."
        |row| Some(row.transfer.drains[1].whole);
    ClusterDrainsReclaimable "cluster_drains_reclaimable" ["cluster_drains" "reclaimable"] Counter of Cpu
        "Those of overflow_drains that entered the zone as one cluster."
        |row| Some(row.transfer.drains[2].whole);
    ClusterDrainsOther "cluster_drains_other" ["cluster_drains" "other"] Counter of Cpu
        "Those of overflow_drains that entered the zone as one cluster."
        |row| Some(row.transfer.drains[3].whole);
    CrossCpuFrees "cross_cpu_frees" Counter of Cpu
        "Page frames of owned pageblocks freed by another CPU than the owner; counted for the owner, by owned-blocks."
        |row| row.owned.map(|owned| owned.remote_pages_freed.0);
    OwnedLocalFrees "owned_pages_freed_local" Counter of Cpu
        "Page frames that came back to owned pageblocks from the owner."
        |row| row.owned.map(|owned| owned.local_pages_freed.0);
    OwnedPagesTaken "owned_pages_taken" Counter of Cpu
        "Page frames that per-CPU lists got from owned pageblocks."
        |row| row.owned.map(|owned| owned.pages_taken.0);
    OwnedPageblocks "owned_pageblocks" Gauge of Cpu
        "Pageblocks that CPUs own."
        |row| row.owned.map(|owned| owned.pageblocks);
    OwnedFreePages "owned_free_pages" Gauge of Cpu
        "Free page frames in owned pageblocks."
        |row| row.owned.map(|owned| owned.free.0);
    OwnedClaims "owned_claims" Counter of Cpu
        "Pageblocks that became a CPU's."
        |row| row.owned.map(|owned| owned.claims);
    OwnedReturns "owned_returns" Counter of Cpu
        "Owned pageblocks that were whole again and went back to the zone."
        |row| row.owned.map(|owned| owned.returns);
    OwnedGivenUp "owned_given_up" Counter of Cpu
        "Owned pageblocks that were given up, because what was free of them was wanted or too much."
        |row| row.owned.map(|owned| owned.given_up);
    OwnedMerges "owned_merges" Counter of Cpu
        "Pairs of buddies that merged in owned pageblocks."
        |row| row.owned.map(|owned| owned.merges);
    OwnedAcquisitions "owned_lock_acquisitions" Counter of Cpu
        "Times an owner's lock was taken."
        |row| row.owned.map(|owned| owned.lock.acquisitions);
    OwnedContended "owned_lock_contended" Counter of Cpu
        "Times somebody else held an owner's lock when it was asked for."
        |row| row.owned.map(|owned| owned.lock.contended);
    DepotBatches "depot_batches" Gauge of Zone
        "Batches in the depot."
        |row| row.shared.map(|shared| shared.depot.batches);
    DepotPushes "depot_pushes" Counter of Zone
        "Batches pushed on a stack of the depot."
        |row| row.shared.map(|shared| shared.depot.pushed);
    DepotPops "depot_pops" Counter of Zone
        "Batches popped off a stack of the depot, for per-CPU lists."
        |row| row.shared.map(|shared| shared.depot.popped);
    DepotSteals "depot_steals" Counter of Zone
        "Batches popped off the stack of another group of CPUs."
        |row| row.shared.map(|shared| shared.depot.stolen);
    DepotOverflows "depot_overflows" Counter of Zone
        "Batches pushed on the zone's common stack, because that of the group was full."
        |row| row.shared.map(|shared| shared.depot.overflowed);
    DepotCollected "depot_collected" Counter of Zone
        "Batches brought back from the depot to the free lists."
        |row| row.shared.map(|shared| shared.depot.collected);
    DepotRetries "depot_retries" Counter of Zone
        "Exchanges on a stack of the depot that failed, for somebody else was faster, and were made again."
        |row| row.shared.map(|shared| shared.depot.retries);
}
