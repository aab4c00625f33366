//! `sim check`: compares predictions with published measurements, row by row.
//!
//! Each table has its own file, with its predictions and its summary.

mod kernbench;
mod page_fault;
mod parallel_free;
mod zone_lock;

use std::num::NonZeroU32;

use clap::{Args, ValueEnum, ValueHint};
use frameyard::ByteSize;
use frameyard_sim::Selection;

use super::effort::{ALL_PAGES, EffortArgs, FEW_PAGES, QUICK_PAGES};
use crate::Failure;
use crate::args::values::{positive_number, positive_size};
use crate::args::{OutputArgs, QuickArgs};
use crate::commands::simulated_machine::machine;
use crate::output::Report;

/// What follows the options in the help text.
const HELP: &str = "\
Takes minutes; --quick about 2 seconds, for table kernbench 20.

Examples:
  frameyard sim check --quick
  frameyard sim check --table page-fault --rows 'cluster-bulk/processes/1..40;vanilla-4.16/threads/40'
  frameyard sim check --table parallel-free --exiting 64G";

/// Compares predictions with published measurements, row by row
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct CheckArgs {
    /// A built-in machine with costs, or a file that describes one (TOML) [default: the machine of the table]
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::AnyPath)]
    machine: Option<String>,

    /// The published table
    #[arg(long, value_name = "TABLE", value_enum, default_value = "page-fault")]
    table: CheckedTable,

    /// Rows of page-fault to predict, as in 'cluster-bulk/processes/1..40;vanilla-4.16/threads/40' [default: all]
    #[arg(
        long,
        value_name = "ROWS",
        value_delimiter = ';',
        default_value_if("quick", "true", "vanilla-4.16/processes/1,4;cluster-bulk/processes/1,4")
    )]
    rows: Vec<Selection>,

    /// Pages that each of eight or more tasks maps; fewer tasks map as much together, each at most 32768 [default:
    /// 4096; zone-lock: 32768, so that caches hold as little as in the published runs]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pages: Option<NonZeroU32>,

    /// Memory of the exiting process in parallel-free (published: 512G); the machine is half as large again
    #[arg(long, value_name = "SIZE", default_value = "32G", default_value_if("quick", "true", "1G"), value_parser = positive_size)]
    exiting: ByteSize,

    /// Workers that tear the process down
    #[arg(long, value_name = "N", default_value = "64", value_parser = positive_number)]
    workers: NonZeroU32,

    #[command(flatten)]
    effort: EffortArgs,
    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A published table for comparisons.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum CheckedTable {
    /// Page faults per second of 1 to 40 tasks, processes and threads, on three kernels
    PageFault,
    /// Shares of time spent waiting for the zone lock and the LRU lock, with all CPUs faulting
    ZoneLock,
    /// Shares of time spent waiting for the same locks while many workers tear down one large process
    ParallelFree,
    /// User, system and elapsed time of a kernel build on 256 CPUs, with early and final sizes of per-CPU lists
    Kernbench,
}

/// The assumed pages of a process in a build.
const PROCESS_PAGES: NonZeroU32 = NonZeroU32::new(1024).unwrap();
/// The same for a quick run.
const QUICK_PROCESS_PAGES: NonZeroU32 = NonZeroU32::new(128).unwrap();

impl CheckedTable {
    /// The built-in machine of the table.
    fn machine(self) -> &'static str {
        match self {
            Self::PageFault => "broadwell-40",
            Self::ZoneLock => "skylake-112",
            Self::ParallelFree => "skylake-4s",
            Self::Kernbench => "epyc2-256",
        }
    }

    /// The default pages that each of many tasks maps, or that the process of a job uses.
    fn pages(self) -> NonZeroU32 {
        match self {
            Self::PageFault | Self::ParallelFree => FEW_PAGES,
            Self::ZoneLock => ALL_PAGES,
            Self::Kernbench => PROCESS_PAGES,
        }
    }

    /// The same for a quick run.
    fn quick_pages(self) -> NonZeroU32 {
        match self {
            Self::Kernbench => QUICK_PROCESS_PAGES,
            _ => QUICK_PAGES,
        }
    }
}

/// Predicts and compares.
pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let machine = machine(args.machine.as_deref().unwrap_or(args.table.machine()))?;
    let pages = args.pages.unwrap_or(if args.quick.quick { args.table.quick_pages() } else { args.table.pages() });
    let effort = args.effort.with_pages(pages);
    let report: Report = match args.table {
        CheckedTable::PageFault => page_fault::compared(&machine, &args.rows, effort)?.report(),
        CheckedTable::Kernbench => kernbench::compared(&machine, effort)?,
        CheckedTable::ZoneLock => zone_lock::compared(&machine, effort)?,
        CheckedTable::ParallelFree => parallel_free::compared(&machine, args.exiting, args.workers)?,
    };
    report.print(&args.output)
}
