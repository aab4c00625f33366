//! Arguments of `sim calibrate` and `sim check`.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum, ValueHint};
use frameyard::ByteSize;
use frameyard_sim::Selection;

use super::OutputArgs;
use super::values::{positive_number, positive_size, whole_number};
use crate::output::OutputFile;

/// A published table that a machine can be fitted to.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum FittedTable {
    /// Page faults a second of 1 to 40 tasks, processes and threads, on three kernels
    PageFault,
    /// Page faults a second of all CPUs of two sockets: the stock kernel, and the cluster series
    ZoneLock,
}

/// A published table that predictions are compared with.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckedTable {
    /// Page faults a second of 1 to 40 tasks, processes and threads, on three kernels
    PageFault,
    /// Shares of time spent waiting for the zone lock and the LRU lock, with all CPUs faulting
    ZoneLock,
    /// Shares of time spent waiting for the same locks while many workers take one large process down
    ParallelFree,
    /// User, system and elapsed time of a kernel's build on 256 CPUs, with per-CPU lists sized early and finally
    Kernbench,
}

impl CheckedTable {
    /// The built-in machine that the table was measured on.
    #[must_use]
    pub fn machine(self) -> &'static str {
        match self {
            Self::PageFault => "broadwell-40",
            Self::ZoneLock => "skylake-112",
            Self::ParallelFree => "skylake-4s",
            Self::Kernbench => "epyc2-256",
        }
    }

    /// How many pages each of many tasks maps, or the process of a job uses, unless said otherwise.
    #[must_use]
    pub fn pages(self) -> NonZeroU32 {
        match self {
            Self::PageFault | Self::ParallelFree => FEW_PAGES,
            Self::ZoneLock => ALL_PAGES,
            Self::Kernbench => PROCESS_PAGES,
        }
    }
}

/// As many as a process of a build is taken to use.
const PROCESS_PAGES: NonZeroU32 = NonZeroU32::new(1024).unwrap();
/// So many that a table of hundreds of values is done in minutes.
const FEW_PAGES: NonZeroU32 = NonZeroU32::new(4096).unwrap();
/// More than a batch of the largest lists.
const MORE_PAGES: NonZeroU32 = NonZeroU32::new(8192).unwrap();
/// As many as the published benchmark maps.
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

    /// The built-in machine that the table was measured on.
    #[must_use]
    pub fn machine(self) -> &'static str {
        match self {
            Self::PageFault => CheckedTable::PageFault.machine(),
            Self::ZoneLock => CheckedTable::ZoneLock.machine(),
        }
    }

    /// How many pages each of many tasks maps unless said otherwise: while the fit searches, and to see what it found.
    #[must_use]
    pub fn pages(self) -> [NonZeroU32; 2] {
        match self {
            Self::PageFault => [FEW_PAGES, MORE_PAGES],
            Self::ZoneLock => [ALL_PAGES; 2],
        }
    }
}

/// How much is simulated for a prediction.
#[derive(Args, Clone, Copy, Debug)]
pub struct EffortArgs {
    /// Mappings of each task that are counted; of few, those of threads look faster than they are in the long run
    #[arg(long, value_name = "N", default_value = "4", value_parser = positive_number)]
    pub mappings: NonZeroU32,

    /// Seed of how far tasks are apart
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    pub seed: u64,
}

/// Arguments of `sim calibrate`.
#[derive(Args, Clone, Debug)]
pub struct CalibrateArgs {
    /// A built-in simulated machine, or a file that describes one (TOML) [default: the one that the table was measured on]
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::AnyPath)]
    pub machine: Option<String>,

    /// The published table
    #[arg(long, value_name = "TABLE", value_enum, default_value = "page-fault")]
    pub table: FittedTable,

    /// Rows to fit on, as in 'big-pcp/processes/1,5,10..12;vanilla-4.16/threads/40' [default: big-pcp at 1, 5, 10, 20, 30 and 40
    /// tasks and vanilla-4.16 at 1, 5, 10 and 40, in both modes; zone-lock: vanilla-4.16 and cluster]
    #[arg(long, value_name = "ROWS", value_delimiter = ';')]
    pub rows: Vec<Selection>,

    /// Free parameters, as in kernel_overhead.exception_cycles,costs.store_overlap [default: those that the machine names]
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    pub parameters: Vec<String>,

    /// Pages that each of eight and more tasks maps while the fit searches; with few, the batches of big-pcp are larger than what is mapped [default: 4096; zone-lock: 32768]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub pages: Option<NonZeroU32>,

    /// Pages that each of eight and more tasks maps to see what the fit found [default: 8192; zone-lock: 32768]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub final_pages: Option<NonZeroU32>,

    /// Rounds of each stage of the search, at most
    #[arg(long, value_name = "N", default_value = "8", value_parser = positive_number)]
    pub rounds: NonZeroU32,

    /// Write the machine's description with the fitted parameters, and what they were fitted on
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write: Option<OutputFile>,

    /// How much is simulated.
    #[command(flatten)]
    pub effort: EffortArgs,
    /// How the result is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `sim check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// A built-in simulated machine, or a file that describes one (TOML) [default: the one that the table was measured on]
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::AnyPath)]
    pub machine: Option<String>,

    /// The published table
    #[arg(long, value_name = "TABLE", value_enum, default_value = "page-fault")]
    pub table: CheckedTable,

    /// Rows of page-fault to predict, as in 'cluster-bulk/processes/1..40;vanilla-4.16/threads/40' [default: all]
    #[arg(long, value_name = "ROWS", value_delimiter = ';')]
    pub rows: Vec<Selection>,

    /// Pages that each of eight and more tasks maps; fewer map together as much, each 32768 at most [default: 4096; zone-lock:
    /// 32768, of which caches hold as little as of those that were published]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub pages: Option<NonZeroU32>,

    /// Memory of the process that exits in parallel-free, of 512G; the machine has half as much again
    #[arg(long, value_name = "SIZE", default_value = "32G", value_parser = positive_size)]
    pub exiting: ByteSize,

    /// Workers that take it down
    #[arg(long, value_name = "N", default_value = "64", value_parser = positive_number)]
    pub workers: NonZeroU32,

    /// How much is simulated.
    #[command(flatten)]
    pub effort: EffortArgs,
    /// How the result is written.
    #[command(flatten)]
    pub output: OutputArgs,
}
