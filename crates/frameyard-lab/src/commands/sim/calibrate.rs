//! `sim calibrate`: fits the free parameters of a machine on rows of a published table.

use std::fs;
use std::io::{self, Write};

use frameyard_sim::{
    Crew, Effort, FaultPredictor, Fit, FitError, Fitted, FittedParameter, Machine, Point, Selection, Start, record,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::machine::machine_and_text;
use super::published::{self, predictors};
use crate::Failure;
use crate::cli::{CalibrateArgs, FittedTable};
use crate::output::{self, Outcome, RowError, Rows, Table};

/// The rows that are fitted on where none are named. Of faults by tasks, what scales apart from the zone lock, and the stock
/// kernel at four numbers of tasks; of all CPUs, the stock kernel and one that waits for the lists of used pages alone.
const fn usual_rows(table: FittedTable) -> &'static [&'static str] {
    match table {
        FittedTable::PageFault => &[
            "big-pcp/processes/1,5,10,20,30,40",
            "big-pcp/threads/1,5,10,20,30,40",
            "vanilla-4.16/processes/1,5,10,40",
            "vanilla-4.16/threads/1,5,10,40",
        ],
        FittedTable::ZoneLock => &["vanilla-4.16/processes/112", "cluster/processes/112"],
    }
}

/// Fits.
pub(super) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let (mut machine, text) = machine_and_text(args.machine.as_deref().unwrap_or(args.table.machine()))?;
    if !args.parameters.is_empty() {
        machine.calibration.parameters.clone_from(&args.parameters);
    }
    let selections = selections(args)?;
    let rows = rows(&selections, args.table, &machine)?;
    let fit = Fit { machine: &machine, rows, rounds: args.rounds.get() };
    let bar = output::progress_bar("fitting", fit.most_predictions().map_err(failure)?);
    let [mut quick, mut thorough] = crews(args);
    let fitted = fit.run(&mut quick, &mut thorough, &|| bar.inc(1)).map_err(failure)?;
    bar.finish_and_clear();
    if let Some(file) = &args.write {
        let text = record(&text, &fitted, args.table.name(), &selections).map_err(Failure::run_time)?;
        let failed = |error| Failure::run_time(format!("{}: cannot write: {error}", file.display()));
        fs::write(file, text).map_err(failed)?;
    }
    output::print(&Calibrated { rows: fit.rows, fitted }, &args.output)
}

/// Who predicts while the fit searches, and who sees what it found.
fn crews(args: &CalibrateArgs) -> [Crew<FaultPredictor>; 2] {
    let [few, more] = args.table.pages();
    let start = match args.table {
        FittedTable::PageFault => Start::Apart,
        FittedTable::ZoneLock => Start::Together,
    };
    [args.pages.unwrap_or(few), args.final_pages.unwrap_or(more)].map(|pages| {
        let effort = Effort { pages: pages.get(), rounds: args.effort.mappings.get(), seed: args.effort.seed };
        predictors(FaultPredictor { start, ..FaultPredictor::new(effort) })
    })
}

fn selections(args: &CalibrateArgs) -> Result<Vec<Selection>, Failure> {
    if !args.rows.is_empty() {
        return Ok(args.rows.clone());
    }
    usual_rows(args.table).iter().map(|rows| rows.parse().map_err(Failure::input)).collect()
}

/// The rows that are named, each once, with what was published.
fn rows(selections: &[Selection], table: FittedTable, machine: &Machine) -> Result<Vec<(Point, f64)>, Failure> {
    let table = published::rates(table)?;
    let mut rows: Vec<(Point, f64)> = Vec::new();
    for point in selections.iter().flat_map(Selection::points) {
        let measured = published::value(&table, &point, machine)?;
        if !rows.iter().any(|(known, _)| *known == point) {
            rows.push((point, measured.mean));
        }
    }
    Ok(rows)
}

/// What cannot be simulated here is a failure of the run; all else is wrong input.
fn failure(error: FitError) -> Failure {
    match error {
        FitError::Sim(error) => Failure::run_time(error),
        error => Failure::input(error),
    }
}

/// What a fit came to.
struct Calibrated {
    rows: Vec<(Point, f64)>,
    fitted: Fitted,
}

/// A row of the outcome: a parameter.
#[derive(Serialize)]
struct Row<'f> {
    parameter: &'f str,
    before: f64,
    after: f64,
    least: f64,
    most: f64,
    at_bound: bool,
}

/// A value that was fitted on.
#[derive(Serialize)]
struct FittedRow {
    policy: &'static str,
    mode: &'static str,
    tasks: u32,
    published_per_s: f64,
    predicted_per_s: f64,
    error: f64,
}

impl Calibrated {
    fn parameters(&self) -> Vec<Row<'_>> {
        self.fitted.parameters.iter().map(row).collect()
    }

    fn fitted_rows(&self) -> Vec<FittedRow> {
        let row = |((point, published), predicted): (&(Point, f64), &f64)| FittedRow {
            policy: point.policy.name(),
            mode: point.mode.name(),
            tasks: point.tasks,
            published_per_s: *published,
            predicted_per_s: predicted.round(),
            error: predicted / published - 1.0,
        };
        self.rows.iter().zip(&self.fitted.predicted).map(row).collect()
    }
}

fn row(parameter: &FittedParameter) -> Row<'_> {
    Row {
        parameter: &parameter.path,
        before: parameter.before,
        after: parameter.after,
        least: parameter.bounds.0,
        most: parameter.bounds.1,
        at_bound: parameter.is_at_bound(),
    }
}

impl Outcome for Calibrated {
    fn command(&self) -> &'static str {
        "sim calibrate"
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.fitted.machine.name)
    }

    fn totals(&self) -> Map<String, Value> {
        let fitted = serde_json::to_value(self.fitted_rows()).unwrap_or_default();
        let totals: [(&str, Value); 3] = [
            ("error", self.fitted.error.into()),
            ("error_before", self.fitted.error_before.into()),
            ("fitted_on", fitted),
        ];
        Map::from_iter(totals.map(|(key, value)| (key.to_owned(), value)))
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.parameters())
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut parameters = Table::new(["parameter", "before", "after", "bounds", "at a bound"]);
        for Row { parameter, before, after, least, most, at_bound } in self.parameters() {
            let at_bound = if at_bound { "yes" } else { "" };
            parameters.push([parameter, &figure(before), &figure(after), &format!("{least} to {most}"), at_bound]);
        }
        parameters.write(out)?;
        writeln!(out)?;
        let mut rows = Table::new(["fitted on", "mode", "tasks", "published/s", "predicted/s", "error"]);
        for row in self.fitted_rows() {
            let numbers = [format!("{:.0}", row.published_per_s), format!("{:.0}", row.predicted_per_s)];
            let error = format!("{:+.1} %", row.error * 100.0);
            let tasks = row.tasks.to_string();
            rows.push([row.policy, row.mode, &tasks, &numbers[0], &numbers[1], &error]);
        }
        rows.write(out)?;
        let (before, after) = (self.fitted.error_before * 100.0, self.fitted.error * 100.0);
        writeln!(out, "\nroot mean square of the errors: {after:.2} %, {before:.2} % before the fit")
    }
}

/// A number with four digits that count, or all before its point.
fn figure(number: f64) -> String {
    let digits = (3.0 - number.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{number:.digits$}")
}
