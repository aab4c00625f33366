//! Arguments of `sim calibrate` and `sim check`.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum, ValueHint};
use frameyard::ByteSize;
use frameyard_sim::Selection;

use super::OutputArgs;
use super::values::{positive_number, positive_size, whole_number};
use crate::output::OutputFile;

/// A published table for fits.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum FittedTable {
    /// Page faults per second of 1 to 40 tasks, processes and threads, on three kernels
    PageFault,
    /// Page faults per second of all CPUs of two sockets: the stock kernel, and the cluster series
    ZoneLock,
}

/// A published table for comparisons.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckedTable {
    /// Page faults per second of 1 to 40 tasks, processes and threads, on three kernels
    PageFault,
    /// Shares of time spent waiting for the zone lock and the LRU lock, with all CPUs faulting
    ZoneLock,
    /// Shares of time spent waiting for the same locks while many workers tear down one large process
    ParallelFree,
    /// User, system and elapsed time of a kernel build on 256 CPUs, with early and final sizes of per-CPU lists
    Kernbench,
}

impl CheckedTable {
    /// The built-in machine of the table.
    #[must_use]
    pub fn machine(self) -> &'static str {
        match self {
            Self::PageFault => "broadwell-40",
            Self::ZoneLock => "skylake-112",
            Self::ParallelFree => "skylake-4s",
            Self::Kernbench => "epyc2-256",
        }
    }

    /// The default pages that each of many tasks maps, or that the process of a job uses.
    #[must_use]
    pub fn pages(self) -> NonZeroU32 {
        match self {
            Self::PageFault | Self::ParallelFree => FEW_PAGES,
            Self::ZoneLock => ALL_PAGES,
            Self::Kernbench => PROCESS_PAGES,
        }
    }
}

/// The assumed pages of a process in a build.
const PROCESS_PAGES: NonZeroU32 = NonZeroU32::new(1024).unwrap();
/// Few enough to predict hundreds of values in minutes.
const FEW_PAGES: NonZeroU32 = NonZeroU32::new(4096).unwrap();
/// More than a batch of the largest lists.
const MORE_PAGES: NonZeroU32 = NonZeroU32::new(8192).unwrap();
/// The mapping of the published benchmark.
const ALL_PAGES: NonZeroU32 = NonZeroU32::new(32768).unwrap();

impl FittedTable {
    /// The name on command lines and in machines' files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PageFault => "page-fault",
            Self::ZoneLock => "zone-lock",
        }
    }

    /// The built-in machine of the table.
    #[must_use]
    pub fn machine(self) -> &'static str {
        match self {
            Self::PageFault => CheckedTable::PageFault.machine(),
            Self::ZoneLock => CheckedTable::ZoneLock.machine(),
        }
    }

    /// The default pages that each of many tasks maps: during the search, and to evaluate its result.
    #[must_use]
    pub fn pages(self) -> [NonZeroU32; 2] {
        match self {
            Self::PageFault => [FEW_PAGES, MORE_PAGES],
            Self::ZoneLock => [ALL_PAGES; 2],
        }
    }
}

/// The amount of simulated work for a prediction.
#[derive(Args, Clone, Copy, Debug)]
pub struct EffortArgs {
    /// Counted mappings of each task; with few, threads look faster than in the long run
    #[arg(long, value_name = "N", default_value = "4", value_parser = positive_number)]
    pub mappings: NonZeroU32,

    /// Seed of the tasks' phases
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    pub seed: u64,
}

/// Arguments of `sim calibrate`.
#[derive(Args, Clone, Debug)]
pub struct CalibrateArgs {
    /// A built-in machine with costs, or a file that describes one (TOML) [default: the machine of the table]
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::AnyPath)]
    pub machine: Option<String>,

    /// The published table
    #[arg(long, value_name = "TABLE", value_enum, default_value = "page-fault")]
    pub table: FittedTable,

    /// Rows to fit on, as in 'big-pcp/processes/1,5,10..12;vanilla-4.16/threads/40' [default: big-pcp at 1, 5, 10, 20, 30 and 40
    /// tasks and vanilla-4.16 at 1, 5, 10 and 40, in both modes; zone-lock: vanilla-4.16 and cluster]
    #[arg(long, value_name = "ROWS", value_delimiter = ';')]
    pub rows: Vec<Selection>,

    /// Free parameters, as in kernel_overhead.exception_cycles,costs.store_overlap [default: those in the machine's
    /// file]
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    pub parameters: Vec<String>,

    /// Pages that each of eight or more tasks maps during the search; few pages are less than a batch of big-pcp
    /// [default: 4096; zone-lock: 32768]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub pages: Option<NonZeroU32>,

    /// Pages that each of eight or more tasks maps to evaluate the result [default: 8192; zone-lock: 32768]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub final_pages: Option<NonZeroU32>,

    /// The most rounds of each stage of the search
    #[arg(long, value_name = "N", default_value = "8", value_parser = positive_number)]
    pub rounds: NonZeroU32,

    /// Write the machine's description with the fitted parameters and the rows of the fit
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write: Option<OutputFile>,

    /// The amount of simulated work.
    #[command(flatten)]
    pub effort: EffortArgs,
    /// Output options.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `sim check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// A built-in machine with costs, or a file that describes one (TOML) [default: the machine of the table]
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::AnyPath)]
    pub machine: Option<String>,

    /// The published table
    #[arg(long, value_name = "TABLE", value_enum, default_value = "page-fault")]
    pub table: CheckedTable,

    /// Rows of page-fault to predict, as in 'cluster-bulk/processes/1..40;vanilla-4.16/threads/40' [default: all]
    #[arg(long, value_name = "ROWS", value_delimiter = ';')]
    pub rows: Vec<Selection>,

    /// Pages that each of eight or more tasks maps; fewer tasks map as much together, each at most 32768 [default:
    /// 4096; zone-lock: 32768, so that caches hold as little as in the published runs]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub pages: Option<NonZeroU32>,

    /// Memory of the exiting process in parallel-free (published: 512G); the machine is half as large again
    #[arg(long, value_name = "SIZE", default_value = "32G", value_parser = positive_size)]
    pub exiting: ByteSize,

    /// Workers that tear the process down
    #[arg(long, value_name = "N", default_value = "64", value_parser = positive_number)]
    pub workers: NonZeroU32,

    /// The amount of simulated work.
    #[command(flatten)]
    pub effort: EffortArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}
