//! The counters of clusters.

use crate::store::statistics::{counters, read};
use crate::sync::{AtomicU64, all_atomic};
use crate::units::MigrateType;

/// What clusters count for one CPU.
#[derive(Default)]
pub(in crate::store::published) struct Counts {
    /// Clusters that refills detached from their lists.
    pub(super) detachments: AtomicU64,
    /// Their pages.
    pub(super) detached_pages: AtomicU64,
    /// Batches that drains took from a list at once, by the type of the first page's pageblock; the last entry for types without
    /// per-CPU lists. Counted by a policy that splices them in as one cluster, like the two below.
    pub(super) drains: [AtomicU64; MigrateType::PER_CPU + 1],
    /// The part of them that was exactly one batch of one type while merging could be skipped: what the published rule takes.
    pub(super) full_batches: [AtomicU64; MigrateType::PER_CPU + 1],
    /// The part of them that was spliced in as one cluster.
    pub(super) spliced: [AtomicU64; MigrateType::PER_CPU + 1],
}

all_atomic!(Counts { detachments, detached_pages, drains, full_batches, spliced });

counters! { |view, counts, cpu|
    let of = cpu.is_none().then(|| view.clusters());
    "clusters_max" Gauge of Zone "The largest possible number of clusters." = of.count().into();
    "cluster_pages_max" Gauge of Zone "The largest possible number of page frames in a cluster." = of.limit() as u64;
    "clusters_in_use" Gauge of Zone "Clusters in use." = of.used_racy().into();
    "clusters_used_up" Counter of Zone "Times no cluster was free for page frames that could have used one." = of.used_up();
    let of = Some(&counts.clusters);
    "cluster_cuts" Counter of Cpu "Clusters that refills detached." = read(&of.detachments);
    "cluster_cut_pages" Counter of Cpu "Page frames of the clusters that refills detached." = read(&of.detached_pages);
    "overflow_drains_unmovable" ["overflow_drains" "unmovable"] Counter of Cpu
        "Drains of an overflowing list of single page frames, by the type of the first; counted by cluster-bulk."
        = read(&of.drains[0]);
    "overflow_drains_movable" ["overflow_drains" "movable"] Counter of Cpu
        "Drains of an overflowing list of single page frames, by the type of the first; counted by cluster-bulk."
        = read(&of.drains[1]);
    "overflow_drains_reclaimable" ["overflow_drains" "reclaimable"] Counter of Cpu
        "Drains of an overflowing list of single page frames, by the type of the first; counted by cluster-bulk."
        = read(&of.drains[2]);
    "overflow_drains_other" ["overflow_drains" "other"] Counter of Cpu
        "Drains of an overflowing list of single page frames, by the type of the first; counted by cluster-bulk."
        = read(&of.drains[3]);
    "full_batch_drains_unmovable" ["full_batch_drains" "unmovable"] Counter of Cpu
        "Overflow drains of one batch of one type while merging can be deferred: the ideal case." = read(&of.full_batches[0]);
    "full_batch_drains_movable" ["full_batch_drains" "movable"] Counter of Cpu
        "Overflow drains of one batch of one type while merging can be deferred: the ideal case." = read(&of.full_batches[1]);
    "full_batch_drains_reclaimable" ["full_batch_drains" "reclaimable"] Counter of Cpu
        "Overflow drains of one batch of one type while merging can be deferred: the ideal case." = read(&of.full_batches[2]);
    "full_batch_drains_other" ["full_batch_drains" "other"] Counter of Cpu
        "Overflow drains of one batch of one type while merging can be deferred: the ideal case." = read(&of.full_batches[3]);
    "cluster_drains_unmovable" ["cluster_drains" "unmovable"] Counter of Cpu
        "Overflow drains that the zone spliced as one cluster." = read(&of.spliced[0]);
    "cluster_drains_movable" ["cluster_drains" "movable"] Counter of Cpu
        "Overflow drains that the zone spliced as one cluster." = read(&of.spliced[1]);
    "cluster_drains_reclaimable" ["cluster_drains" "reclaimable"] Counter of Cpu
        "Overflow drains that the zone spliced as one cluster." = read(&of.spliced[2]);
    "cluster_drains_other" ["cluster_drains" "other"] Counter of Cpu
        "Overflow drains that the zone spliced as one cluster." = read(&of.spliced[3]);
}
