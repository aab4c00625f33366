//! Closures that run side by side, each pinned to a CPU: of this host, or of a simulated machine.

use std::fmt;
use std::num::NonZeroU32;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use frameyard::AllocError;
use frameyard_host::{CpuList, HostTopology};

use crate::error::WorkloadError;
use crate::measure::nanoseconds;

/// Why a task failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskError {
    /// An allocation failed.
    Alloc(AllocError),
    /// A free failed.
    Free(frameyard::FreeError),
    /// The task panicked.
    Panicked,
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc(error) => write!(f, "the workload found no memory: {error}"),
            Self::Free(error) => write!(f, "the workload could not free its memory: {error}"),
            Self::Panicked => f.write_str("a task of the workload panicked"),
        }
    }
}

impl std::error::Error for TaskError {}

impl From<TaskError> for WorkloadError {
    fn from(error: TaskError) -> Self {
        Self::run_time(error)
    }
}

impl From<AllocError> for TaskError {
    fn from(error: AllocError) -> Self {
        Self::Alloc(error)
    }
}

impl From<frameyard::FreeError> for TaskError {
    fn from(error: frameyard::FreeError) -> Self {
        Self::Free(error)
    }
}

/// Runs tasks side by side, each on a CPU of its own, and reads their clock.
pub trait TaskRunner: Sync {
    /// Runs `task` once per task number, all from the same moment. Returns the results in the order of the tasks.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] with the error of the first task that failed, after all have ended.
    fn run<T: Send>(
        &self,
        tasks: NonZeroU32,
        task: impl Fn(usize) -> Result<T, TaskError> + Sync,
    ) -> Result<Vec<T>, WorkloadError>;

    /// The same for tasks that are not measured. A simulated machine runs them one after another, in no time.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    fn set_up<T: Send>(
        &self,
        tasks: NonZeroU32,
        task: impl Fn(usize) -> Result<T, TaskError> + Sync,
    ) -> Result<Vec<T>, WorkloadError>;

    /// Nanoseconds on the clock of the running task.
    fn now_ns(&self) -> u64;
}

/// Tasks are threads of this host.
#[derive(Debug)]
pub(crate) struct HostTasks<'h> {
    host: &'h HostTopology,
    start: Instant,
}

impl<'h> HostTasks<'h> {
    pub(crate) fn new(host: &'h HostTopology) -> Self {
        Self { host, start: Instant::now() }
    }
}

impl TaskRunner for HostTasks<'_> {
    fn run<T: Send>(
        &self,
        tasks: NonZeroU32,
        task: impl Fn(usize) -> Result<T, TaskError> + Sync,
    ) -> Result<Vec<T>, WorkloadError> {
        Ok(run_tasks(self.host, tasks, task)?)
    }

    fn set_up<T: Send>(
        &self,
        tasks: NonZeroU32,
        task: impl Fn(usize) -> Result<T, TaskError> + Sync,
    ) -> Result<Vec<T>, WorkloadError> {
        self.run(tasks, task)
    }

    fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }
}

/// Runs `task` once per task number, each on its own thread, started together. Returns the results in the order of the tasks.
///
/// Task `n` is pinned to the `n`-th CPU that this process may use, modulo their number.
///
/// # Errors
///
/// The error of the first task that failed, after all have ended.
pub(crate) fn run_tasks<T: Send>(
    host: &HostTopology,
    tasks: NonZeroU32,
    task: impl Fn(usize) -> Result<T, TaskError> + Sync,
) -> Result<Vec<T>, TaskError> {
    let start = Barrier::new(tasks.get() as usize);
    let (start, task) = (&start, &task);
    let cpus = host.allowed().as_slice();
    thread::scope(|scope| {
        let body = |number: usize| {
            move || {
                // If the host refuses, the task runs on any CPU.
                let _ = CpuList::from_iter([cpus[number % cpus.len()]]).pin_this_thread();
                start.wait();
                panic::catch_unwind(AssertUnwindSafe(|| task(number))).unwrap_or(Err(TaskError::Panicked))
            }
        };
        let threads: Vec<_> = (0..tasks.get() as usize).map(|number| scope.spawn(body(number))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or(Err(TaskError::Panicked)));
        joined.collect::<Vec<_>>().into_iter().collect()
    })
}
