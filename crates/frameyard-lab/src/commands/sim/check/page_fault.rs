//! The tables of page faults per second by tasks, policy and mode.

use frameyard::policy::ZonePolicy;
use frameyard_sim::{
    Effort, Errors, FaultPredictor, Machine, Measured, ModeErrors, OrderCount, Point, Prediction, RateTable, Role,
    Selection,
};
use serde_json::Value;

use crate::Failure;
use crate::commands::sim::published::{self, FittedTable, distinct, predictors};
use crate::output::{Format, Report, Row, progress_bar};

/// The base policy of speed-ups.
const BASE: ZonePolicy = ZonePolicy::Vanilla416;

/// A table of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Table {
    /// The table of `broadwell-40`, of which some rows are fitted.
    Cpus40,
    /// The table of `broadwell-88`. It was predicted before its values were known.
    Cpus88,
}

impl Table {
    fn rates(self) -> Result<RateTable, Failure> {
        match self {
            Self::Cpus40 => published::page_fault(),
            Self::Cpus88 => published::page_fault_88(),
        }
    }
}

/// Predicted and published values.
pub(super) struct Compared {
    machine: String,
    fitted_on: Vec<String>,
    predictions: Vec<Prediction>,
    errors: Errors,
    naive: Naive,
}

/// What one expects without a model.
enum Naive {
    /// A straight line between the fitted rows of the policy, or the mean of the other policies' lines if the policy has none.
    BetweenFits,
    /// The published rate of another machine with as many tasks, or with the most that it has.
    As(RateTable),
}

/// Predicts all rows of the table, or the named ones, and compares.
pub(super) fn compared(
    machine: &Machine,
    table: Table,
    named: &[Selection],
    effort: Effort,
) -> Result<Compared, Failure> {
    let rates = table.rates()?;
    let rows = rows(machine, &rates, named)?;
    let (fitted_on, naive) = match table {
        Table::Cpus40 => (fitted_on(machine)?, Naive::BetweenFits),
        Table::Cpus88 => (Vec::new(), Naive::As(Table::Cpus40.rates()?)),
    };
    let bar = progress_bar("predicting", rows.len() as u64);
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
        naive,
    })
}

/// The rows to predict, each once.
fn rows(machine: &Machine, table: &RateTable, named: &[Selection]) -> Result<Vec<(Point, Measured)>, Failure> {
    let points = match named {
        [] => table.values().iter().map(|(point, _)| *point).collect(),
        named => distinct(named.iter().flat_map(Selection::points)),
    };
    points.into_iter().map(|point| Ok((point, published::value(table, &point, machine)?))).collect()
}

/// The rows of the table of `broadwell-40` that the machine's fit used.
fn fitted_on(machine: &Machine) -> Result<Vec<Point>, Failure> {
    if machine.calibration.table.as_deref() != Some(FittedTable::PageFault.name()) {
        return Ok(Vec::new());
    }
    let selections = machine.calibration.rows.iter().map(|rows| rows.parse::<Selection>());
    let selections: Vec<Selection> = selections.collect::<Result<_, _>>().map_err(Failure::input)?;
    Ok(selections.iter().flat_map(Selection::points).collect())
}

impl Compared {
    pub(super) fn report(&self) -> Report {
        let rows: Vec<Row> = self.predictions.iter().map(|prediction| self.row(prediction)).collect();
        let summaries: Vec<Row> = self.errors.modes.iter().flat_map(mode_summaries).collect();
        let objects = summaries.iter().map(|row| Value::Object(row.object())).collect::<Vec<_>>();
        let fitted_on = match &self.fitted_on[..] {
            [] => "fitted on no row".to_owned(),
            rows => format!("fitted on {}, which do not count", rows.join("; ")),
        };
        Report::new("sim check", rows.clone())
            .of_machine(&self.machine)
            .total("fitted_on", self.fitted_on.clone())
            .total("summary", objects)
            .table(rows)
            .table(summaries)
            .note(format!(
                "{fitted_on}\nspeed-ups are relative to {BASE}, in percentage points; an order is right where every pair is whose published \
                 difference exceeds two standard deviations of a difference"
            ))
    }

