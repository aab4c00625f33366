//! The table of page faults a second by tasks, policy and mode.

use std::io::{self, Write};

use frameyard::policy::ZonePolicy;
use frameyard_sim::{
    Effort, Errors, FaultPredictor, Machine, Measured, ModeErrors, OrderCount, Point, Prediction, Role, Selection,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Failure;
use crate::cli::FittedTable;
use crate::commands::sim::published::{self, predictors};
use crate::output::{self, Outcome, RowError, Rows, Table};

/// What speed-ups are over.
const BASE: ZonePolicy = ZonePolicy::Vanilla416;

/// Predictions beside what was published.
pub(super) struct Compared {
    machine: String,
    fitted_on: Vec<String>,
    predictions: Vec<Prediction>,
    errors: Errors,
}

/// Predicts all rows of the table, or those named, and compares.
pub(super) fn compared(machine: &Machine, named: &[Selection], effort: Effort) -> Result<Compared, Failure> {
    let rows = rows(machine, named)?;
    let fitted_on = fitted_on(machine)?;
    let bar = output::progress_bar("predicting", rows.len() as u64);
    let asked: Vec<(&Machine, Point)> = rows.iter().map(|(point, _)| (machine, *point)).collect();
    let rates = predictors(FaultPredictor::new(effort)).predict(&asked, &|| bar.inc(1)).map_err(Failure::run_time)?;
    bar.finish_and_clear();
    let prediction = |((point, published), predicted): (&(Point, Measured), f64)| Prediction {
        point: *point,
        published: *published,
        predicted,
        role: if fitted_on.contains(point) { Role::Calibrated } else { Role::Predicted },
    };
    let predictions: Vec<Prediction> = rows.iter().zip(rates).map(prediction).collect();
    Ok(Compared {
        machine: machine.name.clone(),
        fitted_on: machine.calibration.rows.clone(),
        errors: Errors::of(&predictions, BASE),
        predictions,
    })
}

/// The rows to predict, each once.
fn rows(machine: &Machine, named: &[Selection]) -> Result<Vec<(Point, Measured)>, Failure> {
    let table = published::page_fault()?;
    let mut points: Vec<Point> = if named.is_empty() {
        table.values().iter().map(|(point, _)| *point).collect()
    } else {
        named.iter().flat_map(Selection::points).collect()
    };
    let mut seen = Vec::new();
    points.retain(|point| {
        !seen.contains(point) && {
            seen.push(*point);
            true
        }
    });
    points.into_iter().map(|point| Ok((point, published::value(&table, &point, machine)?))).collect()
}

/// The rows of this table that the machine was fitted on.
fn fitted_on(machine: &Machine) -> Result<Vec<Point>, Failure> {
    if machine.calibration.table.as_deref() != Some(FittedTable::PageFault.name()) {
        return Ok(Vec::new());
    }
    let selections = machine.calibration.rows.iter().map(|rows| rows.parse::<Selection>());
    let selections: Vec<Selection> = selections.collect::<Result<_, _>>().map_err(Failure::input)?;
    Ok(selections.iter().flat_map(Selection::points).collect())
}

/// A row of the outcome.
#[derive(Serialize)]
struct Row {
    mode: &'static str,
    policy: &'static str,
    tasks: u32,
    published_per_s: f64,
    published_stdev: f64,
    predicted_per_s: f64,
    error: f64,
    published_speed_up: Option<f64>,
    predicted_speed_up: Option<f64>,
    role: &'static str,
}

/// Errors of a policy in a mode, or of all of them.
#[derive(Serialize)]
struct Summary {
    mode: &'static str,
    policy: Option<&'static str>,
    predicted_rows: usize,
    mean_absolute_error: f64,
    mean_error: Option<f64>,
    mean_absolute_speed_up_error: Option<f64>,
    right_order_share: Option<f64>,
    right_order_rows: Option<usize>,
    ordered_rows: Option<usize>,
    right_order_pairs: Option<usize>,
    ordered_pairs: Option<usize>,
}

impl Compared {
    fn row(&self, prediction: &Prediction) -> Row {
        let Prediction { point, published, predicted, role } = prediction;
        let is_its_base = |other: &&Prediction| other.point == Point { policy: BASE, ..*point };
        let base = self.predictions.iter().find(is_its_base).filter(|_| point.policy != BASE);
        Row {
            mode: point.mode.name(),
            policy: point.policy.name(),
            tasks: point.tasks,
            published_per_s: published.mean,
            published_stdev: published.stdev,
            predicted_per_s: predicted.round(),
            error: rounded_share(prediction.error()),
            published_speed_up: base.map(|base| rounded_share(published.mean / base.published.mean - 1.0)),
            predicted_speed_up: base.map(|base| rounded_share(predicted / base.predicted - 1.0)),
            role: role.name(),
        }
    }

    fn summaries(&self) -> Vec<Summary> {
        self.errors.modes.iter().flat_map(mode_summaries).collect()
    }
}

/// A share to a hundred-thousandth, so that tables can be read.
fn rounded_share(share: f64) -> f64 {
    (share * 1e5).round() / 1e5
}

/// A line for each policy, and one for all.
fn mode_summaries(errors: &ModeErrors) -> Vec<Summary> {
    let OrderCount { pairs, right_pairs, rows, right_rows } = errors.order;
    let of_policies = errors.policies.iter().map(|policy| Summary {
        mode: errors.mode.name(),
        policy: Some(policy.policy.name()),
        predicted_rows: policy.rows,
        mean_absolute_error: rounded_share(policy.mean_absolute),
        mean_error: Some(rounded_share(policy.mean)),
        mean_absolute_speed_up_error: policy.speed_up.map(rounded_share),
        right_order_share: None,
        right_order_rows: None,
        ordered_rows: None,
        right_order_pairs: None,
        ordered_pairs: None,
    });
    let all = Summary {
        mode: errors.mode.name(),
        policy: None,
        predicted_rows: errors.rows,
        mean_absolute_error: rounded_share(errors.mean_absolute),
        mean_error: None,
        mean_absolute_speed_up_error: errors.speed_up.map(rounded_share),
        right_order_share: errors.order.share().map(rounded_share),
        right_order_rows: Some(right_rows),
        ordered_rows: Some(rows),
        right_order_pairs: Some(right_pairs),
        ordered_pairs: Some(pairs),
    };
    of_policies.chain([all]).collect()
}

impl Outcome for Compared {
    fn command(&self) -> &'static str {
        "sim check"
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.machine)
    }

    fn totals(&self) -> Map<String, Value> {
        let summary = serde_json::to_value(self.summaries()).unwrap_or_default();
        let totals = [("fitted_on", self.fitted_on.clone().into()), ("summary", summary)];
        Map::from_iter(totals.map(|(key, value)| (key.to_owned(), value)))
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.predictions.iter().map(|prediction| self.row(prediction)).collect::<Vec<_>>())
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let headings =
            ["mode", "policy", "tasks", "published/s", "predicted/s", "error", "speed-up", "predicted", "row"];
        let mut rows = Table::new(headings);
        for row in self.predictions.iter().map(|prediction| self.row(prediction)) {
            rows.push([
                row.mode.to_owned(),
                row.policy.to_owned(),
                row.tasks.to_string(),
                format!("{:.0}", row.published_per_s),
                format!("{:.0}", row.predicted_per_s),
                signed(Some(row.error)),
                signed(row.published_speed_up),
                signed(row.predicted_speed_up),
                row.role.to_owned(),
            ]);
        }
        rows.write(out)?;
        writeln!(out)?;
        let mut table = Table::new([
            "mode",
            "policy",
            "predicted",
            "mean |error|",
            "mean error",
            "|speed-up error|",
            "right order",
        ]);
        for summary in self.summaries() {
            let order = summary.right_order_rows.zip(summary.ordered_rows);
            table.push([
                summary.mode.to_owned(),
                summary.policy.unwrap_or("all").to_owned(),
                summary.predicted_rows.to_string(),
                percent(Some(summary.mean_absolute_error)),
                signed(summary.mean_error),
                points(summary.mean_absolute_speed_up_error),
                order.map_or(String::new(), |(right, rows)| format!("{right} of {rows} numbers of tasks")),
            ]);
        }
        table.write(out)?;
        match &self.fitted_on[..] {
            [] => writeln!(out, "\nfitted on no row"),
            rows => writeln!(out, "\nfitted on {}, which do not count", rows.join("; ")),
        }?;
        writeln!(
            out,
            "speed-ups are over {BASE}, in percentage points; an order is right where all pairs are whose published difference \
             exceeds twice the root of the sum of their squared standard deviations"
        )
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!("{:.2} %", share * 100.0))
}

