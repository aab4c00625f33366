//! `decision-support`: workers of a database that run queries, in the shape of a decision-support load.
//!
//! Discussions of zone and LRU lock contention on large machines name such loads: scans fill and evict the page cache, and hash
//! joins and sorts allocate much memory and free it at once. Large per-CPU lists (`percpu_pagelist_fraction`) absorb the work
//! areas. The shape is modelled on that description. It is not a published benchmark, and no published row belongs to it.

use std::time::Duration;

use frameyard::ByteSize;

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::setting::Setting;
use crate::task::{TaskSpec, Work};
use crate::timed_run::{TaskRun, run_for};

pub use crate::task::decision_support::QueryMix;

/// Runs the workload once.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn run(
    fixture: &Fixture<'_>,
    setting: &Setting,
    seed: u64,
    mix: QueryMix,
    duration: Duration,
) -> Result<TaskRun, WorkloadError> {
    run_for(fixture, &specs(setting, seed, mix), duration)
}

/// The tasks of a run.
#[must_use]
pub fn specs(setting: &Setting, seed: u64, mix: QueryMix) -> Vec<TaskSpec> {
    TaskSpec::alike(setting.tasks.get(), seed, &Work::DecisionSupport(mix))
}

/// Free memory that `tasks` tasks need: work areas, cached tables with what scans add before eviction, page tables and trees
/// for them, and a reserve.
#[must_use]
pub fn memory_needed(tasks: u32, mix: QueryMix) -> ByteSize {
    let each = mix.work_area().0.saturating_add(mix.scan().0.saturating_mul(3));
    let all = each.saturating_mul(u64::from(tasks));
    ByteSize(all.saturating_add(all / 16).saturating_add(ByteSize::mib(32).0))
}
