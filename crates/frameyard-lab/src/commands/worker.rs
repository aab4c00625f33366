//! `worker`: a task of a workload in a process of its own. Hidden: only `bench` and `stress` start it.

use crate::Failure;
use crate::cli::WorkerArgs;
use crate::workload::crew::Worker;

/// Does what the worker is told.
pub(super) fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let (worker, file) = Worker::of(&args.order)?;
    worker.run(&file)
}
