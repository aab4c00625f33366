//! Running the tasks of a workload side by side, each on a CPU of its own where there are as many.

use std::fmt;
use std::num::NonZeroU32;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Barrier;
use std::thread;

use frameyard::AllocError;
use frameyard_host::{CpuList, HostTopology};

/// Why a workload did not come to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskError {
    /// The yard had no memory left for it.
    Alloc(AllocError),
    /// The yard refused to take a block back.
    Free(frameyard::FreeError),
    /// A task panicked.
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

/// Runs one closure per task on threads of their own, started together; what they return, by task.
///
/// Task `n` is pinned to the `n`-th CPU that this process may use, beginning anew when they are used up.
///
/// # Errors
///
/// The first task's error, once all have ended.
pub fn run_tasks<T: Send>(
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
                // Where pinning is refused the task runs as well, only less steadily.
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
