//! `bench`: workloads on this machine.
//!
//! A workload is a file with its arguments, its help text, its run and its columns. Workloads that compare policies and run on
//! simulated machines too are in [`workloads`](super::workloads).

mod alloc;
mod compaction;
mod compound_pagemap;
mod contig;
mod device_map;
mod fault_cost;
mod flat_machine;
mod gigantic;
mod huge_pool;
mod memmap;
mod memory_region;
mod pcp_reset;
mod pin;
mod pinned;
mod report_free;
mod zone_lock;

use clap::{Args, Subcommand};

pub(super) use self::alloc::spill_refusal;
use super::workloads::{decision_support, frag, highalloc, kernbench, order0_thp, page_fault, parallel_free, purge};
use crate::Failure;

/// What follows the options in the help text.
const HELP: &str = "\
Every benchmark states its duration in its own --help and returns rows within 30 seconds with --quick.

Examples:
  frameyard bench alloc --quick
  frameyard bench page-fault --tasks 1,2,4 --csv page-fault.csv
  frameyard bench zone-lock --workload page-fault --policy vanilla,bits --json > zone-lock.json";

/// Runs a workload on this machine and times it
#[derive(Args, Debug)]
#[command(arg_required_else_help = false, disable_help_subcommand = true, after_help = HELP)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    workload: BenchWorkload,
}

#[derive(Subcommand, Debug)]
enum BenchWorkload {
    Alloc(alloc::AllocArgs),
    Memmap(memmap::MemmapArgs),
    PcpReset(pcp_reset::PcpResetArgs),
    PageFault(page_fault::PageFaultArgs),
    Kernbench(kernbench::KernbenchArgs),
    FaultCost(fault_cost::FaultCostArgs),
    ParallelFree(parallel_free::ParallelFreeArgs),
    Highalloc(highalloc::HighallocArgs),
    Order0Thp(order0_thp::Order0ThpArgs),
    Purge(purge::PurgeArgs),
    DecisionSupport(decision_support::DecisionSupportArgs),
    ZoneLock(zone_lock::ZoneLockArgs),
    Compaction(compaction::CompactionArgs),
    Contig(contig::ContigArgs),
    Frag(frag::FragArgs),
    Gigantic(gigantic::GiganticArgs),
    ReportFree(report_free::ReportFreeArgs),
    DeviceMap(device_map::DeviceMapArgs),
    HugePool(huge_pool::HugePoolArgs),
    Pin(pin::PinArgs),
    MemoryRegion(memory_region::MemoryRegionArgs),
}

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
        BenchWorkload::DecisionSupport(args) => decision_support::bench(args),
        BenchWorkload::ZoneLock(args) => zone_lock::run(args),
        BenchWorkload::Compaction(args) => compaction::run(args),
        BenchWorkload::Contig(args) => contig::run(args),
        BenchWorkload::Frag(args) => frag::bench(args),
        BenchWorkload::Gigantic(args) => gigantic::run(args),
        BenchWorkload::ReportFree(args) => report_free::run(args),
        BenchWorkload::DeviceMap(args) => device_map::run(args),
        BenchWorkload::HugePool(args) => huge_pool::run(args),
        BenchWorkload::Pin(args) => pin::run(args),
        BenchWorkload::MemoryRegion(args) => memory_region::run(args),
    }
}
