//! Closures that run side by side, each pinned to a CPU.

use std::fmt;
use std::num::NonZeroU32;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Barrier;
use std::thread;

use frameyard::AllocError;
use frameyard_host::{CpuList, HostTopology};

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
