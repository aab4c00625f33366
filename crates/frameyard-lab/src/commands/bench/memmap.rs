//! `bench memmap`: bringing up a memory map, by initialiser, content, mode, threads, size and way of cutting.
//!
//! [`sweep`] says which rows there are; [`machine`] what memory they have; [`measure`] times one; here rows are
//! rendered.

mod machine;
mod measure;
mod sweep;

use std::io::{self, Write};

use frameyard_host::HostTopology;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::cli::MemmapArgs;
use frameyard_workloads::measure::Spread;
use crate::output::{self, Outcome, RoundedSize, RowError, Rows, Table, progress_bar};

use measure::{Bench, Measured};
use sweep::{Case, Sweep};

/// Measures every row of the sweep.
pub(super) fn run(args: &MemmapArgs) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let sweep = Sweep::of(args, &host)?;
    let repeat = args.repeat.get();
    let bar = progress_bar("bench memmap", sweep.cases().count() as u64 * u64::from(repeat));
    let done = || bar.inc(1);
    let mut bench = Bench::new(&host, repeat, &done);
    let mut rows = Vec::new();
    for (place, cases) in &sweep.groups {
        bench.prepare(*place)?;
        for case in cases {
            let measured = bench.measure(case)?;
            rows.push((Row::new(case, &measured), Spread::of(measured.bytes_per_s)));
        }
    }
    bar.finish_and_clear();
    output::print(&Measurements { rows, holes: args.holes.unwrap_or(0) }, &args.output)
}

/// A row: medians over its runs; `None` for what is not measured.
#[derive(Serialize, Debug)]
struct Row {
    initialiser: &'static str,
    content: &'static str,
    init_mode: &'static str,
    cutting: &'static str,
    threads: usize,
    frames: u64,
    map_bytes: u64,
    /// Frames left out singly: the same for all rows of a table.
    #[serde(skip)]
    holes: u64,
    init_ns: Option<u64>,
    bytes_per_s: Option<f64>,
    fault_ns: Option<u64>,
    memset_bytes_per_s: Option<f64>,
    limit_bytes_per_s: Option<f64>,
    limit_fraction: Option<f64>,
    first_alloc_ns: Option<u64>,
}

impl Row {
    fn new(case: &Case, measured: &Measured) -> Self {
        let median = |samples: &[f64]| Spread::of(samples.iter().copied()).map(|spread| spread.median);
        let whole = |samples: &[f64]| median(samples).map(|value| value.round() as u64);
        let rate = |samples: &[f64]| median(samples).map(f64::round);
        Self {
            initialiser: case.initialiser.name(),
            content: case.content.name(),
            init_mode: case.mode.name(),
            cutting: case.cutting.name(),
            threads: case.place.threads,
            frames: case.place.frames,
            map_bytes: measured.map_bytes.0,
            holes: case.holes,
            init_ns: whole(&measured.init_ns),
            bytes_per_s: rate(&measured.bytes_per_s),
            fault_ns: measured.fault_ns,
            memset_bytes_per_s: rate(&measured.memset_bytes_per_s),
            limit_bytes_per_s: rate(&measured.limit_bytes_per_s),
            limit_fraction: median(&measured.limit_fraction).map(|part| (part * 1e4).round() / 1e4),
            first_alloc_ns: whole(&measured.first_alloc_ns),
        }
    }

    fn cells(&self, rates: Option<Spread>) -> [String; 13] {
        let missing = || "-".to_owned();
        let rate = |rate: Option<f64>| rate.map_or_else(missing, |rate| format!("{:.1}", rate / 1e9));
        let ms = |ns: Option<u64>| ns.map_or_else(missing, |ns| format!("{:.2}", ns as f64 / 1e6));
        [
            self.initialiser.to_owned(),
            self.content.to_owned(),
            self.init_mode.to_owned(),
            self.cutting.to_owned(),
            self.threads.to_string(),
            self.frames.to_string(),
            RoundedSize(frameyard::ByteSize(self.map_bytes)).to_string(),
            self.holes.to_string(),
            ms(self.init_ns),
            rates.map_or_else(missing, |Spread { median, min, max }| {
                format!("{:.1} ({:.1}–{:.1})", median / 1e9, min / 1e9, max / 1e9)
            }),
            rate(self.limit_bytes_per_s),
            self.limit_fraction.map_or_else(missing, |part| format!("{part:.2}")),
            self.first_alloc_ns.map_or_else(missing, |ns| format!("{:.1}", ns as f64 / 1e3)),
        ]
    }
}

/// All rows of a run, and how their rates spread.
struct Measurements {
    rows: Vec<(Row, Option<Spread>)>,
    /// Of the rows that were asked for; those that compare the cuttings have others.
    holes: u64,
}

impl Measurements {
    fn with_holes(&self, chosen: impl Fn(u64) -> bool) -> Vec<&Row> {
        self.rows.iter().map(|(row, _)| row).filter(|row| chosen(row.holes)).collect()
    }
}

impl Outcome for Measurements {
    fn command(&self) -> &'static str {
        "bench memmap"
    }

    fn machine(&self) -> Option<&str> {
        Some("host")
    }

    fn totals(&self) -> Map<String, Value> {
        let fragmented = self.with_holes(|holes| holes != self.holes);
        let holes = fragmented.first().map(|row| row.holes);
        let fragmented = holes.map(|holes| json!({ "holes": holes, "rows": fragmented }));
        Map::from_iter([
            ("backing".to_owned(), Value::from("phantom")),
            ("holes".to_owned(), self.holes.into()),
            ("fragmented".to_owned(), fragmented.into()),
        ])
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.with_holes(|holes| holes == self.holes))
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new([
            "initialiser",
            "content",
            "init",
            "cutting",
            "threads",
            "frames",
            "map",
            "holes",
            "init ms",
            "GB/s",
            "limit GB/s",
            "of limit",
            "first alloc µs",
        ]);
        for (row, rates) in &self.rows {
            table.push(row.cells(*rates));
        }
        table.write(out)?;
        writeln!(
            out,
            "\nMedians (least–most). GB/s are of memory map, faulted in before but for lazy rows. The limit is the faster of memset \
             and bare streaming stores on the same memory, by as many threads, with zeroes for content zero."
        )
    }
}
