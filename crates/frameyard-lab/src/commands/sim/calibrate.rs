//! `sim calibrate`: fits a machine's free parameters to rows of a published table.

use std::num::NonZeroU32;

use clap::{Args, ValueHint};
use frameyard_sim::{
    FaultPredictor, Fit, FitError, Fitted, FittedParameter, InitPredictor, Machine, Point, Predictor, RateTable,
    Selection, record,
};
use serde_json::Value;

use super::deferred_init;
use super::effort::{EffortArgs, QUICK_PAGES, USUAL_PAGES};
use super::published::{self, FittedTable, predictors};
use crate::Failure;
use crate::args::values::positive_number;
use crate::args::{OutputArgs, QuickArgs};
use crate::commands::simulated_machine::machine_and_text;
use crate::output::{Format, OutputFile, Report, Row, progress_bar};

/// What follows the options in the help text.
const HELP: &str = "\
Takes many minutes, for table deferred-init seconds; --quick about 10 seconds.

Examples:
  frameyard sim calibrate --quick
  frameyard sim calibrate --table deferred-init --machine sparc-m7
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

    /// Rows to fit on, as in 'big-pcp/processes/1,5,10..12;vanilla-4.16/threads/40', or 'stores-per-page/node' of deferred-init
    /// [default: those in the machine's file]
    #[arg(
        long,
        value_name = "ROWS",
        value_delimiter = ';',
        default_value_if("quick", "true", "big-pcp/processes/1,2,4;vanilla-4.16/processes/1,2,4")
    )]
    rows: Vec<String>,

    /// Free parameters, as in kernel_overhead.exception_cycles,costs.read_overlap [default: those in the machine's
    /// file]
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    parameters: Vec<String>,

    /// Pages that each task maps; with fewer than 32768, caches are smaller by the same factor [default: 4096]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pages: Option<NonZeroU32>,

    /// The most rounds of the search [default: those in the machine's file, or 8]
    #[arg(long, value_name = "N", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    rounds: Option<NonZeroU32>,

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

/// The rounds of a machine whose file names none.
const ROUNDS: u32 = 8;

/// Runs the fit.
pub(super) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let (mut machine, text) = machine_and_text(args.machine.as_deref().unwrap_or(args.table.machine()))?;
    if !args.parameters.is_empty() {
        machine.calibration.parameters.clone_from(&args.parameters);
        machine.calibration.start.clear();
    }
    let names = row_names(args, &machine)?;
    let rounds = args.rounds.map(NonZeroU32::get).or(machine.calibration.rounds).unwrap_or(ROUNDS);
    let faults = |table| {
        let pages = args.pages.unwrap_or(if args.quick.quick { QUICK_PAGES } else { USUAL_PAGES });
        let predictor = FaultPredictor::new(args.effort.with_pages(pages));
        calibrated(&machine, rows(&names, &table, &machine)?, rounds, predictor)
    };
    let calibrated = match args.table {
        FittedTable::PageFault => faults(published::page_fault()?),
        FittedTable::ZoneLock => faults(published::zone_lock()?),
        FittedTable::DeferredInit => {
            calibrated(&machine, deferred_init::rows(&names, &machine)?, rounds, InitPredictor)
        }
    }?;
    if let Some(file) = &args.write {
        let text = record(&text, &calibrated.fitted, args.table.name(), &names, rounds).map_err(Failure::run_time)?;
        file.write(|out| out.write_all(text.as_bytes()))?;
    }
    calibrated.report().print(&args.output)
}

/// The rows of the command line, or of the machine's file.
fn row_names(args: &CalibrateArgs, machine: &Machine) -> Result<Vec<String>, Failure> {
    let fit = &machine.calibration;
    match &args.rows[..] {
        [] if fit.table.as_deref() != Some(args.table.name()) => {
            let (name, table) = (&machine.name, args.table.name());
            Err(Failure::input(format!("--rows: the file of {name} names no rows of {table}; name them here")))
        }
        [] => Ok(fit.rows.clone()),
        rows => Ok(rows.to_vec()),
    }
}

/// Fits the machine to the rows.
fn calibrated<P>(machine: &Machine, rows: Vec<(P::Case, f64)>, rounds: u32, predictor: P) -> Result<Calibrated, Failure>
where
    P: Predictor<Case: std::fmt::Display> + Clone + Send,
{
    let fit = Fit { machine, rows, rounds };
    let bar = progress_bar("fitting", fit.most_predictions().map_err(failure)?);
    let fitted = fit.run(&mut predictors(predictor), &|| bar.inc(1)).map_err(failure)?;
    bar.finish_and_clear();
    Ok(Calibrated { rows: fit.rows.iter().map(|(case, published)| (case.to_string(), *published)).collect(), fitted })
}

/// The named rows of a table of page faults, each once, with the published values.
fn rows(names: &[String], table: &RateTable, machine: &Machine) -> Result<Vec<(Point, f64)>, Failure> {
    let selections = names.iter().map(|name| name.parse().map_err(Failure::input));
    let selections: Vec<Selection> = selections.collect::<Result<_, _>>()?;
    let mut rows: Vec<(Point, f64)> = Vec::new();
    for point in selections.iter().flat_map(Selection::points) {
        let measured = published::value(table, &point, machine)?;
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
    /// Names of the rows, with the published values.
    rows: Vec<(String, f64)>,
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
fn fitted_row(((name, published), predicted): (&(String, f64), &f64)) -> Row {
    Row::new()
        .column("row", "fitted on", name.clone())
        .column_as("published_per_s", "published/s", Format::number(0), *published)
        .column_as("predicted_per_s", "predicted/s", Format::number(0), predicted.round())
        .column_as("error", "error %", Format::percent(1).signed(), predicted / published - 1.0)
}

/// A number with four significant digits, or all digits before the point.
fn figure(number: f64) -> String {
    let digits = (3.0 - number.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{number:.digits$}")
}
