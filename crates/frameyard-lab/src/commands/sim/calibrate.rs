//! `sim calibrate`: fits a machine's free parameters to rows of a published table.

use std::num::NonZeroU32;

use clap::{Args, ValueHint};
use frameyard_sim::{FaultPredictor, Fit, FitError, Fitted, FittedParameter, Machine, Point, Selection, record};
use serde_json::Value;

use super::effort::{EffortArgs, QUICK_PAGES, USUAL_PAGES};
use super::published::{self, FittedTable, predictors};
use crate::Failure;
use crate::args::values::positive_number;
use crate::args::{OutputArgs, QuickArgs};
use crate::commands::simulated_machine::machine_and_text;
use crate::output::{Format, OutputFile, Report, Row, progress_bar};

/// What follows the options in the help text.
const HELP: &str = "\
Takes many minutes; --quick about 10 seconds.

Examples:
  frameyard sim calibrate --quick
  frameyard sim calibrate --table zone-lock --write fitted.toml";

/// Fits a machine's free parameters to rows of a published table
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct CalibrateArgs {
    /// A built-in machine with costs, or a file that describes one (TOML) [default: the machine of the table]
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::AnyPath)]
    machine: Option<String>,

    /// The published table
    #[arg(long, value_name = "TABLE", value_enum, default_value = "page-fault")]
    table: FittedTable,

    /// Rows to fit on, as in 'big-pcp/processes/1,5,10..12;vanilla-4.16/threads/40' [default: big-pcp at 1, 5, 10, 20, 30 and 40
    /// tasks and vanilla-4.16 at 1, 5, 10 and 40, in both modes; zone-lock: cluster]
    #[arg(long, value_name = "ROWS", value_delimiter = ';')]
    rows: Vec<Selection>,

    /// Free parameters, as in kernel_overhead.exception_cycles,costs.read_overlap [default: those in the machine's
    /// file]
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    parameters: Vec<String>,

    /// Pages that each task maps; with fewer than 32768, caches are smaller by the same factor [default: 4096]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pages: Option<NonZeroU32>,

    /// The most rounds of the search
    #[arg(long, value_name = "N", default_value = "8", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    rounds: NonZeroU32,

    /// Write the machine's description with the fitted parameters and the rows of the fit
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    write: Option<OutputFile>,

    #[command(flatten)]
    effort: EffortArgs,
    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The default rows of a fit. For `page-fault`: the policy that avoids the zone lock, and the stock kernel at four
/// numbers of tasks. For `zone-lock`: a policy that waits only for LRU locks.
const fn usual_rows(table: FittedTable) -> &'static [&'static str] {
    match table {
        FittedTable::PageFault => &[
            "big-pcp/processes/1,5,10,20,30,40",
            "big-pcp/threads/1,5,10,20,30,40",
            "vanilla-4.16/processes/1,5,10,40",
            "vanilla-4.16/threads/1,5,10,40",
        ],
        FittedTable::ZoneLock => &["cluster/processes/112"],
    }
}

/// The rows of a quick fit to `page-fault`.
const QUICK_ROWS: &[&str] = &["big-pcp/processes/1,2,4,6,8", "vanilla-4.16/processes/1,2,4,6,8"];

/// Runs the fit.
pub(super) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let (mut machine, text) = machine_and_text(args.machine.as_deref().unwrap_or(args.table.machine()))?;
    if !args.parameters.is_empty() {
        machine.calibration.parameters.clone_from(&args.parameters);
        machine.calibration.start.clear();
    }
    let selections = selections(args)?;
    let rows = rows(&selections, args.table, &machine)?;
    let fit = Fit { machine: &machine, rows, rounds: args.rounds.get() };
    let bar = progress_bar("fitting", fit.most_predictions().map_err(failure)?);
    let pages = args.pages.unwrap_or(if args.quick.quick { QUICK_PAGES } else { USUAL_PAGES });
    let mut pool = predictors(FaultPredictor::new(args.effort.with_pages(pages)));
    let fitted = fit.run(&mut pool, &|| bar.inc(1)).map_err(failure)?;
    bar.finish_and_clear();
    if let Some(file) = &args.write {
        let text = record(&text, &fitted, args.table.name(), &selections).map_err(Failure::run_time)?;
        file.write(|out| out.write_all(text.as_bytes()))?;
    }
    Calibrated { rows: fit.rows, fitted }.report().print(&args.output)
}

fn selections(args: &CalibrateArgs) -> Result<Vec<Selection>, Failure> {
    if !args.rows.is_empty() {
        return Ok(args.rows.clone());
    }
    let rows =
        if args.quick.quick && args.table == FittedTable::PageFault { QUICK_ROWS } else { usual_rows(args.table) };
    rows.iter().map(|rows| rows.parse().map_err(Failure::input)).collect()
}

/// The named rows, each once, with the published values.
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

/// A failed simulation is a run-time failure; any other error is wrong input.
fn failure(error: FitError) -> Failure {
    match error {
        FitError::Sim(error) => Failure::run_time(error),
        error => Failure::input(error),
    }
}

/// The result of a fit.
struct Calibrated {
    rows: Vec<(Point, f64)>,
    fitted: Fitted,
}

impl Calibrated {
    fn report(&self) -> Report {
        let fitted_on: Vec<Row> = self.rows.iter().zip(&self.fitted.predicted).map(fitted_row).collect();
        let objects = fitted_on.iter().map(|row| Value::Object(row.object())).collect::<Vec<_>>();
        let parameters: Vec<Row> = self.fitted.parameters.iter().map(parameter_row).collect();
        let (before, after) = (self.fitted.error_before * 100.0, self.fitted.error * 100.0);
        Report::new("sim calibrate", parameters.clone())
            .of_machine(&self.fitted.machine.name)
            .total("error", self.fitted.error)
            .total("error_before", self.fitted.error_before)
            .total("fitted_on", objects)
            .table(parameters)
            .table(fitted_on)
            .note(format!("root mean square of the errors: {after:.2} %, {before:.2} % before the fit"))
    }
}

fn parameter_row(parameter: &FittedParameter) -> Row {
    let (least, most) = parameter.bounds;
    let at_bound = parameter.is_at_bound();
    Row::new()
        .column("parameter", "parameter", parameter.path.clone())
        .data("before", parameter.before)
        .remark("before", Format::Plain, figure(parameter.before))
        .data("after", parameter.after)
        .remark("after", Format::Plain, figure(parameter.after))
        .data("least", least)
        .data("most", most)
        .remark("bounds", Format::Plain, format!("{least} to {most}"))
        .data("at_bound", at_bound)
        .remark("at a bound", Format::Plain, at_bound.then_some("yes"))
}

/// A value that the fit used.
fn fitted_row(((point, published), predicted): (&(Point, f64), &f64)) -> Row {
    Row::new()
        .column("policy", "fitted on", point.policy.name())
        .column("mode", "mode", point.mode.name())
        .column("tasks", "tasks", point.tasks)
        .column_as("published_per_s", "published/s", Format::number(0), *published)
        .column_as("predicted_per_s", "predicted/s", Format::number(0), predicted.round())
        .column_as("error", "error %", Format::percent(1).signed(), predicted / published - 1.0)
}

/// A number with four significant digits, or all digits before the point.
fn figure(number: f64) -> String {
    let digits = (3.0 - number.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{number:.digits$}")
}