    /// What one expects without a model.
    fn naive(&self, point: &Point) -> Option<f64> {
        match &self.naive {
            Naive::BetweenFits => self.between_fits(point),
            Naive::As(table) => {
                let alike = |(known, _): &&(Point, Measured)| (known.policy, known.mode) == (point.policy, point.mode);
                let most = table.values().iter().filter(alike).map(|(known, _)| known.tasks).max()?;
                table.at(&Point { tasks: point.tasks.min(most), ..*point }).map(|measured| measured.mean)
            }
        }
    }

    fn between_fits(&self, point: &Point) -> Option<f64> {
        let line = |policy: ZonePolicy| {
            let of_line = |fitted: &&Prediction| {
                fitted.role == Role::Calibrated && fitted.point.policy == policy && fitted.point.mode == point.mode
            };
            let fitted = self.predictions.iter().filter(of_line);
            let points: Vec<(u32, f64)> = fitted.map(|row| (row.point.tasks, row.published.mean)).collect();
            interpolated(&points, point.tasks)
        };
        line(point.policy).or_else(|| {
            let others: Vec<f64> = ZonePolicy::ALL.into_iter().filter_map(line).collect();
            (!others.is_empty()).then(|| others.iter().sum::<f64>() / others.len() as f64)
        })
    }

    fn row(&self, prediction: &Prediction) -> Row {
        let Prediction { point, published, predicted, role } = prediction;
        let is_its_base = |other: &&Prediction| other.point == Point { policy: BASE, ..*point };
        let base = self.predictions.iter().find(is_its_base).filter(|_| point.policy != BASE);
        let published_speed_up = base.map(|base| rounded_share(published.mean / base.published.mean - 1.0));
        let predicted_speed_up = base.map(|base| rounded_share(predicted / base.predicted - 1.0));
        let percent = Format::percent(1).signed();
        let naive_error = self.naive(point).map(|naive| rounded_share(naive / published.mean - 1.0));
        Row::new()
            .column("mode", "mode", point.mode.name())
            .column("policy", "policy", point.policy.name())
            .column("tasks", "tasks", point.tasks)
            .column_as("published_per_s", "published/s", Format::number(0), published.mean)
            .data("published_stdev", published.stdev)
            .column_as("predicted_per_s", "predicted/s", Format::number(0), predicted.round())
            .column_as("error", "error %", percent, rounded_share(prediction.error()))
            .column_as("naive_error", "naive %", percent, naive_error)
            .minor()
            .column_as("published_speed_up", "speed-up", percent, published_speed_up)
            .minor()
            .column_as("predicted_speed_up", "predicted", percent, predicted_speed_up)
            .minor()
            .column("role", "row", role.name())
    }
}

/// The value at `at` on the straight line between the nearest points below and above.
fn interpolated(points: &[(u32, f64)], at: u32) -> Option<f64> {
    let (low, first) = *points.iter().filter(|(x, _)| *x <= at).max_by_key(|(x, _)| *x)?;
    let (high, last) = *points.iter().filter(|(x, _)| *x >= at).min_by_key(|(x, _)| *x)?;
    let part = if high == low { 0.0 } else { f64::from(at - low) / f64::from(high - low) };
    Some(first + (last - first) * part)
}

/// A share rounded to five decimals.
fn rounded_share(share: f64) -> f64 {
    (share * 1e5).round() / 1e5
}

/// A row for each policy, and one for all.
fn mode_summaries(errors: &ModeErrors) -> Vec<Row> {
    let mode = errors.mode.name();
    let of_policies = errors
        .policies
        .iter()
        .map(|of| summary(mode, Some(of.policy.name()), of.rows, of.mean_absolute, Some(of.mean), of.speed_up, None));
    let all = summary(mode, None, errors.rows, errors.mean_absolute, None, errors.speed_up, Some(&errors.order));
    of_policies.chain([all]).collect()
}

