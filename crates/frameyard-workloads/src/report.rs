//! What a task tells the driver of a run: events, and its report.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The result of one task.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TaskReport {
    /// Steps of its work: for most workloads, pages touched.
    pub iterations: u64,
    /// Nanoseconds of work.
    pub elapsed_ns: u64,
    /// Rounds of its work, such as mappings, processes or queries; 0 for workloads that do not count them.
    pub rounds: u64,
    /// Pages whose contents it checked at the end.
    pub checked: u64,
    /// Pieces of memory that it, or its purger, freed.
    pub freed: u64,
    /// Freed pieces that were allocated on another CPU.
    pub freed_elsewhere: u64,
}

impl TaskReport {
    /// Steps per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.per_second(self.iterations)
    }

    /// `done` per second of its work.
    pub(crate) fn per_second(&self, done: u64) -> f64 {
        done as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Why a task failed.
pub type TaskProblem = Box<dyn Error + Send + Sync>;

/// The run ended before the task had begun to work.
#[derive(Clone, Copy, Debug)]
pub struct Abandoned;

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the run ended before its work began")
    }
}

impl Error for Abandoned {}

/// A change in the state of a task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum TaskEvent {
    /// The task is set up and waits for [`Stage::Work`](crate::stage::Stage::Work).
    Prepared,
    /// The task has begun to work.
    Begun,
    /// The task has finished.
    Done(TaskReport),
    /// The task has failed, with this error text.
    Failed(String),
}