fn signed(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!("{:+.1} %", share * 100.0))
}

fn points(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!("{:.2}", share * 100.0))
}

#[cfg(test)]
mod tests {
    use frameyard_sim::Mode;

    use super::*;

    fn machine(rows: &[&str], table: &str) -> Machine {
        let mut machine = Machine::built_in("broadwell-40").unwrap();
        machine.calibration.rows = rows.iter().map(|rows| (*rows).to_owned()).collect();
        machine.calibration.table = Some(table.to_owned());
        machine
    }

    #[test]
    fn all_rows_are_predicted_or_those_named_each_once() {
        let machine = machine(&[], "page-fault");
        assert_eq!(rows(&machine, &[]).unwrap().len(), 240);
        let named = ["big-pcp/threads/1..3".parse().unwrap(), "big-pcp/threads/3,4".parse().unwrap()];
        let tasks: Vec<u32> = rows(&machine, &named).unwrap().iter().map(|(point, _)| point.tasks).collect();
        assert_eq!(tasks, [1, 2, 3, 4]);
        let refused = rows(&machine, &["depot/threads/1".parse().unwrap()]).unwrap_err().to_string();
        assert!(refused.starts_with("depot/threads/1: not in the table"), "{refused}");
    }

    #[test]
    fn rows_that_a_machine_was_fitted_on_are_those_of_this_table() {
        let rows = ["big-pcp/processes/1,5"];
        let point = |tasks| Point { policy: ZonePolicy::BigPcp, mode: Mode::Processes, tasks };
        assert_eq!(fitted_on(&machine(&rows, "page-fault")).unwrap(), [point(1), point(5)]);
        assert_eq!(fitted_on(&machine(&rows, "zone-lock")).unwrap(), []);
        assert!(fitted_on(&machine(&["all"], "page-fault")).is_err());
    }