/// Errors of a policy in a mode, or of all policies of a mode with their order.
fn summary(
    mode: &'static str,
    policy: Option<&'static str>,
    rows: usize,
    mean_absolute: f64,
    mean: Option<f64>,
    speed_up: Option<f64>,
    order: Option<&OrderCount>,
) -> Row {
    let points = Format::percent(2);
    let right = order.map(|order| format!("{} of {} numbers of tasks", order.right_rows, order.rows));
    Row::new()
        .column("mode", "mode", mode)
        .data("policy", policy)
        .remark("policy", Format::Plain, policy.unwrap_or("all"))
        .column("predicted_rows", "predicted", rows)
        .column_as("mean_absolute_error", "mean |error| %", points, rounded_share(mean_absolute))
        .column_as("mean_error", "mean error %", Format::percent(1).signed(), mean.map(rounded_share))
        .column_as("mean_absolute_speed_up_error", "|speed-up error|", points, speed_up.map(rounded_share))
        .minor()
        .data("right_order_share", order.and_then(OrderCount::share).map(rounded_share))
        .data("right_order_rows", order.map(|order| order.right_rows))
        .data("ordered_rows", order.map(|order| order.rows))
        .data("right_order_pairs", order.map(|order| order.right_pairs))
        .data("ordered_pairs", order.map(|order| order.pairs))
        .remark("right order", Format::Plain, right)
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
    fn predicts_all_rows_or_the_named_ones_once() {
        let machine = machine(&[], "page-fault");
        let table = Table::Cpus40.rates().unwrap();
        let rows = |named: &[Selection]| rows(&machine, &table, named);
        assert_eq!(rows(&[]).unwrap().len(), 240);
        let named = ["big-pcp/threads/1..3".parse().unwrap(), "big-pcp/threads/3,4".parse().unwrap()];
        let tasks: Vec<u32> = rows(&named).unwrap().iter().map(|(point, _)| point.tasks).collect();
        assert_eq!(tasks, [1, 2, 3, 4]);
        let refused = rows(&["bits/threads/1".parse().unwrap()]).unwrap_err().to_string();
        assert!(refused.starts_with("bits/threads/1: not in the table"), "{refused}");
    }

    #[test]
    fn calibrated_rows_are_those_of_this_table() {
        let rows = ["big-pcp/processes/1,5"];
        let point = |tasks| Point { policy: ZonePolicy::BigPcp, mode: Mode::Processes, tasks };
        assert_eq!(fitted_on(&machine(&rows, "page-fault")).unwrap(), [point(1), point(5)]);
        assert_eq!(fitted_on(&machine(&rows, "zone-lock")).unwrap(), []);
        assert!(fitted_on(&machine(&["all"], "page-fault")).is_err());
    }

    #[test]
    fn a_naive_value_lies_on_the_line_between_its_neighbours() {
        let at = |tasks| interpolated(&[(10, 4.0), (1, 1.0), (20, 14.0)], tasks);
        assert_eq!([1, 4, 10, 15, 20, 21].map(at), [Some(1.0), Some(2.0), Some(4.0), Some(9.0), Some(14.0), None]);
    }

    #[test]
    fn a_naive_value_of_another_machine_is_its_rate_with_as_many_tasks_or_its_last() {
        let table = Table::Cpus40.rates().unwrap();
        let point = |tasks| Point { policy: ZonePolicy::ClusterBulk, mode: Mode::Threads, tasks };
        let expected = [4, 40, 40].map(|tasks| table.at(&point(tasks)).map(|measured| measured.mean));
        let empty = Errors { modes: Vec::new() };
        let compared = Compared {
            machine: String::new(),
            fitted_on: Vec::new(),
            predictions: Vec::new(),
            errors: empty,
            naive: Naive::As(table),
        };
        assert_eq!([4, 40, 88].map(|tasks| compared.naive(&point(tasks))), expected);
        assert_eq!(compared.naive(&Point { policy: ZonePolicy::Bits, ..point(4) }), None);
    }

    #[test]
    fn rows_name_their_role_and_the_summary_counts_predictions() {
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
            naive: Naive::BetweenFits,
        };
        let row = Value::Object(compared.row(&compared.predictions[1]).object());
        let expected = serde_json::json!({
            "mode": "threads", "policy": "cluster-bulk", "tasks": 2, "published_per_s": 120.0, "published_stdev": 1.0,
            "predicted_per_s": 114.0, "error": -0.05, "naive_error": -0.16667, "published_speed_up": 0.2, "predicted_speed_up": 0.14, "role": "predicted"
        });
        assert_eq!(row, expected);
        let mut text = Vec::new();
        compared.report().write_text(None, &mut anstream::StripStream::new(&mut text)).unwrap();
        let text = String::from_utf8(text).unwrap();
        let all = text.lines().find(|line| line.contains("  all  ")).unwrap();
        let cells: Vec<&str> = all.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["threads", "all", "1", "5.00", "-", "6.00", "1 of 1 numbers of tasks"]);
        assert!(text.contains("fitted on vanilla-4.16/threads/2, which do not count"), "{text}");
    }
}
