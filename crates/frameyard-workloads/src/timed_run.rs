//! Runs of a fixed duration: the tasks work, the driver counts.

use std::time::Duration;

use crate::counts::Counts;
use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::host_time::{HostTime, idle_share};
use crate::report::TaskReport;
use crate::task::TaskSpec;

/// The result of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskRun {
    /// The report of each task.
    pub reports: Vec<TaskReport>,
    /// Counter changes during the work.
    pub counts: Counts,
    /// The share of the host's processor time that was idle, if the kernel reports it.
    pub idle: Option<f64>,
}

impl TaskRun {
    /// Steps per second, summed over the tasks that `chosen` selects by number.
    pub fn rate_of(&self, chosen: impl Fn(usize) -> bool) -> f64 {
        self.reports.iter().enumerate().filter(|(task, _)| chosen(*task)).map(|(_, report)| report.rate()).sum()
    }

    /// Rounds per second of all tasks.
    #[must_use]
    pub fn rounds_per_s(&self) -> f64 {
        self.reports.iter().map(|report| report.per_second(report.rounds)).sum()
    }

    /// Steps per second of all tasks.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate_of(|_| true)
    }
}

/// Lets tasks work for `duration`.
pub(crate) fn run_for(fixture: &Fixture<'_>, specs: &[TaskSpec], duration: Duration) -> Result<TaskRun, WorkloadError> {
    fixture.drive(specs, |workers| {
        workers.wait_prepared().map_err(WorkloadError::run_time)?;
        let before = (Counts::of(&fixture.vm), HostTime::now());
        workers.begin().map_err(WorkloadError::run_time)?;
        workers.watch(duration).map_err(WorkloadError::run_time)?;
        workers.end();
        let idle = idle_share(before.1, HostTime::now());
        let reports = workers.reports().map_err(WorkloadError::run_time)?;
        let counts = Counts::of(&fixture.vm).since(&before.0);
        Ok(TaskRun { reports, counts, idle })
    })
}
