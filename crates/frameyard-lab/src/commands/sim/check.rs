//! `sim check`: compares predictions with published measurements, row by row.
//!
//! Each table has its own file, with its predictions and its summary.

mod all;
mod highalloc;
mod kernbench;
mod order0_thp;
mod page_fault;
mod parallel_free;
mod setting;
mod zone_lock;

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use frameyard::ByteSize;
use frameyard_sim::{Machine, Role, Selection};
use frameyard_workloads::kernbench::Job;
use serde_json::Value;

use super::deferred_init;
use super::effort::{EffortArgs, QUICK_PAGES, USUAL_PAGES};
use crate::Failure;
use crate::args::values::{positive_number, positive_size};
use crate::args::{OutputArgs, QuickArgs};
use crate::commands::simulated_machine::machine;
use crate::output::{Report, Row};
use all::Unfitted;

/// What follows the options in the help text.
const HELP: &str = "\
Takes minutes; --quick about 2 seconds, for table kernbench 20, for highalloc 30.

Examples:
  frameyard sim check --quick
  frameyard sim check --table page-fault --rows 'cluster-bulk/processes/1..40;vanilla-4.16/threads/40'
  frameyard sim check --table parallel-free --exiting 64G
  frameyard sim check --table parallel-free --exiting 4G --set kernel_overhead.zone_hold_cycles=0,2000,4000
  frameyard sim check --table highalloc --memory 4G
  frameyard sim check --all --record predictions.csv";

/// Compares predictions with published measurements, row by row
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct CheckArgs {
    /// A built-in machine with costs, or a file that describes one (TOML) [default: the machine of the table]
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::AnyPath, conflicts_with = "all")]
    machine: Option<String>,

    /// Check every table, each on its machine; prints a line for each
    #[arg(long, conflicts_with_all = ["table", "rows"])]
    all: bool,

    /// Fail if a table's errors exceed those in FILE, which an earlier `--all --csv FILE` with the same options wrote
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "all")]
    record: Option<PathBuf>,

    /// Write the predictions for each table into DIR, as TABLE.json
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "all")]
    save: Option<PathBuf>,

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

    /// Pages that each task maps; with fewer than 32768, caches are smaller by the same factor [default:
    /// 4096]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pages: Option<NonZeroU32>,

    /// Memory of the exiting process in parallel-free (published: 512G); the machine is half as large again
    #[arg(long, value_name = "SIZE", default_value = "32G", default_value_if("quick", "true", "1G"), value_parser = positive_size)]
    exiting: ByteSize,

    /// Workers that tear the process down
    #[arg(long, value_name = "N", default_value = "64", value_parser = positive_number)]
    workers: NonZeroU32,

    /// Memory of the machine in highalloc (published: 4G)
    #[arg(long, value_name = "SIZE", default_value = "512M", default_value_if("quick", "true", "128M"), value_parser = positive_size)]
    memory: ByteSize,

    /// Values of a number of the machine, each predicted with, as in kernel_overhead.lru_page_cycles=60,120; of several numbers, all
    /// combinations
    #[arg(long = "set", value_name = "NUMBER=VALUES", conflicts_with = "all")]
    settings: Vec<setting::Setting>,

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
    /// The same of 1 to 88 tasks, on two of the kernels; predicted before the values were known
    #[value(name = "page-fault-88")]
    PageFault88,
    /// Shares of time spent waiting for the zone lock and the LRU lock, with all CPUs faulting
    ZoneLock,
    /// Pages touched each second by tasks with huge pages and by tasks with small ones side by side, in fragmented memory
    Order0Thp,
    /// Shares of time spent waiting for the same locks while many workers tear down one large process
    ParallelFree,
    /// User, system and elapsed time of a kernel build on 256 CPUs, with early and final sizes of per-CPU lists
    Kernbench,
    /// Times of initialising memory maps by threads on seven machines, and in three ways on another
    DeferredInit,
    /// Success rates and mean times of huge allocations while builders fill a desktop's memory, with two delays
    Highalloc,
}

