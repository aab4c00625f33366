//! The values of one run of any workload.

use frameyard::locks::LockUse;
use frameyard_workloads::alloc::{AllocRun, AllocWorkload};
use frameyard_workloads::counts::{Counts, Drains};
use frameyard_workloads::held::HeldPages;
use frameyard_workloads::transfer::TransferCounts;

/// Requests for huge blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct HighOrder {
    /// The share that succeeded.
    pub(super) success: f64,
    /// Nanoseconds for each.
    pub(super) ns: f64,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sample {
    /// Operations of the tasks in a second, by kind of task.
    pub(super) rates: Vec<(Option<&'static str>, f64)>,
    /// Frames that were allocated and freed.
    pub(super) pages: u64,
    /// The locks of zones.
    pub(super) zone_lock: LockUse,
    /// The locks of LRU lists, if the workload has any.
    pub(super) lru_lock: Option<LockUse>,
    /// Drains under a policy that lets a drain enter a zone as one cluster.
    pub(super) drains: Drains,
    /// Whether times at locks were measured.
    pub(super) locks_are_timed: bool,
    /// Nanoseconds of an allocation and of a free, where each was timed.
    pub(super) get_put_ns: Option<(f64, f64)>,
    /// If the workload requests huge blocks.
    pub(super) high_order: Option<HighOrder>,
    /// Frames on per-CPU lists, if they were counted.
    pub(super) held: Option<HeldPages>,
    /// Refills and drains, if they were measured separately.
    pub(super) transfers: Vec<TransferCounts>,
}

impl Sample {
    /// A run of a workload whose pages have owners.
    pub(super) fn of(rates: Vec<(Option<&'static str>, f64)>, counts: &Counts) -> Self {
        Self {
            rates,
            pages: counts.pages(),
            zone_lock: counts.zone_lock,
            lru_lock: Some(counts.lru_lock),
            drains: counts.drains,
            locks_are_timed: counts.locks_are_timed,
            ..Self::default()
        }
    }

    /// A run of `alloc`. An operation is an allocation and a free. Locks count as untimed.
    pub(super) fn of_alloc(workload: &AllocWorkload, run: &AllocRun) -> Self {
        let pairs = f64::from(workload.tasks.get()) * 1e9 / (run.get_ns + run.put_ns);
        Self {
            rates: vec![(Some(workload.kind.name()), pairs)],
            pages: run.pages_allocated,
            zone_lock: run.zone_lock,
            get_put_ns: Some((run.get_ns, run.put_ns)),
            ..Self::default()
        }
    }
}
