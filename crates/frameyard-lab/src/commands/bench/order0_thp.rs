//! `bench order0-thp`: tasks with huge pages beside tasks without, in memory that was full of small pages.

use std::io::{self, Write};
use std::num::NonZeroU32;

use serde::Serialize;

use super::comparison::{
    Compared, Comparison, Headline, Row, SettingColumns, Yards, counted, median_first, write_comparison,
};
use crate::Failure;
use crate::cli::Order0ThpArgs;
use frameyard_workloads::measure::Spread;
use crate::output::rounded;
use frameyard_workloads::Setting;
use frameyard_workloads::order0_thp::{self, pages_of_task};
use frameyard_workloads::{MAP_SIZE, Pages};
use frameyard_workloads::timed_run::TaskRun;

/// The name of the command.
const NAME: &str = "bench order0-thp";
/// What people have to know of its rows.
const NOTE: &str =
    "Medians (least–most) of the runs; the other columns are those of the median run, of both kinds together.";
/// Runs of a row, unless asked for otherwise.
const REPEAT: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// Runs every combination of mode, number of tasks of each kind, and policies.
pub(super) fn run(args: &Order0ThpArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, NAME, Yards::OneForEachRun, REPEAT)?;
    let (seed, duration) = (args.comparison.seed, args.duration.duration);
    let needed = |setting: &Setting| order0_thp::memory_needed(setting.tasks.get(), MAP_SIZE);
    let compared =
        comparison.measure(1, needed, |fixture, setting, _| Ok(order0_thp::run(fixture, setting, seed, duration)?))?;
    let rows = compared.iter().flat_map(|(_, compared)| [Pages::Huge, Pages::Small].map(|kind| row(compared, kind)));
    let rows: Vec<_> = rows.collect();
    comparison.print(&rows, write_rows, NOTE)
}

/// What is measured of one kind of tasks. What was counted is of both kinds, which run together.
#[derive(Serialize, Debug)]
pub(in crate::commands) struct Values {
    task_kind: &'static str,
    elapsed_ns: u64,
    iterations_min: u64,
    iterations_max: u64,
    iterations_total: u64,
    pages_per_s: f64,
    pages_per_s_min: f64,
    pages_per_s_max: f64,
}

/// The row of a combination.
pub(in crate::commands) fn row(compared: &Compared<TaskRun>, kind: Pages) -> Row<Values> {
    let Compared { setting, memory, runs } = compared;
    let rate = |run: &TaskRun| run.rate_of(|task| pages_of_task(setting, task) == kind);
    let spread = Spread::of(runs.iter().map(rate)).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 });
    let (run, _) = median_first(runs.clone(), rate);
    let reports = || {
        let of_kind = |(task, _): &(usize, _)| pages_of_task(setting, *task) == kind;
        run.reports.iter().enumerate().filter(of_kind).map(|(_, report)| report)
    };
    let iterations = || reports().map(|report| report.iterations);
    Row {
        setting: SettingColumns::of(setting, *memory, runs.len()),
        values: Values {
            task_kind: kind.name(),
            elapsed_ns: reports().map(|report| report.elapsed_ns).max().unwrap_or(0),
            iterations_min: iterations().min().unwrap_or(0),
            iterations_max: iterations().max().unwrap_or(0),
            iterations_total: iterations().sum(),
            pages_per_s: rounded(rate(&run)),
            pages_per_s_min: rounded(spread.min),
            pages_per_s_max: rounded(spread.max),
        },
        counts: counted(&run.counts),
    }
}

/// Writes rows for people.
pub(in crate::commands) fn write_rows(out: &mut dyn Write, rows: &[Row<Values>]) -> io::Result<()> {
    let headline = |row: &Row<Values>| Headline {
        group: format!(
            "{}, tasks of each kind: {}; pages touched each second by those with {} pages",
            row.setting.mode, row.setting.tasks, row.values.task_kind
        ),
        result: format!("{:.0}", row.values.pages_per_s),
    };
    write_comparison(out, rows, headline, ["kind", "pages/s", "huge pages", "fallbacks"], |row| {
        let values = &row.values;
        [
            values.task_kind.to_owned(),
            format!("{:.0} ({:.0}–{:.0})", values.pages_per_s, values.pages_per_s_min, values.pages_per_s_max),
            row.counts.thp_fault_alloc.to_string(),
            row.counts.thp_fault_fallback.to_string(),
        ]
    })
}
