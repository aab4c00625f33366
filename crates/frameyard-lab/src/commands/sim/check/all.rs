//! `sim check --all`: a line for each table, and whether a prediction got worse than its record.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Deserialize;

use super::{CheckArgs, CheckedTable};
use crate::Failure;
use crate::output::{Format, OutputFile, Report, Row, rounded};

/// The error of a prediction for a value that no fit used, and that of a naive expectation, in percent of the value or in percentage
/// points of a share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Unfitted {
    pub(super) error: f64,
    pub(super) naive: Option<f64>,
}

impl Unfitted {
    /// From an error and perhaps a naive error; `None` without an error.
    pub(super) fn new(error: Option<f64>, naive: Option<f64>) -> Option<Self> {
        Some(Self { error: error?, naive })
    }

    /// From an error and a naive error that are fractions.
    pub(super) fn of_fractions(error: Option<f64>, naive: Option<f64>) -> Option<Self> {
        Some(Self { error: error? * 100.0, naive: naive.map(|naive| naive * 100.0) })
    }
}

/// Mean and largest of some errors, without their signs.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Errors {
    values: usize,
    mean: f64,
    worst: f64,
}

impl Errors {
    fn of(errors: impl Iterator<Item = f64>) -> Option<Self> {
        let errors: Vec<f64> = errors.map(f64::abs).collect();
        let worst = errors.iter().copied().reduce(f64::max)?;
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        Some(Self { values: errors.len(), mean: rounded(mean), worst: rounded(worst) })
    }
}

/// A line of a record: the errors of a table's predictions in an earlier run.
#[derive(Clone, PartialEq, Deserialize, Debug)]
struct Record {
    table: String,
    mean_error: f64,
    worst_error: f64,
}

/// Checks every table.
pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let record = args.record.as_deref().map(read).transpose()?;
    let file = |table: CheckedTable, dir: &PathBuf| OutputFile::create(dir.join(format!("{}.json", table.name())));
    let tables = CheckedTable::value_variants().iter().copied();
    // A folder that does not exist is found before the work.
    let files = tables.map(|table| Ok((table, args.save.as_ref().map(|dir| file(table, dir)).transpose()?)));
    let files: Vec<(CheckedTable, Option<OutputFile>)> = files.collect::<Result<_, Failure>>()?;
    let mut rows = Vec::new();
    let mut worse = Vec::new();
    for (table, file) in files {
        let report = table.compared(args)?;
        file.map_or(Ok(()), |file| report.write_json(&file))?;
        let unfitted: Vec<Unfitted> = report.rows().iter().filter_map(|row| table.unfitted(row)).collect();
        let errors = Errors::of(unfitted.iter().map(|value| value.error));
        let naive = Errors::of(unfitted.iter().filter_map(|value| value.naive));
        // The same values, which the naive expectation covers.
        let beside = Errors::of(unfitted.iter().filter(|value| value.naive.is_some()).map(|value| value.error));
        let name = table.name();
        if let (Some(record), Some(errors)) = (&record, errors) {
            worse.extend(comparison(&name, errors, record));
        }
        rows.push(row(&name, errors, beside, naive));
    }
    let note = "errors of values that no fit used, in percent, or in percentage points of shares; naive: what one expects without a \
                model, where there is such an expectation, and the model's mean error for the same values";
    Report::new("sim check", rows).note(note).print(&args.output)?;
    match &worse[..] {
        [] => Ok(()),
        worse => Err(Failure::run_time(worse.join("\n"))),
    }
}

fn read(path: &Path) -> Result<Vec<Record>, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| Failure::input(format!("--record {}: {error}", path.display()));
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    csv::Reader::from_reader(file).into_deserialize().map(|line| line.map_err(|error| unreadable(&error))).collect()
}

/// What is worse than the record, which must have the table.
fn comparison(table: &str, errors: Errors, record: &[Record]) -> Option<String> {
    let Some(recorded) = record.iter().find(|line| line.table == table) else {
        return Some(format!("{table}: the record lacks this table"));
    };
    let Errors { mean, worst, .. } = errors;
    let is_worse = mean > recorded.mean_error || worst > recorded.worst_error;
    is_worse.then(|| {
        format!(
            "{table}: mean error {mean}, worst {worst}; recorded were {} and {}",
            recorded.mean_error, recorded.worst_error
        )
    })
}

fn row(table: &str, errors: Option<Errors>, beside: Option<Errors>, naive: Option<Errors>) -> Row {
    let number = Format::number(1);
    Row::new()
        .column("table", "table", table)
        .column("values", "values", errors.map_or(0, |errors| errors.values))
        .column_as("mean_error", "mean error", number, errors.map(|errors| errors.mean))
        .column_as("worst_error", "worst", number, errors.map(|errors| errors.worst))
        .column("naive_values", "naive: values", naive.map_or(0, |errors| errors.values))
        .column_as("mean_error_beside_naive", "model", number, beside.map(|errors| errors.mean))
        .column_as("naive_mean_error", "naive", number, naive.map(|errors| errors.mean))
        .column_as("naive_worst_error", "worst", number, naive.map(|errors| errors.worst))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_without_their_signs() {
        let errors = Errors::of([-3.0, 1.0].into_iter()).unwrap();
        assert_eq!(errors, Errors { values: 2, mean: 2.0, worst: 3.0 });
        assert_eq!(Errors::of([].into_iter()), None);
    }

    #[test]
    fn a_table_that_got_worse_or_has_no_record_is_named() {
        let record = [Record { table: "zone-lock".to_owned(), mean_error: 2.0, worst_error: 5.0 }];
        let compared = |table, mean, worst| comparison(table, Errors { values: 9, mean, worst }, &record);
        assert_eq!(compared("zone-lock", 2.0, 5.0), None);
        assert!(compared("zone-lock", 2.1, 5.0).unwrap().starts_with("zone-lock: mean error 2.1, worst 5"));
        assert!(compared("zone-lock", 1.0, 5.1).is_some());
        assert!(compared("kernbench", 0.0, 0.0).unwrap().contains("lacks"));
    }
}
