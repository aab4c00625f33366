//! What one run gave, whatever its workload.

use frameyard::locks::LockUse;

use frameyard_workloads::alloc::{AllocRun, AllocWorkload};
use frameyard_workloads::counts::{Counts, Drains};
use frameyard_workloads::held::HeldPages;
use frameyard_workloads::transfer::TransferCounts;

/// How requests for huge blocks went.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct HighOrder {
    /// The part of them that got one.
    pub(super) success: f64,
    /// Nanoseconds that each took.
    pub(super) ns: f64,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sample {
    /// What tasks did in a second, by their kind.
    pub(super) rates: Vec<(Option<&'static str>, f64)>,
    /// Frames that came and went.
    pub(super) pages: u64,
    /// The locks of zones.
    pub(super) zone_lock: LockUse,
    /// The locks of the lists of used pages, where there are any.
    pub(super) lru_lock: Option<LockUse>,
    /// Drains under a policy that lets them enter a zone as one cluster.
    pub(super) drains: Drains,
    /// Whether the times at locks were measured.
    pub(super) locks_are_timed: bool,
    /// Nanoseconds of an allocation and of a free, where each was timed.
    pub(super) get_put_ns: Option<(f64, f64)>,
    /// Where huge blocks were asked for.
    pub(super) high_order: Option<HighOrder>,
    /// What CPUs kept, where that was looked at.
    pub(super) held: Option<HeldPages>,
    /// Each direction by itself, in some rounds, where it was.
    pub(super) crossings: Vec<TransferCounts>,
}

impl Sample {
    /// Of a workload whose pages have owners.
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

    /// Of `alloc`: a pair is an operation. Locks are taken for not timed.
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
