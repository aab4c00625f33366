//! `bench`: workloads on this machine.

mod alloc;
mod compaction;
mod compound_pagemap;
mod contig;
mod device_map;
mod fault_cost;
mod flat_machine;
mod memmap;
mod memory_region;
mod pcp_reset;
mod pin;
mod pinned;
mod report_free;
mod zone_lock;

use crate::Failure;
use crate::cli::{BenchArgs, BenchWorkload};

use super::workloads::{highalloc, kernbench, order0_thp, page_fault, parallel_free, purge};

/// Runs a workload.
pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.workload {
        BenchWorkload::Alloc(args) => alloc::run(args),
        BenchWorkload::Memmap(args) => memmap::run(args),
        BenchWorkload::PcpReset(args) => pcp_reset::run(args),
        BenchWorkload::PageFault(args) => page_fault::bench(args),
        BenchWorkload::Kernbench(args) => kernbench::bench(args),
        BenchWorkload::FaultCost(args) => fault_cost::run(args),
        BenchWorkload::ParallelFree(args) => parallel_free::bench(args),
        BenchWorkload::Highalloc(args) => highalloc::bench(args),
        BenchWorkload::Order0Thp(args) => order0_thp::bench(args),
        BenchWorkload::Purge(args) => purge::bench(args),
        BenchWorkload::ZoneLock(args) => zone_lock::run(args),
        BenchWorkload::Compaction(args) => compaction::run(args),
        BenchWorkload::Contig(args) => contig::run(args),
        BenchWorkload::ReportFree(args) => report_free::run(args),
        BenchWorkload::DeviceMap(args) => device_map::run(args),
        BenchWorkload::Pin(args) => pin::run(args),
        BenchWorkload::MemoryRegion(args) => memory_region::run(args),
    }
}
