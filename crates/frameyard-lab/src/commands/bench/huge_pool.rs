//! `bench huge-pool`: what a pool of huge pages costs and saves, beside published figures of hugetlb.

use std::num::NonZeroU32;

use clap::Args;
use clap::builder::TypedValueParser;
use frameyard::ByteSize;
use frameyard::huge_pages::HugePageSize;
use frameyard_host::{DeviceAlignment, HostTopology};
use frameyard_workloads::device_map::YardSharing;
use frameyard_workloads::huge_pool::{self, HugePoolRun, MapBefore, PoolShape};

use super::compound_pagemap::{Figure, figures};
use crate::Failure;
use crate::args::values::{device_alignment, named_with_help, positive_number, positive_size, yard_sharing};
use crate::args::{OutputArgs, QuickArgs};
use crate::commands::published_table::{MEASURED, PUBLISHED};
use crate::measure::Spread;
use crate::output::{Format, Report, RoundedSize, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about a minute; --quick about 5 seconds.

Examples:
  frameyard bench huge-pool --quick
  frameyard bench huge-pool --size 64G --geometry 2M --before written,written-huge";

/// Reserves a pool of huge pages, hands its pages out and gives them up
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct HugePoolArgs {
    /// Size of the pool, a multiple of its pages
    #[arg(long, value_name = "SIZE", default_value = "64G", default_value_if("quick", "true", "4G"), value_parser = positive_size)]
    size: ByteSize,

    /// Sizes of its pages: 2M, 1G
    #[arg(long = "geometry", value_name = "SIZES", value_delimiter = ',', value_parser = device_alignment, default_value = "2M,1G")]
    geometries: Vec<DeviceAlignment>,

    /// The memory map before
    #[arg(long = "before", value_name = "MAPS", value_delimiter = ',', value_parser = before(), default_value = "written,written-huge,fresh")]
    before: Vec<MapBefore>,

    /// Which processes use the yard
    #[arg(long = "yard", value_name = "YARDS", value_delimiter = ',', value_parser = yard_sharing(), default_value = "private")]
    yards: Vec<YardSharing>,

    /// Runs of each row, which alternate; the median is reported
    #[arg(long, value_name = "N", default_value = "3", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    repeat: NonZeroU32,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn before() -> impl TypedValueParser<Value = MapBefore> {
    named_with_help(MapBefore::ALL, MapBefore::name, |before| match before {
        MapBefore::Written => "Every page structure is written, as by a kernel at boot",
        MapBefore::WrittenHuge => "The same, in transparent huge pages of the host",
        MapBefore::Fresh => "Untouched memory, of which only heads of blocks are written",
    })
}

const NAME: &str = "bench huge-pool";
const NOTE: &str = "Medians (minimum–maximum) of runs that alternate, each in a new yard. Map: memory behind the page structures of the \
    pool; after all pages were handed out and taken back, and every tail was read. Saved: of 8 map pages of 4 KiB in 2M pages, of 4096 \
    in 1G pages. Reserve, hand out, take back, give up: ns per page. Published figures are of hugetlb.";
/// The map of a pool may take one part in this many of the available memory.
const SHARE: u64 = 2;

/// Measures every row.
pub(super) fn run(args: &HugePoolArgs) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let shapes = shapes(args, &host)?;
    let bar = progress_bar(NAME, shapes.len() as u64 * u64::from(args.repeat.get()));
    let mut runs: Vec<Vec<HugePoolRun>> = shapes.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.repeat.get() {
        for (shape, runs) in shapes.iter().zip(&mut runs) {
            runs.push(huge_pool::run(*shape, &host)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let measured: Vec<Row> = shapes.iter().zip(&runs).map(|(shape, runs)| row(Some(*shape), runs, None)).collect();
    let published = figures(&["hugetlb_map"]);
    let rows = measured.iter().cloned().chain(published.iter().map(|figure| row(None, &[], Some(figure)))).collect();
    let report = Report::new(NAME, rows).table(measured).table(published.iter().map(Figure::table_row));
    report.note(NOTE).print(&args.output)
}

/// The pools that the options request.
fn shapes(args: &HugePoolArgs, host: &HostTopology) -> Result<Vec<PoolShape>, Failure> {
    let available = host.available_memory().map_err(Failure::run_time)?;
    let mut shapes = Vec::new();
    for geometry in &args.geometries {
        let page = match geometry {
            DeviceAlignment::Base => {
                return Err(Failure::input(format!("{NAME} --geometry 4K: a pool has huge pages; write 2M or 1G")));
            }
            DeviceAlignment::Huge => HugePageSize::Huge,
            DeviceAlignment::Gigantic => HugePageSize::Gigantic,
        };
        if !args.size.0.is_multiple_of(geometry.size().0) {
            return Err(Failure::input(format!("{NAME} --size {}: write a multiple of {geometry}", args.size)));
        }
        for &yard in &args.yards {
            // The host decides on huge pages of memory files.
            let before =
                args.before.iter().filter(|before| yard == YardSharing::Private || **before == MapBefore::Written);
            shapes.extend(before.map(|&before| PoolShape { size: args.size, page, before, yard }));
        }
    }
    let needed = shapes.iter().map(|shape| shape.full_map()).max().unwrap_or_default();
    if needed.0 > available.0 / SHARE {
        let (needed, available) = (RoundedSize(needed), RoundedSize(ByteSize(available.0 / SHARE)));
        return Err(Failure::input(format!(
            "{NAME} --size {}: its page structures take {needed}, and {available} can be used here: write a smaller size",
            args.size
        )));
    }
    Ok(shapes)
}

/// The row of some runs, or of a published figure. Times are medians, sizes are those of the last run.
fn row(shape: Option<PoolShape>, runs: &[HugePoolRun], figure: Option<&Figure>) -> Row {
    let pages = shape.map(PoolShape::pages);
    let each = |of: fn(&HugePoolRun) -> u64| {
        let per_page = runs.iter().map(|run| of(run) as f64 / pages.unwrap_or(1).max(1) as f64);
        Spread::of(per_page).map(|spread| spread.map(|ns| ns as u64))
    };
    let all = |of: fn(&HugePoolRun) -> u64| {
        Spread::of(runs.iter().map(|run| of(run) as f64)).map(|spread| spread.map(|ns| ns as u64))
    };
    let (geometry, saved) = match (figure, shape) {
        (Some(figure), _) => (figure.series.geometry(), Some(figure.value)),
        (None, Some(shape)) => {
            let name = if shape.page == HugePageSize::Huge { DeviceAlignment::Huge } else { DeviceAlignment::Gigantic };
            let saved = runs.last().filter(|_| shape.before != MapBefore::Fresh).map(|run| {
                rounded(run.before.0.saturating_sub(run.resident.0) as f64 / 4096.0 / shape.pages().max(1) as f64)
            });
            (Some(name.name()), saved)
        }
        (None, None) => (None, None),
    };
    let last = runs.last();
    Row::new()
        .data("source", if figure.is_some() { PUBLISHED } else { MEASURED })
        .column("yard", "yard", shape.map(|shape| shape.yard.name()))
        .column_as("size_bytes", "size", Format::Size, shape.map(|shape| shape.size.0))
        .column("geometry", "pages", geometry)
        .data("layout", "deduplicated")
        .column("before", "map before", shape.map(|shape| shape.before.name()))
        .data("runs", last.map(|_| runs.len()))
        .data("pages", pages)
        .column_as("map_bytes_before", "map", Format::Size, last.map(|run| run.before.0))
        .column_as("map_bytes_resident", "after", Format::Size, last.map(|run| run.resident.0))
        .column_as("map_bytes_equation", "by equation", Format::Size, shape.map(|shape| shape.map_bytes().0))
        .minor()
        .column_as("map_pages_saved", "saved", Format::number(1), saved)
        .column("mappings", "mappings", last.map(|run| run.mappings))
        .minor()
        .spread("bring_up_ns", "reserve ms", Format::millions(2), all(|run| run.reserve_ns))
        .spread("reserve_page_ns", "reserve", Format::number(0), each(|run| run.reserve_ns))
        .spread("hand_out_page_ns", "hand out", Format::number(0), each(|run| run.hand_out_ns))
        .spread("take_back_page_ns", "take back", Format::number(0), each(|run| run.take_back_ns))
        .spread("shrink_page_ns", "give up", Format::number(0), each(|run| run.shrink_ns))
        .followed_by(Figure::columns(figure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{assert_refused, read};

    #[test]
    fn published_figures_have_the_keys_of_measured_rows() {
        let rows: Vec<Row> = figures(&["hugetlb_map"]).iter().map(|figure| row(None, &[], Some(figure))).collect();
        let found: Vec<_> = rows.iter().map(|row| (row.text("geometry"), row.number("map_pages_saved"))).collect();
        assert_eq!(found, [(Some("4K"), Some(0.0)), (Some("2M"), Some(7.0)), (Some("1G"), Some(4095.0))]);
        let shape = PoolShape {
            size: ByteSize::gib(1),
            page: HugePageSize::Huge,
            before: MapBefore::Written,
            yard: YardSharing::Private,
        };
        let run = HugePoolRun { before: shape.full_map(), resident: shape.map_bytes(), ..HugePoolRun::default() };
        let measured = row(Some(shape), &[run], None);
        assert!(measured.keys().eq(rows[0].keys()));
        assert_eq!((measured.number("map_pages_saved"), measured.number("pages")), (Some(7.0), Some(512.0)));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        assert_refused::<HugePoolArgs>(&[
            ("--geometry 3M", "write 4K, 2M or 1G"),
            ("--before cold", "possible values: written, written-huge, fresh"),
            ("--size 0", "more than nothing"),
        ]);
        let args: HugePoolArgs = read("--size 3M").unwrap();
        let host = HostTopology::current().unwrap();
        assert!(shapes(&args, &host).unwrap_err().to_string().contains("write a multiple of 2M"));
        let args: HugePoolArgs = read("--geometry 4K").unwrap();
        assert!(shapes(&args, &host).unwrap_err().to_string().contains("write 2M or 1G"));
        let args: HugePoolArgs = read("--yard private,shared --size 1G").unwrap();
        assert_eq!(shapes(&args, &host).unwrap().len(), 8);
    }
}
