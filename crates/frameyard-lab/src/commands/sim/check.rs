//! `sim check`: compares predictions with published measurements, row by row.
//!
//! Each table has its own file, with its predictions and its summary.

mod kernbench;
mod page_fault;
mod parallel_free;
mod zone_lock;

use frameyard_sim::Effort;

use crate::Failure;
use crate::cli::{CheckArgs, CheckedTable};
use crate::commands::simulated_machine::machine;
use crate::output::Report;

/// Predicts and compares.
pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let machine = machine(args.machine.as_deref().unwrap_or(args.table.machine()))?;
    let pages = args.pages.unwrap_or(args.table.pages());
    let effort = Effort { pages: pages.get(), rounds: args.effort.mappings.get(), seed: args.effort.seed };
    let report: Report = match args.table {
        CheckedTable::PageFault => page_fault::compared(&machine, &args.rows, effort)?.report(),
        CheckedTable::Kernbench => kernbench::compared(&machine, effort)?,
        CheckedTable::ZoneLock => zone_lock::compared(&machine, effort)?,
        CheckedTable::ParallelFree => parallel_free::compared(&machine, args.exiting, args.workers)?,
    };
    report.print(&args.output)
}
