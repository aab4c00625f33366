//! `bench device-map`: page structures for device memory, by size, geometry and layout, beside published figures.
//!
//! [`sweep`] decides which rows there are, the workload measures one row, [`row`] declares the columns.

mod row;
mod sweep;

use std::num::NonZeroU32;

use clap::Args;
use frameyard::ByteSize;
use frameyard::devices::MapLayout;
use frameyard_host::{DeviceAlignment, HostTopology};
use frameyard_workloads::device_map::{DeviceMapFixture, DeviceMapRun, YardSharing};

use super::compound_pagemap::Figure;
use crate::Failure;
use crate::args::values::{device_alignment, map_layout, positive_number, positive_size, yard_sharing};
use crate::args::{FullArgs, OutputArgs, QuickArgs};
use crate::output::{Report, Row, progress_bar};
use sweep::{Case, Group, groups};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about three minutes; --quick about 10 seconds; --full adds page structures of more than 4 GiB.

Examples:
  frameyard bench device-map --quick
  frameyard bench device-map --size 1T --geometry 1G
  frameyard bench device-map --size 1T --geometry 4K --layout full --full";

/// Gives device memory page structures, in every geometry and layout
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct DeviceMapArgs {
    /// Sizes of the device, multiples of its pages [default: 256G,1T; with 4K pages 16G,1T]
    #[arg(long = "size", value_name = "SIZES", value_delimiter = ',', value_parser = positive_size, default_value_if("quick", "true", "64G"))]
    sizes: Vec<ByteSize>,

    /// Sizes of its pages: 4K, 2M, 1G [default: all; with --size 2M,1G]
    #[arg(long = "geometry", value_name = "SIZES", value_delimiter = ',', value_parser = device_alignment)]
    geometries: Vec<DeviceAlignment>,

    /// Which page structures are written; rows without enough memory are left out unless --size names them
    #[arg(long = "layout", value_name = "LAYOUTS", value_delimiter = ',', value_parser = map_layout(), default_value = "full,deduplicated,deduplicated-two,folded")]
    layouts: Vec<MapLayout>,

    /// Most of a device that is mapped at a time, a power of two. A larger one is measured in pieces, one after another; times and
    /// sizes are their sums [default: what memory suffices for]
    #[arg(long = "piece", value_name = "SIZE", value_parser = positive_size)]
    piece: Option<ByteSize>,

    /// Which processes use the yard [default: private; in the bare sweep also shared, for 1T in 1G pages]
    #[arg(long = "yard", value_name = "YARDS", value_delimiter = ',', value_parser = yard_sharing())]
    yards: Vec<YardSharing>,

    /// Runs of each row, which alternate; the median is reported
    #[arg(long, value_name = "N", default_value = "3", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    repeat: NonZeroU32,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    full: FullArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "bench device-map";
const NOTE: &str = "Medians (minimum–maximum) of runs that alternate. Resident: proportional size of the map's addresses after every tail was \
    read; page tables: those that the process has in addition then. Host alone: the time in which the host provides the same \
    pages when one byte of each is written and nothing else. Published figures are of kernels: 4K before, 2M and 1G after the \
    series, which keeps two map pages of each compound page, as deduplicated-two does.";

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
            match fixture.run_in_pieces(case.shape, case.pieces)? {
                Ok(run) => runs.push(run),
                Err(reason) => case.left_out = Some(reason),
            }
            done();
        }
    }
    let row = |(case, runs): (&Case, Vec<DeviceMapRun>)| row::measured(case, group, &runs, fixture.threads());
    Ok(cases.iter().zip(runs).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::assert_refused;

    fn read(line: &str) -> Result<DeviceMapArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn axes_are_lists_with_commas() {
        let args = read("--size 1G,2T --geometry 2M,1g --layout folded").unwrap();
        assert_eq!(args.sizes, [ByteSize::gib(1), ByteSize(2 << 40)]);
        assert_eq!(args.geometries, [DeviceAlignment::Huge, DeviceAlignment::Gigantic]);
        assert_eq!((args.layouts, args.repeat.get()), (vec![MapLayout::Folded], 3));
        let args = read("").unwrap();
        assert!(args.sizes.is_empty() && args.geometries.is_empty());
        assert_eq!(args.layouts, MapLayout::ALL);
    }

    #[test]
    fn refusals_name_a_correct_value() {
        assert_refused::<DeviceMapArgs>(&[
            ("--geometry 3M", "write 4K, 2M or 1G"),
            ("--layout sparse", "possible values: full, deduplicated, deduplicated-two, folded"),
            ("--size 0", "more than nothing"),
            ("--repeat 0", "from 1"),
        ]);
    }
}
