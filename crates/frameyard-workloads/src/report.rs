//! What a task tells the driver of a run: events, and its report.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The result of one task.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
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
    /// Which frames its faults got, if it recorded them.
    pub reuse: Reuse,
    /// Nanoseconds of each of its faults that wanted a huge page, if it timed them.
    pub huge_ns: Vec<u64>,
}

/// Faults of a task by the frame they got: freed by this task how long ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reuse {
    /// Faults after the task's first free; 0 if it recorded none.
    pub faults: u64,
    /// The part that got one of the 256 frames freed last: 1 MiB.
    pub hot: u64,
    /// The part that got one of the 256 frames freed last of those that were still free.
    pub hottest: u64,
}

impl Reuse {
    /// The sum of two tasks' counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { faults: self.faults + other.faults, hot: self.hot + other.hot, hottest: self.hottest + other.hottest }
    }

    /// A part of the faults; `None` if none were recorded.
    #[must_use]
    pub fn share(&self, part: u64) -> Option<f64> {
        (self.faults > 0).then(|| part as f64 / self.faults as f64)
    }
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
