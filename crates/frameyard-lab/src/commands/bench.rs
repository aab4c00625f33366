//! `bench`: workloads that run natively.

mod alloc;

use crate::Failure;
use crate::cli::{BenchArgs, BenchWorkload};

/// Runs a workload.
pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.workload {
        BenchWorkload::Alloc(args) => alloc::run(args),
    }
}
