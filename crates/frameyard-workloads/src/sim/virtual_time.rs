//! Virtual time, and the result of a run in it.

use std::time::Duration;

use frameyard_sim::Picos;

use crate::sim::time_spent::TimeSpent;

/// The result of a run in virtual time.
#[derive(Clone, PartialEq, Debug)]
pub struct SimRun<R> {
    /// The workload's own result.
    pub run: R,
    /// Virtual time of the whole run.
    pub simulated: Picos,
    /// What the CPUs spent their time on while the run was measured.
    pub spent: TimeSpent,
}

/// A duration in virtual time.
pub(crate) fn picoseconds(duration: Duration) -> Picos {
    Picos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000))
}
