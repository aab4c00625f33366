//! The metrics: name, kind, description, and place in a row.

use super::MetricsRow;

/// Whether a metric can fall.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MetricKind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// The entity that a metric is counted for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MetricScope {
    /// Each zone and CPU, and transfers that bypassed the per-CPU lists.
    Cpu,
    /// Each zone. In the row without a CPU.
    Zone,
}

macro_rules! metrics {
    ($(
        $variant:ident $name:literal $([$family:literal $label:literal])? $kind:ident of $scope:ident
            $help:literal |$row:ident| $value:expr;
    )*) => {
        /// A value counted per zone, in most cases also per CPU.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Metric {
            $(#[doc = $help] $variant,)*
        }

        impl Metric {
            /// All metrics, in output order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in text and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The family: the same metric for each migration type, or [`name`](Self::name) if it has no type. Families are
            /// adjacent in [`ALL`](Self::ALL). The Prometheus name is `frameyard_` and the family, with `_total` for a
            /// counter.
            #[must_use]
            pub const fn family(self) -> &'static str {
                match self { $(Self::$variant => [$name $(, $family)?][[$name $(, $family)?].len() - 1]),* }
            }

            /// The migration type within the family; `other` is any type without per-CPU lists.
            #[must_use]
            pub const fn migrate_type(self) -> Option<&'static str> {
                match self { $(Self::$variant => [None $(, Some($label))?][[$name $(, $label)?].len() - 1]),* }
            }

            /// Whether it can fall.
            #[must_use]
            pub const fn kind(self) -> MetricKind {
                match self { $(Self::$variant => MetricKind::$kind),* }
            }

            /// The entity that it is counted for.
            #[must_use]
            pub const fn scope(self) -> MetricScope {
                match self { $(Self::$variant => MetricScope::$scope),* }
            }

            /// A one-line description, equal within a family.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }

            /// Its value in a row; `None` if the row has none.
            #[must_use]
            pub fn value(self, row: &MetricsRow) -> Option<u64> {
                match self { $(Self::$variant => { let $row = row; $value })* }
            }
        }
    };
}