/// The pages of a process in a build.
const PROCESS_PAGES: NonZeroU32 = NonZeroU32::new(Job::PAGES).unwrap();
/// The same for a quick run.
const QUICK_PROCESS_PAGES: NonZeroU32 = NonZeroU32::new(128).unwrap();

impl CheckedTable {
    /// The name on command lines and in records.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The built-in machine of the table; `None` if it has several.
    fn machine(self) -> Option<&'static str> {
        match self {
            Self::PageFault => Some("broadwell-40"),
            Self::PageFault88 => Some("broadwell-88"),
            Self::ZoneLock | Self::Order0Thp => Some("skylake-112"),
            Self::ParallelFree => Some("skylake-4s"),
            Self::Kernbench => Some("epyc2-256"),
            Self::Highalloc => Some("desktop-8"),
            Self::DeferredInit => None,
        }
    }

    /// The default pages that each of many tasks maps, or that the process of a job uses.
    fn pages(self) -> NonZeroU32 {
        match self {
            Self::Kernbench => PROCESS_PAGES,
            _ => USUAL_PAGES,
        }
    }

    /// The same for a quick run.
    fn quick_pages(self) -> NonZeroU32 {
        match self {
            Self::Kernbench => QUICK_PROCESS_PAGES,
            _ => QUICK_PAGES,
        }
    }

    /// Predicts the table and compares.
    fn compared(self, args: &CheckArgs) -> Result<Report, Failure> {
        let Some(usual) = self.machine() else {
            return match (&args.machine, &args.settings[..]) {
                (None, []) => deferred_init::compared(),
                _ => Err(Failure::input("--machine, --set: the table deferred-init has machines of its own")),
            };
        };
        let machine = machine(args.machine.as_deref().unwrap_or(usual))?;
        setting::with_each(&machine, &args.settings, |machine| self.compared_on(machine, args))
    }

    /// The same on a machine.
    fn compared_on(self, machine: &Machine, args: &CheckArgs) -> Result<Report, Failure> {
        let pages = args.pages.unwrap_or(if args.quick.quick { self.quick_pages() } else { self.pages() });
        let effort = args.effort.with_pages(pages);
        let page_faults = |table| Ok(page_fault::compared(machine, table, &args.rows, effort)?.report());
        match self {
            Self::PageFault => page_faults(page_fault::Table::Cpus40),
            Self::PageFault88 => page_faults(page_fault::Table::Cpus88),
            Self::Kernbench => kernbench::compared(machine, effort),
            Self::ZoneLock => zone_lock::compared(machine, effort),
            Self::Order0Thp => {
                let work = if args.quick.quick { order0_thp::Work::quick } else { order0_thp::Work::full };
                order0_thp::compared(machine, work(machine))
            }
            Self::ParallelFree => parallel_free::compared(machine, args.exiting, args.workers),
            Self::DeferredInit => deferred_init::compared(),
            Self::Highalloc => highalloc::compared(machine, args.memory, effort.seed),
        }
    }

    /// The errors of a row of the table's report; `None` where nothing was published, or a fit used the value.
    fn unfitted(self, row: &Row) -> Option<Unfitted> {
        let (number, text) = (|key| row.number(key), |key| row.text(key));
        let points = |error, naive| Some(Unfitted { error: number(error)?, naive: number(naive) });
        match self {
            Self::PageFault | Self::PageFault88 if text("role") == Some(Role::Predicted.name()) => {
                Unfitted::of_fractions(number("error"), number("naive_error"))
            }
            Self::ZoneLock if text("role") == Some(Role::Predicted.name()) => points("difference", "naive_difference"),
            Self::Order0Thp => points("error_pct", "naive_error_pct"),
            Self::Highalloc => Unfitted::new(number("difference"), number("naive_difference")),
            Self::ParallelFree => points("difference_points", "naive_difference_points"),
            Self::Kernbench if row.value("fitted") == &Value::Bool(false) => points("error_pct", "naive_error_pct"),
            Self::DeferredInit if row.value("calibrated") == &Value::Bool(false) => {
                Unfitted::of_fractions(number("error"), number("naive_error"))
            }
            _ => None,
        }
    }
}

/// Predicts and compares.
pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    if args.all { all::run(args) } else { args.table.compared(args)?.print(&args.output) }
}
