//! The compared workloads: what each needs, how it runs here and on simulated machines, and its columns.

pub(super) mod decision_support;
pub(super) mod frag;
pub(super) mod highalloc;
pub(super) mod kernbench;
pub(super) mod order0_thp;
pub(super) mod page_fault;
pub(super) mod parallel_free;
pub(super) mod purge;

use std::num::NonZeroU32;

use super::comparison::{
    Compared, ComparedRow, Comparison, Measured, Native, Simulated, Workload, Yards, counts, effort, simulate,
    simulate_each, too_few_cpus,
};

/// Runs of a row, unless the command line says otherwise.
const REPEAT: NonZeroU32 = NonZeroU32::new(3).unwrap();
/// What all tables of these workloads say.
const MEDIANS: &str = "Medians (minimum–maximum) of the runs. The other columns are those of the median run.";