metrics! {
    Acquisitions "zone_lock_acquisitions" Counter of Cpu
        "Acquisitions of the zone lock."
        |row| Some(row.lock.uses.acquisitions);
    Contended "zone_lock_contended" Counter of Cpu
        "Acquisitions of the zone lock that had to wait."
        |row| Some(row.lock.uses.contended);
    PagesMoved "zone_lock_pages_moved" Counter of Cpu
        "Page frames moved under the zone lock, in either direction."
        |row| Some(row.lock.pages_moved);
    PcpPages "pcp_pages" Gauge of Cpu
        "Page frames on per-CPU lists."
        |row| row.lists.map(|lists| lists.pages.0);
    PcpRefills "pcp_refills" Counter of Cpu
        "Batches that per-CPU lists fetched from the zone."
        |row| row.lists.map(|lists| lists.refills);
    PcpDrains "pcp_drains" Counter of Cpu
        "Batches that per-CPU lists returned to the zone."
        |row| row.lists.map(|lists| lists.drains);
    SkippedMerges "skipped_merges" Counter of Cpu
        "Page frames freed without a merge attempt."
        |row| Some(row.transfer.skipped_merges);
    LaterMerges "later_merges" Counter of Cpu
        "Deferred merges, made later on demand."
        |row| Some(row.transfer.later_merges);
    UnmergedPages "unmerged_pages" Gauge of Zone
        "Page frames on free lists whose merge is deferred."
        |row| row.shared.map(|shared| shared.clusters.unmerged.0);
    ClustersMax "clusters_max" Gauge of Zone
        "The largest possible number of clusters."
        |row| row.shared.map(|shared| shared.clusters.clusters);
    ClustersInUse "clusters_in_use" Gauge of Zone
        "Clusters in use."
        |row| row.shared.map(|shared| shared.clusters.in_use);
    ClustersUsedUp "clusters_used_up" Counter of Zone
        "Times no cluster was free for page frames that could have used one."
        |row| row.shared.map(|shared| shared.clusters.used_up);
    ClusterCuts "cluster_cuts" Counter of Cpu
        "Clusters that refills detached."
        |row| Some(row.transfer.detachments);
    ClusterCutPages "cluster_cut_pages" Counter of Cpu
        "Page frames of the clusters that refills detached."
        |row| Some(row.transfer.detached_pages);
    CutWaits "cut_waits" Counter of Zone
        "Waits for detaches in progress, or for other collectors of the depot."
        |row| row.shared.map(|shared| shared.clusters.waits);
    CutWaitRounds "cut_wait_rounds" Counter of Zone
        "Polls during waits for detaches in progress."
        |row| row.shared.map(|shared| shared.clusters.wait_rounds);
    CutStalls "cut_stalls" Counter of Zone
        "Abandoned waits for detaches in progress."
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
        "Overflow drains of one batch of one type while merging can be deferred: the ideal case."
        |row| Some(row.transfer.drains[0].ideal);
    FullBatchDrainsMovable "full_batch_drains_movable" ["full_batch_drains" "movable"] Counter of Cpu
        "Overflow drains of one batch of one type while merging can be deferred: the ideal case."
        |row| Some(row.transfer.drains[1].ideal);
    FullBatchDrainsReclaimable "full_batch_drains_reclaimable" ["full_batch_drains" "reclaimable"] Counter of Cpu
        "Overflow drains of one batch of one type while merging can be deferred: the ideal case."
        |row| Some(row.transfer.drains[2].ideal);
    FullBatchDrainsOther "full_batch_drains_other" ["full_batch_drains" "other"] Counter of Cpu
        "Overflow drains of one batch of one type while merging can be deferred: the ideal case."
        |row| Some(row.transfer.drains[3].ideal);
    ClusterDrainsUnmovable "cluster_drains_unmovable" ["cluster_drains" "unmovable"] Counter of Cpu
        "Overflow drains that the zone spliced as one cluster."
        |row| Some(row.transfer.drains[0].whole);
    ClusterDrainsMovable "cluster_drains_movable" ["cluster_drains" "movable"] Counter of Cpu
        "Overflow drains that the zone spliced as one cluster."
        |row| Some(row.transfer.drains[1].whole);
    ClusterDrainsReclaimable "cluster_drains_reclaimable" ["cluster_drains" "reclaimable"] Counter of Cpu
        "Overflow drains that the zone spliced as one cluster."
        |row| Some(row.transfer.drains[2].whole);
    ClusterDrainsOther "cluster_drains_other" ["cluster_drains" "other"] Counter of Cpu
        "Overflow drains that the zone spliced as one cluster."
        |row| Some(row.transfer.drains[3].whole);
    CrossCpuFrees "cross_cpu_frees" Counter of Cpu
        "Page frames of CPU-owned pageblocks freed by a CPU other than the owner; counted for the owner, by owned-blocks."
        |row| row.owned.map(|owned| owned.remote_pages_freed.0);
    OwnedLocalFrees "owned_pages_freed_local" Counter of Cpu
        "Page frames of CPU-owned pageblocks freed by the owner."
        |row| row.owned.map(|owned| owned.local_pages_freed.0);
    OwnedPagesTaken "owned_pages_taken" Counter of Cpu
        "Page frames that per-CPU lists took from CPU-owned pageblocks."
        |row| row.owned.map(|owned| owned.pages_taken.0);
    OwnedPageblocks "owned_pageblocks" Gauge of Cpu
        "CPU-owned pageblocks."
        |row| row.owned.map(|owned| owned.pageblocks);
    OwnedFreePages "owned_free_pages" Gauge of Cpu
        "Free page frames in CPU-owned pageblocks."
        |row| row.owned.map(|owned| owned.free.0);
    OwnedClaims "owned_claims" Counter of Cpu
        "Pageblocks claimed by a CPU."
        |row| row.owned.map(|owned| owned.claims);
    OwnedReturns "owned_returns" Counter of Cpu
        "CPU-owned pageblocks that returned to the zone whole."
        |row| row.owned.map(|owned| owned.returns);
    OwnedGivenUp "owned_given_up" Counter of Cpu
        "CPU-owned pageblocks released early, because their free frames were needed or too many."
        |row| row.owned.map(|owned| owned.given_up);
    OwnedMerges "owned_merges" Counter of Cpu
        "Merges of buddies in CPU-owned pageblocks."
        |row| row.owned.map(|owned| owned.merges);
    OwnedAcquisitions "owned_lock_acquisitions" Counter of Cpu
        "Acquisitions of an owner's lock."
        |row| row.owned.map(|owned| owned.lock.acquisitions);
    OwnedContended "owned_lock_contended" Counter of Cpu
        "Acquisitions of an owner's lock that had to wait."
        |row| row.owned.map(|owned| owned.lock.contended);
    DepotBatches "depot_batches" Gauge of Zone
        "Batches in the depot."
        |row| row.shared.map(|shared| shared.depot.batches);
    DepotPushes "depot_pushes" Counter of Zone
        "Batches pushed onto a stack of the depot."
        |row| row.shared.map(|shared| shared.depot.pushed);
    DepotPops "depot_pops" Counter of Zone
        "Batches popped from a stack of the depot by refills."
        |row| row.shared.map(|shared| shared.depot.popped);
    DepotSteals "depot_steals" Counter of Zone
        "Batches popped from the stack of another CPU group."
        |row| row.shared.map(|shared| shared.depot.stolen);
    DepotOverflows "depot_overflows" Counter of Zone
        "Batches pushed onto the zone's common stack because the group's was full."
        |row| row.shared.map(|shared| shared.depot.overflowed);
    DepotCollected "depot_collected" Counter of Zone
        "Batches returned from the depot to the free lists."
        |row| row.shared.map(|shared| shared.depot.collected);
    DepotRetries "depot_retries" Counter of Zone
        "Compare-exchanges on a stack of the depot that failed and were retried."
        |row| row.shared.map(|shared| shared.depot.retries);
}
