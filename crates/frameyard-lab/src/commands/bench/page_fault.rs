//! `bench page-fault`: the loop of will-it-scale's page_fault1.

use std::io::{self, Write};
use std::num::NonZeroU32;

use frameyard::ByteSize;
use serde::Serialize;

use super::comparison::{
    Compared, Comparison, Headline, Row, SettingColumns, Yards, counted, median_first, write_comparison,
};
use crate::Failure;
use crate::cli::PageFaultArgs;
use frameyard_workloads::measure::Spread;
use crate::output::rounded;
use frameyard_workloads::Setting;
use frameyard_workloads::page_fault;
use frameyard_workloads::{MAP_SIZE};
use frameyard_workloads::timed_run::TaskRun;

mod will_it_scale;

/// The name of the command.
const NAME: &str = "bench page-fault";
/// What people have to know of its rows.
const NOTE: &str = "Medians (least–most) of the runs; the other columns are those of the median run. A page is touched by a function\n\
    call here: figures of a kernel's own page_fault1 include hardware exceptions and system calls.";
/// Runs of a row, unless asked for otherwise.
const REPEAT: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// Runs every combination of mode, number of tasks and policies.
pub(super) fn run(args: &PageFaultArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, NAME, Yards::OneForAllPolicies, REPEAT)?;
    let needed = |setting: &Setting| page_fault::memory_needed(setting.tasks.get(), MAP_SIZE);
    let (seed, duration) = (args.comparison.seed, args.duration.duration);
    let compared =
        comparison.measure(1, needed, |fixture, setting, _| Ok(page_fault::run(fixture, setting, seed, duration)?))?;
    let rows: Vec<Row<Values>> = compared.into_iter().map(|(_, compared)| row(compared, MAP_SIZE)).collect();
    if let Some(file) = &args.csv {
        will_it_scale::write(file, &rows)?;
    }
    comparison.print(&rows, write_rows, NOTE)
}

/// What is measured. An iteration is a page of 4 KiB touched.
#[derive(Serialize, Debug)]
pub(in crate::commands) struct Values {
    map_bytes: u64,
    elapsed_ns: u64,
    iterations_min: u64,
    iterations_max: u64,
    iterations_total: u64,
    pages_per_s: f64,
    pages_per_s_min: f64,
    pages_per_s_max: f64,
    page_ns: f64,
    idle_share: Option<f64>,
}

/// The row of a combination.
pub(in crate::commands) fn row(compared: Compared<TaskRun>, map: ByteSize) -> Row<Values> {
    let Compared { setting, memory, runs } = compared;
    let number = runs.len();
    let spread = Spread::of(runs.iter().map(TaskRun::rate)).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 });
    let (run, _) = median_first(runs, TaskRun::rate);
    let iterations = || run.reports.iter().map(|report| report.iterations);
    Row {
        setting: SettingColumns::of(&setting, memory, number),
        values: Values {
            map_bytes: map.0,
            elapsed_ns: run.reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0),
            iterations_min: iterations().min().unwrap_or(0),
            iterations_max: iterations().max().unwrap_or(0),
            iterations_total: iterations().sum(),
            pages_per_s: rounded(run.rate()),
            pages_per_s_min: rounded(spread.min),
            pages_per_s_max: rounded(spread.max),
            page_ns: rounded(run.reports.len() as f64 * 1e9 / run.rate()),
            idle_share: run.idle,
        },
        counts: counted(&run.counts),
    }
}

/// Writes rows for people.
pub(in crate::commands) fn write_rows(out: &mut dyn Write, rows: &[Row<Values>]) -> io::Result<()> {
    let headline = |row: &Row<Values>| Headline {
        group: format!("{}, tasks: {}; pages touched each second", row.setting.mode, row.setting.tasks),
        result: format!("{:.0}", row.values.pages_per_s),
    };
    let headings = ["pages/s", "ns/page", "fewest", "most", "total"];
    write_comparison(out, rows, headline, headings, |row| {
        let values = &row.values;
        [
            format!("{:.0} ({:.0}–{:.0})", values.pages_per_s, values.pages_per_s_min, values.pages_per_s_max),
            format!("{:.0}", values.page_ns),
            values.iterations_min.to_string(),
            values.iterations_max.to_string(),
            values.iterations_total.to_string(),
        ]
    })
}
