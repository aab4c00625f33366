//! `worker`: a task of a workload in its own process. Hidden: only `bench` and `stress` start it.

use crate::Failure;
use crate::cli::WorkerArgs;
use crate::workload::crew::Worker;

/// Runs the task.
pub(super) fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let (worker, file) = Worker::of(&args.order)?;
    worker.run(&file)
}
