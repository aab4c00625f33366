//! `purge`: tasks fault pages in and purgers free them, like the background purging of a user-space allocator. Memory is
//! freed on another CPU than the one that allocated it.

use std::time::Duration;

use frameyard::ByteSize;

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::setting::{Setting, TaskMode};
use crate::task::purge::{PIECE, Part, Purge, Role};
use crate::task::{TaskSpec, Work, task_seed};
use crate::timed_run::{TaskRun, run_for};

/// Pieces that may be queued per faulting task.
const PIECES_WAITING: usize = 16;

/// The usual number of purgers for tasks that are threads: one for four.
#[must_use]
pub fn usual_purgers(tasks: u32) -> u32 {
    tasks.div_ceil(4)
}

/// Runs the workload once.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn run(
    fixture: &Fixture<'_>,
    setting: &Setting,
    purgers: u32,
    seed: u64,
    duration: Duration,
) -> Result<TaskRun, WorkloadError> {
    let tasks = setting.tasks.get();
    let specs = match setting.mode {
        TaskMode::Processes => {
            let work = Work::Purge(Purge { role: Role::Both, bound: PIECES_WAITING, purgers: (1, 2) });
            TaskSpec::alike(tasks, seed, &work)
        }
        TaskMode::Threads => single_role_specs(setting, purgers, seed),
    };
    run_for(fixture, &specs, duration)
}

/// Tasks with one role each: first those that fault, then the purgers. All faulting threads of a process share a queue.
#[must_use]
pub fn single_role_specs(setting: &Setting, purgers: u32, seed: u64) -> Vec<TaskSpec> {
    let tasks = setting.tasks.get();
    let bound = match setting.mode {
        TaskMode::Threads => PIECES_WAITING * tasks as usize,
        TaskMode::Processes => PIECES_WAITING,
    };
    let role = |number| Role::One(if number < tasks { Part::Fault } else { Part::Free });
    let spec = |number| TaskSpec {
        number,
        seed: task_seed(seed, number),
        work: Work::Purge(Purge { role: role(number), bound, purgers: (purgers, tasks + purgers) }),
    };
    (0..tasks + purgers).map(spec).collect()
}

/// Free memory that the tasks and purgers need.
#[must_use]
pub fn memory_needed(tasks: u32, purgers: u32) -> ByteSize {
    let pieces = u64::from(tasks) * (PIECES_WAITING as u64 + 1) + u64::from(purgers);
    ByteSize(pieces.saturating_mul(PIECE.0 + PIECE.0 / 16).saturating_add(ByteSize::mib(32).0))
}
