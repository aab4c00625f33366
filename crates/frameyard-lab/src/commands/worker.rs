//! `worker`: a task of a workload in its own process. Hidden: only `bench` and `stress` start it.

use frameyard_workloads::workers::Worker;

use crate::Failure;

/// Runs the task, which is JSON.
pub(super) fn run(task: &str) -> Result<(), Failure> {
    let (worker, file) = Worker::new(task)?;
    Ok(worker.run(&file)?)
}
