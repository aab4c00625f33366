//! `worker`: a task of a workload in its own process. Hidden: only `bench` and `stress` start it.

use crate::Failure;
use crate::cli::WorkerArgs;
use frameyard_workloads::workers::Worker;

/// Runs the task.
pub(super) fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let (worker, file) = Worker::new(&args.order)?;
    Ok(worker.run(&file)?)
}
