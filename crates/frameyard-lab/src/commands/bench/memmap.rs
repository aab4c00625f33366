//! `bench memmap`: initialising a memory map, by initialiser, content, mode, threads, size and job granularity.
//!
//! [`sweep`] decides which rows there are, [`machine`] describes their memory, [`measure`] times one row. This file declares
//! the columns.

mod machine;
mod measure;
mod sweep;

use frameyard_host::HostTopology;
use serde_json::{Value, json};

use crate::Failure;
use crate::cli::MemmapArgs;
use crate::measure::Spread;
use crate::output::{Format, Report, Row, progress_bar};

use measure::{Bench, Measured};
use sweep::{Case, Sweep};

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
    report(rows, args.holes.unwrap_or(0)).print(&args.output)
}

/// Rows with `holes` holes are those of the command line. Further rows compare the granularities, under a key of their own.
fn report(rows: Vec<(u64, Row)>, holes: u64) -> Report {
    let all: Vec<Row> = rows.iter().map(|(_, row)| row.clone()).collect();
    let (asked, fragmented): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(of, _)| *of == holes);
    let objects = || fragmented.iter().map(|(_, row)| Value::Object(row.object())).collect::<Vec<_>>();
    let fragmented = fragmented.first().map(|(holes, _)| json!({ "holes": holes, "rows": objects() }));
    Report::new(NAME, asked.into_iter().map(|(_, row)| row).collect())
        .of_machine("host")
        .total("backing", "phantom")
        .total("holes", holes)
        .total("fragmented", fragmented)
        .table(all)
        .note(NOTE)
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
    Row::new()
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
