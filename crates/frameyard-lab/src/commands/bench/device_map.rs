//! `bench device-map`: page structures for device memory, by size, geometry and layout, beside published figures.
//!
//! [`sweep`] says which rows there are; the workload measures one; [`row`] is what is said of it.

use frameyard_host::HostTopology;

use crate::Failure;
use crate::cli::DeviceMapArgs;
use crate::output::{self, progress_bar};
use frameyard_workloads::device_map::{DeviceMapFixture, DeviceMapRun};

mod row;
mod sweep;
mod text;

use row::Row;
use sweep::{Case, Group, groups};
use text::DeviceMapOutcome;

/// The name of the command.
const NAME: &str = "bench device-map";

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
    rows.extend(row::published());
    output::print(&DeviceMapOutcome { rows }, &args.output)
}

/// Runs the layouts of a size and geometry, by turns on one yard.
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
    let row = |(case, runs): (&Case, Vec<DeviceMapRun>)| Row::measured(case, group, &runs, fixture.threads());
    Ok(cases.iter().zip(runs).map(row).collect())
}
