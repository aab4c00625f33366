//! `sim check`: compares predictions with published measurements, row by row.
//!
//! Each table is a file of its own: what it predicts, and what it sums up.

mod csv;
mod kernbench;
mod page_fault;
mod parallel_free;
mod zone_lock;

use std::fs;
use std::path::Path;

use frameyard_sim::Effort;

use super::machine::machine;
use crate::Failure;
use crate::cli::{CheckArgs, CheckedTable};
use crate::output::{self, Outcome};

/// Predicts, and compares.
pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let machine = machine(args.machine.as_deref().unwrap_or(args.table.machine()))?;
    let pages = args.pages.unwrap_or(args.table.pages());
    let effort = Effort { pages: pages.get(), rounds: args.effort.mappings.get(), seed: args.effort.seed };
    let outcome: Box<dyn Outcome> = match args.table {
        CheckedTable::PageFault => Box::new(page_fault::compared(&machine, &args.rows, effort)?),
        CheckedTable::Kernbench => Box::new(kernbench::compared(&machine, effort)?),
        CheckedTable::ZoneLock => Box::new(zone_lock::compared(&machine, effort)?),
        CheckedTable::ParallelFree => Box::new(parallel_free::compared(&machine, args.exiting, args.workers)?),
    };
    if let Some(file) = &args.csv {
        write_csv(file, outcome.as_ref())?;
    }
    output::print(outcome.as_ref(), &args.output)
}

fn write_csv(file: &Path, outcome: &dyn Outcome) -> Result<(), Failure> {
    let text = csv::text(&outcome.rows().map_err(Failure::run_time)?);
    fs::write(file, text).map_err(|error| Failure::run_time(format!("{}: cannot write: {error}", file.display())))
}
