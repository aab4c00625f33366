//! `bench`: workloads that run natively.

mod alloc;
mod compaction;
pub(super) mod comparison;
mod compound_pagemap;
mod contig;
mod device_map;
mod fault_cost;
mod flat_machine;
pub(super) mod highalloc;
mod kernbench;
mod memmap;
mod memory_region;
pub(super) mod order0_thp;
pub(super) mod page_fault;
pub(super) mod parallel_free;
mod pcp_reset;
mod pin;
mod pinned;
pub(super) mod purge;
mod report_free;
mod zone_lock;

use crate::Failure;
use crate::cli::{BenchArgs, BenchWorkload};

/// Runs a workload.
pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.workload {
        BenchWorkload::Alloc(args) => alloc::run(args),
        BenchWorkload::Memmap(args) => memmap::run(args),
        BenchWorkload::PcpReset(args) => pcp_reset::run(args),
        BenchWorkload::PageFault(args) => page_fault::run(args),
        BenchWorkload::Kernbench(args) => kernbench::run(args),
        BenchWorkload::FaultCost(args) => fault_cost::run(args),
        BenchWorkload::ParallelFree(args) => parallel_free::run(args),
        BenchWorkload::Highalloc(args) => highalloc::run(args),
        BenchWorkload::Order0Thp(args) => order0_thp::run(args),
        BenchWorkload::Purge(args) => purge::run(args),
        BenchWorkload::ZoneLock(args) => zone_lock::run(args),
        BenchWorkload::Compaction(args) => compaction::run(args),
        BenchWorkload::Contig(args) => contig::run(args),
        BenchWorkload::ReportFree(args) => report_free::run(args),
        BenchWorkload::DeviceMap(args) => device_map::run(args),
        BenchWorkload::Pin(args) => pin::run(args),
        BenchWorkload::MemoryRegion(args) => memory_region::run(args),
    }
}
