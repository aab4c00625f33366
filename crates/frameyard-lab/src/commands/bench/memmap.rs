//! `bench memmap`: initialising a memory map, by initialiser, content, mode, threads, size and job granularity.
//!
//! [`sweep`] decides which rows there are, [`machine`] describes their memory, [`measure`] times one row. This file declares
//! the columns.

mod machine;
mod measure;
mod published;
mod sweep;

use std::num::{NonZeroU32, NonZeroU64};

use clap::Args;
use frameyard::ByteSize;
use frameyard::boot::{InitMode, Initialiser, JobGranularity};
use frameyard::page::MapContent;
use frameyard_host::HostTopology;
use serde_json::{Value, json};

use crate::Failure;
use crate::args::init::{content, granularity, initialiser, mode};
use crate::args::values::{positive_number, positive_size, whole_number};
use crate::args::{FullArgs, OutputArgs, QuickArgs};
use crate::commands::page_zeroing::PublishedZeroing;
use crate::commands::published_table::MEASURED;
use crate::measure::Spread;
use crate::output::{Format, Report, Row, progress_bar, rounded};
use measure::{Bench, Measured};
use sweep::{Case, Sweep};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about two minutes; --quick about 10 seconds; --full adds maps of 16 GiB.

Examples:
  frameyard bench memmap --quick
  frameyard bench memmap --init eager --content kernel --initialiser stream,stores-per-page";

/// Initialises memory maps
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct MemmapArgs {
    /// How pages are written; an initialiser that cannot write a content is left out for it
    #[arg(
        long = "initialiser",
        value_name = "HOW",
        value_delimiter = ',',
        value_parser = initialiser(),
        default_value = "none,two-pass,memset-per-page,stores-per-page,stream"
    )]
    initialisers: Vec<Initialiser>,

    /// Content of pages
    #[arg(long = "content", value_name = "WHAT", value_delimiter = ',', value_parser = content(), default_value = "zero,kernel")]
    contents: Vec<MapContent>,

    /// When the map is initialised
    #[arg(long = "init", value_name = "WHEN", value_delimiter = ',', value_parser = mode(), default_value = "eager,deferred,lazy")]
    modes: Vec<InitMode>,

    /// How the work is divided into jobs
    #[arg(long = "granularity", value_name = "HOW", value_delimiter = ',', value_parser = granularity(), default_value = "sections,ranges", default_value_if("quick", "true", "sections"))]
    granularities: Vec<JobGranularity>,

    /// Numbers of threads; lazy rows have one [default: 1,2,4,… up to the CPUs here; with --quick only those]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = positive_number)]
    threads: Vec<NonZeroU32>,

    /// Sizes of the map in eager and deferred mode [default: 64M,1G; with --full also 16G]
    #[arg(long = "map-size", value_name = "SIZES", value_delimiter = ',', value_parser = positive_size, default_value_if("quick", "true", "64M"))]
    map_sizes: Vec<ByteSize>,

    /// Frames of memory in lazy mode [default: 2^18, 2^22, 2^25 and 2^28]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = positive_count, default_value_if("quick", "true", "2^18,2^22"))]
    frames: Vec<NonZeroU64>,

    /// Holes of one frame in the memory [default: none; the complete sweep has two further rows of each size with 4096
    /// holes, which compare the granularities]
    #[arg(long, value_name = "N", value_parser = whole_number)]
    holes: Option<u64>,

    /// Runs of each row, of which the median is reported
    #[arg(long, value_name = "N", default_value = "5", default_value_if("quick", "true", "2"), value_parser = positive_number)]
    repeat: NonZeroU32,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    full: FullArgs,

    #[command(flatten)]
    output: OutputArgs,
}

fn positive_count(text: &str) -> Result<NonZeroU64, String> {
    let power = |text: &str| text.strip_prefix("2^")?.parse().ok().and_then(|shift| 1u64.checked_shl(shift));
    let count = power(text).or_else(|| text.parse().ok()).and_then(NonZeroU64::new);
    count.ok_or_else(|| "write a whole number from 1, as in 262144 or 2^18".to_owned())
}

const NAME: &str = "bench memmap";
const NOTE: &str = "Medians (minimum–maximum). GB/s are of memory map, which was faulted in before except in lazy rows. The limit is the faster \
    of memset and bare streaming stores on the same memory by as many threads, with zeroes for content zero.";

/// Measures every row of the sweep.
pub(super) fn run(args: &MemmapArgs) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let sweep = Sweep::of(args, &host)?;
    let repeat = args.repeat.get();
    let bar = progress_bar(NAME, sweep.cases().count() as u64 * u64::from(repeat));
    let done = || bar.inc(1);
    let mut bench = Bench::new(&host, repeat, &done);
    let mut rows = Vec::new();
    for (place, cases) in &sweep.groups {
        bench.prepare(*place)?;
        for case in cases {
            rows.push((case.holes, row(case, &bench.measure(case)?)));
        }
    }
    bar.finish_and_clear();
    let published = published::of(&args.initialisers, &args.contents);
    report(rows, args.holes.unwrap_or(0), &published).print(&args.output)
}

