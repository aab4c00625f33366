//! `bench purge`: pages that are freed on other CPUs than they were allocated on.

use std::io::{self, Write};
use std::num::NonZeroU32;

use serde::Serialize;

use super::comparison::{
    Compared, Comparison, Headline, Row, SettingColumns, Yards, counted, median_first, write_comparison,
};
use crate::Failure;
use crate::cli::PurgeArgs;
use frameyard_workloads::TaskMode;
use frameyard_workloads::measure::Spread;
use crate::output::rounded;
use frameyard_workloads::Setting;
use frameyard_workloads::timed_run::TaskRun;
use frameyard_workloads::purge;

/// The name of the command.
const NAME: &str = "bench purge";
/// What people have to know of its rows.
const NOTE: &str = "Medians (least–most) of the runs; the other columns are those of the median run. Freed elsewhere: on another CPU\n\
    than the one that allocated. Purgers have CPUs of their own where there are two.";
/// Runs of a row, unless asked for otherwise.
const REPEAT: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// Runs every combination of mode, number of tasks and policies.
pub(super) fn run(args: &PurgeArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, NAME, Yards::OneForAllPolicies, REPEAT)?;
    let (seed, duration) = (args.comparison.seed, args.duration.duration);
    let purgers = |setting: &Setting| match setting.mode {
        TaskMode::Threads => args.purgers.map_or_else(|| purge::usual_purgers(setting.tasks.get()), NonZeroU32::get),
        TaskMode::Processes => setting.tasks.get(),
    };
    let needed = |setting: &Setting| purge::memory_needed(setting.tasks.get(), purgers(setting));
    let compared = comparison
        .measure(1, needed, |fixture, setting, _| Ok(purge::run(fixture, setting, purgers(setting), seed, duration)?))?;
    let rows: Vec<_> = compared.into_iter().map(|(_, compared)| row(purgers(&compared.setting), compared)).collect();
    comparison.print(&rows, write_rows, NOTE)
}

/// What is measured.
#[derive(Serialize, Debug)]
pub(in crate::commands) struct Values {
    purgers: u32,
    elapsed_ns: u64,
    iterations_min: u64,
    iterations_max: u64,
    iterations_total: u64,
    pages_per_s: f64,
    pages_per_s_min: f64,
    pages_per_s_max: f64,
    freed_elsewhere_share: Option<f64>,
}

/// The row of a combination.
pub(in crate::commands) fn row(purgers: u32, compared: Compared<TaskRun>) -> Row<Values> {
    let Compared { setting, memory, runs } = compared;
    let number = runs.len();
    let spread = Spread::of(runs.iter().map(TaskRun::rate)).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 });
    let (run, _) = median_first(runs, TaskRun::rate);
    // Purgers, where they are tasks, come behind those that fault.
    let iterations = || run.reports.iter().take(setting.tasks.get() as usize).map(|report| report.iterations);
    let freed: u64 = run.reports.iter().map(|report| report.freed).sum();
    let elsewhere: u64 = run.reports.iter().map(|report| report.freed_elsewhere).sum();
    Row {
        setting: SettingColumns::of(&setting, memory, number),
        values: Values {
            purgers,
            elapsed_ns: run.reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0),
            iterations_min: iterations().min().unwrap_or(0),
            iterations_max: iterations().max().unwrap_or(0),
            iterations_total: iterations().sum(),
            pages_per_s: rounded(run.rate()),
            pages_per_s_min: rounded(spread.min),
            pages_per_s_max: rounded(spread.max),
            freed_elsewhere_share: (freed > 0).then(|| rounded(elsewhere as f64 / freed as f64)),
        },
        counts: counted(&run.counts),
    }
}

/// Writes rows for people.
pub(in crate::commands) fn write_rows(out: &mut dyn Write, rows: &[Row<Values>]) -> io::Result<()> {
    let headline = |row: &Row<Values>| Headline {
        group: format!("{}, tasks: {}; pages faulted in each second", row.setting.mode, row.setting.tasks),
        result: format!("{:.0}", row.values.pages_per_s),
    };
    write_comparison(out, rows, headline, ["purgers", "pages/s", "freed elsewhere %"], |row| {
        let values = &row.values;
        let elsewhere = values.freed_elsewhere_share;
        [
            values.purgers.to_string(),
            format!("{:.0} ({:.0}–{:.0})", values.pages_per_s, values.pages_per_s_min, values.pages_per_s_max),
            elsewhere.map_or_else(|| "-".to_owned(), |share| format!("{:.0}", share * 100.0)),
        ]
    })
}
