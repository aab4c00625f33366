//! `bench parallel-free`: the exit of spaces that hold most of memory.

use std::io::{self, Write};
use std::num::NonZeroU32;

use frameyard::ByteSize;
use serde::Serialize;

use super::comparison::{
    Compared, Comparison, Headline, Row, SettingColumns, Yards, counted, median_first, write_comparison,
};
use crate::Failure;
use crate::cli::ParallelFreeArgs;
use frameyard_workloads::measure::Spread;
use crate::output::{RoundedSize, rounded};
use frameyard_workloads::Setting;
use frameyard_workloads::parallel_free::{self, FreeRun};

/// The name of the command.
const NAME: &str = "bench parallel-free";
/// What people have to know of its rows.
const NOTE: &str = "Medians (least–most) of the runs; the other columns are those of the median run.";
/// Runs of a row, unless asked for otherwise.
const REPEAT: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// Runs every combination of mode, number of workers and policies.
pub(super) fn run(args: &ParallelFreeArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, NAME, Yards::OneForAllPolicies, REPEAT)?;
    let seed = args.comparison.seed;
    let needed = |setting: &Setting| parallel_free::memory_needed(setting.tasks.get());
    let compared = comparison.measure(1, needed, |fixture, setting, _| Ok(parallel_free::run(fixture, setting, seed)?))?;
    let rows: Vec<_> = compared.into_iter().map(|(_, compared)| row(compared)).collect();
    comparison.print(&rows, write_rows, NOTE)
}

/// What is measured. Tasks are workers of one exit, or processes that exit at once.
#[derive(Serialize, Debug)]
pub(in crate::commands) struct Values {
    pages: u64,
    mapped_bytes: u64,
    exit_ns: u64,
    exit_ns_min: u64,
    exit_ns_max: u64,
    pages_per_s: f64,
}

/// The row of a combination.
pub(in crate::commands) fn row(compared: Compared<FreeRun>) -> Row<Values> {
    let Compared { setting, memory, runs } = compared;
    let number = runs.len();
    let time = |run: &FreeRun| run.exit_ns as f64;
    let spread = Spread::of(runs.iter().map(time)).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 });
    let (run, _) = median_first(runs, time);
    Row {
        setting: SettingColumns::of(&setting, memory, number),
        values: Values {
            pages: run.pages.0,
            mapped_bytes: run.pages.0 * ByteSize::kib(4).0,
            exit_ns: run.exit_ns,
            exit_ns_min: spread.min as u64,
            exit_ns_max: spread.max as u64,
            pages_per_s: rounded(run.pages.0 as f64 * 1e9 / run.exit_ns.max(1) as f64),
        },
        counts: counted(&run.counts),
    }
}

/// Writes rows for people.
pub(in crate::commands) fn write_rows(out: &mut dyn Write, rows: &[Row<Values>]) -> io::Result<()> {
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    let headline = |row: &Row<Values>| Headline {
        group: format!("{}, workers: {}; time of the exit", row.setting.mode, row.setting.tasks),
        result: format!("{:.1} ms", milliseconds(row.values.exit_ns)),
    };
    write_comparison(out, rows, headline, ["mapped", "exit ms", "pages/s"], |row| {
        let values = &row.values;
        let [median, least, most] = [values.exit_ns, values.exit_ns_min, values.exit_ns_max].map(milliseconds);
        [
            RoundedSize(ByteSize(values.mapped_bytes)).to_string(),
            format!("{median:.1} ({least:.1}–{most:.1})"),
            format!("{:.0}", values.pages_per_s),
        ]
    })
}