/// Rows with `holes` holes are those of the command line. Further rows compare the granularities, under a key of their own.
fn report(rows: Vec<(u64, Row)>, holes: u64, published: &[PublishedZeroing]) -> Report {
    let all: Vec<Row> = rows.iter().map(|(_, row)| row.clone()).collect();
    let (asked, fragmented): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(of, _)| *of == holes);
    let objects = || fragmented.iter().map(|(_, row)| Value::Object(row.object())).collect::<Vec<_>>();
    let fragmented = fragmented.first().map(|(holes, _)| json!({ "holes": holes, "rows": objects() }));
    let measured = asked.into_iter().map(|(_, row)| row);
    let report = Report::new(NAME, measured.chain(published.iter().map(published::row)).collect())
        .of_machine("host")
        .total("backing", "phantom")
        .total("holes", holes)
        .total("fragmented", fragmented)
        .table(all);
    let report = if published.is_empty() {
        report
    } else {
        report.title(published::TITLE).table(published.iter().map(published::table_row))
    };
    report.note(NOTE)
}

/// The row of a case: medians over its runs. What was not measured is null.
fn row(case: &Case, measured: &Measured) -> Row {
    let median = |samples: &[f64]| Spread::of(samples.iter().copied()).map(|spread| spread.median);
    let whole = |samples: &[f64]| median(samples).map(|value| value.round() as u64);
    let rate = |samples: &[f64]| median(samples).map(f64::round);
    let rates = Spread::of(measured.bytes_per_s.iter().copied());
    let rates =
        rates.map(|Spread { median, min, max }| format!("{:.1} ({:.1}–{:.1})", median / 1e9, min / 1e9, max / 1e9));
    let limit_fraction = median(&measured.limit_fraction).map(|part| (part * 1e4).round() / 1e4);
    let ns_per_page = median(&measured.init_ns).map(|ns| rounded(ns / case.place.frames as f64));
    Row::new()
        .data("source", MEASURED)
        .data("machine", "host")
        .column("initialiser", "initialiser", case.initialiser.name())
        .column("content", "content", case.content.name())
        .column("init_mode", "init", case.mode.name())
        .column("granularity", "granularity", case.granularity.name())
        .column("threads", "threads", case.place.threads)
        .column("frames", "frames", case.place.frames)
        .minor()
        .column_as("map_bytes", "map", Format::Size, measured.map_bytes.0)
        .remark("holes", Format::Plain, case.holes)
        .minor()
        .column_as("init_ns", "init ms", Format::millions(2), whole(&measured.init_ns))
        .column_as("ns_per_page", "ns per page", Format::number(2), ns_per_page)
        .remark("GB/s", Format::Plain, rates)
        .data("bytes_per_s", rate(&measured.bytes_per_s))
        .data("fault_ns", measured.fault_ns)
        .data("memset_bytes_per_s", rate(&measured.memset_bytes_per_s))
        .column_as("limit_bytes_per_s", "limit GB/s", Format::billions(1), rate(&measured.limit_bytes_per_s))
        .minor()
        .column_as("limit_fraction", "of limit", Format::number(2), limit_fraction)
        .column_as("first_alloc_ns", "first alloc µs", Format::thousands(1), whole(&measured.first_alloc_ns))
        .minor()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::assert_refused;

    fn read(line: &str) -> Result<MemmapArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn a_bare_sweep_has_every_initialiser_content_and_mode() {
        let args = read("").unwrap();
        assert_eq!(args.initialisers, Initialiser::ALL);
        assert_eq!((args.contents, args.modes), (MapContent::ALL.to_vec(), InitMode::ALL.to_vec()));
        assert_eq!(
            (args.granularities, args.repeat.get(), args.full.full),
            (vec![JobGranularity::Sections, JobGranularity::Ranges], 5, false)
        );
        assert!(args.threads.is_empty() && args.map_sizes.is_empty() && args.frames.is_empty());
    }

    #[test]
    fn axes_are_lists_with_commas() {
        let args =
            read("--initialiser stream,none --threads 1,4 --map-size 64M,2G --frames 2^18,1000000 --holes 7").unwrap();
        assert_eq!(args.initialisers, [Initialiser::Stream, Initialiser::None]);
        assert_eq!(args.threads.iter().map(|threads| threads.get()).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(args.map_sizes, [ByteSize::mib(64), ByteSize::gib(2)]);
        assert_eq!(args.frames.iter().map(|frames| frames.get()).collect::<Vec<_>>(), [1 << 18, 1_000_000]);
        assert_eq!(args.holes, Some(7));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        assert_refused::<MemmapArgs>(&[
            ("--initialiser quick", "possible values: none, two-pass"),
            ("--threads 0", "from 1"),
            ("--map-size 0", "more than nothing"),
            ("--frames 2^64", "as in 262144 or 2^18"),
            ("--frames 0", "as in 262144 or 2^18"),
            ("--granularity nodes", "possible values: ranges, sections"),
        ]);
    }
}
