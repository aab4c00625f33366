//! `bench`: workloads that run natively.

mod alloc;
mod memmap;
mod pcp_reset;

use crate::Failure;
use crate::cli::{BenchArgs, BenchWorkload};

/// Runs a workload.
pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.workload {
        BenchWorkload::Alloc(args) => alloc::run(args),
        BenchWorkload::Memmap(args) => memmap::run(args),
        BenchWorkload::PcpReset(args) => pcp_reset::run(args),
    }
}