    #[test]
    fn rows_say_what_they_are_and_the_summary_counts_what_was_predicted() {
        let measured = |mean| Measured { mean, stdev: 1.0 };
        let prediction = |policy, published: f64, predicted, role| Prediction {
            point: Point { policy, mode: Mode::Threads, tasks: 2 },
            published: measured(published),
            predicted,
            role,
        };
        let predictions = vec![
            prediction(BASE, 100.0, 100.0, Role::Calibrated),
            prediction(ZonePolicy::ClusterBulk, 120.0, 114.0, Role::Predicted),
        ];
        let compared = Compared {
            machine: "broadwell-40".to_owned(),
            fitted_on: vec!["vanilla-4.16/threads/2".to_owned()],
            errors: Errors::of(&predictions, BASE),
            predictions,
        };
        let row = serde_json::to_value(compared.row(&compared.predictions[1])).unwrap();
        let expected = serde_json::json!({
            "mode": "threads", "policy": "cluster-bulk", "tasks": 2, "published_per_s": 120.0, "published_stdev": 1.0,
            "predicted_per_s": 114.0, "error": -0.05, "published_speed_up": 0.2, "predicted_speed_up": 0.14, "role": "predicted"
        });
        assert_eq!(row, expected);
        let mut text = Vec::new();
        compared.write_text(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let all = text.lines().find(|line| line.contains("  all  ")).unwrap();
        let cells: Vec<&str> = all.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["threads", "all", "1", "5.00 %", "6.00", "1 of 1 numbers of tasks"]);
        assert!(text.contains("fitted on vanilla-4.16/threads/2, which do not count"), "{text}");
    }
}
