//! `worker`: a task of a workload in a process of its own. Hidden: only `bench` and `stress` start it.

use crate::Failure;
use crate::cli::WorkerArgs;
use frameyard_workloads::workers::Worker;

/// Does what the worker is told.
pub(super) fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let (worker, file) = Worker::new(&args.order)?;
    Ok(worker.run(&file)?)
}
