//! Arguments of `bench` and `bench alloc`.

use std::num::NonZeroU32;

use clap::{Args, Subcommand};
use frameyard::Order;
use frameyard::policy::ZonePolicy;

use super::examples;
use super::values::{access_kind, order, positive_number, task_mode, whole_number, zone_policy};
use super::{
    CompactionArgs, ContigArgs, DeviceMapArgs, FaultCostArgs, FullArgs, HighallocArgs, InitArgs, KernbenchArgs,
    MachineArgs, MemmapArgs, MemoryRegionArgs, Order0ThpArgs, OutputArgs, PageFaultArgs, ParallelFreeArgs,
    PcpResetArgs, PinArgs, PurgeArgs, QuickArgs, ReportFreeArgs, YardArgs, ZoneLockArgs,
};
use frameyard_workloads::TaskMode;
use frameyard_workloads::alloc::AccessKind;

/// Arguments of `bench`.
#[derive(Args, Clone, Debug)]
#[command(arg_required_else_help = false, disable_help_subcommand = true, after_help = examples::BENCH)]
pub struct BenchArgs {
    /// The workload.
    #[command(subcommand)]
    pub workload: BenchWorkload,
}

/// A workload on this machine.
#[derive(Subcommand, Clone, Debug)]
pub enum BenchWorkload {
    /// Allocates and frees blocks
    #[command(after_help = examples::ALLOC)]
    Alloc(AllocArgs),
    /// Initialises memory maps
    #[command(after_help = examples::MEMMAP)]
    Memmap(MemmapArgs),
    /// Counts acquisitions of zone locks with per-CPU lists sized by early memory, and sized again by all memory
    #[command(after_help = examples::PCP_RESET)]
    PcpReset(PcpResetArgs),
    /// Maps memory, touches every page, unmaps it, and again
    #[command(after_help = examples::PAGE_FAULT)]
    PageFault(PageFaultArgs),
    /// Runs jobs of a build: processes that compute between their first uses of pages
    #[command(after_help = examples::KERNBENCH)]
    Kernbench(KernbenchArgs),
    /// Compares a fault and its unmap with the zeroing of the page
    #[command(after_help = examples::FAULT_COST)]
    FaultCost(FaultCostArgs),
    /// Exits address spaces that hold most of memory
    #[command(after_help = examples::PARALLEL_FREE)]
    ParallelFree(ParallelFreeArgs),
    /// Allocates huge blocks in memory full of page cache
    #[command(after_help = examples::HIGHALLOC)]
    Highalloc(HighallocArgs),
    /// Runs tasks with huge pages beside tasks without, in memory that was full of small ones
    #[command(after_help = examples::ORDER0_THP)]
    Order0Thp(Order0ThpArgs),
    /// Frees pages on other CPUs than they were allocated on
    #[command(after_help = examples::PURGE)]
    Purge(PurgeArgs),
    /// Compares all policies of zones in all workloads that show the cost of the zone lock, beside published figures
    #[command(after_help = examples::ZONE_LOCK)]
    ZoneLock(ZoneLockArgs),
    /// Compacts a zone in which every second frame is free
    #[command(after_help = examples::COMPACTION)]
    Compaction(CompactionArgs),
    /// Allocates contiguous ranges in a zone that is in use
    #[command(after_help = examples::CONTIG)]
    Contig(ContigArgs),
    /// Returns the memory behind free frames to the host, and uses it again
    #[command(after_help = examples::REPORT_FREE)]
    ReportFree(ReportFreeArgs),
    /// Gives device memory page structures, in every geometry and layout
    #[command(after_help = examples::DEVICE_MAP)]
    DeviceMap(DeviceMapArgs),
    /// Takes references or pins of pages and releases them, over mappings and page maps of every size
    #[command(after_help = examples::PIN)]
    Pin(PinArgs),
    /// Registers memory for devices and deregisters it, in a loop
    #[command(after_help = examples::MEMORY_REGION)]
    MemoryRegion(MemoryRegionArgs),
}

/// Arguments of `bench alloc`.
#[derive(Args, Clone, Debug)]
pub struct AllocArgs {
    /// How the blocks are allocated and freed
    #[arg(
        long = "kind",
        value_name = "KINDS",
        value_delimiter = ',',
        value_parser = access_kind(),
        default_value = "repeat,bulk,random"
    )]
    pub kinds: Vec<AccessKind>,

    /// Orders of the blocks
    #[arg(long = "order", value_name = "ORDERS", value_delimiter = ',', default_value = "0,3,9", default_value_if("quick", "true", "0,9"), value_parser = order)]
    pub orders: Vec<Order>,

    /// Policies to compare
    #[arg(long = "policy", value_name = "POLICIES", value_delimiter = ',', value_parser = zone_policy(), default_value = ZonePolicy::default().name(), help_heading = "Runs")]
    pub policies: Vec<ZonePolicy>,

    /// Numbers of tasks to run with
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2", value_parser = positive_number, help_heading = "Runs")]
    pub tasks: Vec<NonZeroU32>,

    /// What a task is
    #[arg(long, value_parser = task_mode(), default_value = "threads", help_heading = "Runs")]
    pub mode: TaskMode,

    /// Runs of each row, of which the median is reported
    #[arg(long, value_name = "N", default_value = "5", default_value_if("quick", "true", "1"), value_parser = positive_number, help_heading = "Runs")]
    pub repeat: NonZeroU32,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number, help_heading = "Runs")]
    pub seed: u64,

    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,
    /// A run without limits.
    #[command(flatten)]
    pub full: FullArgs,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The yard.
    #[command(flatten)]
    pub yard: YardArgs,
    /// How the memory map is initialised.
    #[command(flatten)]
    pub init: InitArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn read(line: &str) -> Result<AllocArgs, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let BenchWorkload::Alloc(args) = line.bench.workload else { panic!("no alloc") };
        Ok(args)
    }

    #[test]
    fn a_bare_benchmark_runs_every_row() {
        let args = read("alloc").unwrap();
        assert_eq!(args.kinds, [AccessKind::Repeat, AccessKind::Bulk, AccessKind::Random]);
        assert_eq!(args.orders, [Order(0), Order(3), Order(9)]);
        assert_eq!(args.tasks.iter().map(|tasks| tasks.get()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((args.repeat.get(), args.seed, args.full.full), (5, 1, false));
        assert_eq!((args.mode, args.policies), (TaskMode::Threads, vec![ZonePolicy::Depot]));
    }

    #[test]
    fn lists_are_written_with_commas() {
        let args = read("alloc --kind bulk --order 0,10 --tasks 1,2,4 --mode processes --repeat 9").unwrap();
        assert_eq!((args.kinds, args.orders), (vec![AccessKind::Bulk], vec![Order(0), Order(10)]));
        assert_eq!(args.tasks.len(), 3);
        assert_eq!((args.mode, args.repeat.get()), (TaskMode::Processes, 9));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        for (line, says) in [
            ("", "[subcommands: alloc, memmap, "),
            ("alloc --tasks 0", "from 1"),
            ("alloc --order 0,16", "from 0 to 15"),
            ("alloc --policy fast", "possible values: vanilla"),
            ("alloc --kind bulk,slow", "possible values: repeat, bulk, random"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
