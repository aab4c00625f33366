//! `bench device-map`: page structures for device memory, by size, geometry and layout, beside published figures.
//!
//! [`sweep`] decides which rows there are, the workload measures one row, [`row`] declares the columns.

use frameyard_host::HostTopology;

use super::compound_pagemap::Figure;
use crate::Failure;
use crate::cli::DeviceMapArgs;
use crate::output::{Report, Row, progress_bar};
use frameyard_workloads::device_map::{DeviceMapFixture, DeviceMapRun};

mod row;
mod sweep;

use sweep::{Case, Group, groups};

const NAME: &str = "bench device-map";
const NOTE: &str = "Medians (minimum–maximum) of runs that alternate. Resident: proportional size of the map's addresses after every tail was \
    read; page tables: those that the process has in addition then. Host alone: the time in which the host provides the same \
    pages when one byte of each is written and nothing else. Published figures are of kernels: 4K before, 2M and 1G after the \
    series, which keeps two map pages of each compound page.";

/// Measures every row of the sweep.
pub(super) fn run(args: &DeviceMapArgs) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let groups = groups(args, &host)?;
    let cases = groups.iter().flat_map(|group| &group.cases).filter(|case| case.left_out.is_none()).count();
    let bar = progress_bar(NAME, cases as u64 * u64::from(args.repeat.get()));
    let mut rows = Vec::new();
    for group in &groups {
        rows.extend(measure(group, args.repeat.get(), &host, &|| bar.inc(1))?);
    }
    bar.finish_and_clear();
    let (measured, published) = (rows.clone(), row::published());
    rows.extend(published.iter().map(row::of_figure));
    let left_out = measured.iter().filter_map(|row| row.text("left_out")).map(|reason| format!("left out: {reason}\n"));
    let left_out: String = left_out.collect();
    Report::new(NAME, rows)
        .table(measured)
        .verbatim(left_out)
        .table(published.iter().map(Figure::table_row))
        .note(NOTE)
        .print(&args.output)
}

/// Runs the layouts of a size and geometry in alternation on one yard.
fn measure(group: &Group, repeat: u32, host: &HostTopology, done: &dyn Fn()) -> Result<Vec<Row>, Failure> {
    let fixture = DeviceMapFixture::new(group.size, group.yard, host)?;
    let mut cases = group.cases.clone();
    let mut runs: Vec<Vec<DeviceMapRun>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..repeat {
        for (case, runs) in cases.iter_mut().zip(&mut runs).filter(|(case, _)| case.left_out.is_none()) {
            match fixture.run(case.shape)? {
                Ok(run) => runs.push(run),
                Err(reason) => case.left_out = Some(reason),
            }
            done();
        }
    }
    let row = |(case, runs): (&Case, Vec<DeviceMapRun>)| row::measured(case, group, &runs, fixture.threads());
    Ok(cases.iter().zip(runs).map(row).collect())
}
