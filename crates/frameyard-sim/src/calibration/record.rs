//! Writes a fit into a machine's file.

use std::fmt;

use toml_edit::{Array, DocumentMut, Formatted, Item, Table, TableLike, Value};

use crate::machine::{Machine, clock_step};

use super::Fitted;

/// Why a fit cannot be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordError {
    /// The text is not TOML.
    Malformed(String),
    /// The place of a parameter holds something else.
    NoPlace(String),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(message) => write!(f, "not a machine description: {message}"),
            Self::NoPlace(path) => {
                write!(f, "the fitted value of '{path}' has no place: the file needs a table with that key")
            }
        }
    }
}

impl std::error::Error for RecordError {}

/// The text of a machine's file with the fitted parameters, and with their paths and start values, the table, the rows, the most
/// rounds and the remaining error under `[simulation.calibration]`. Adds parameters that the file left to their defaults, keeps
/// comments, and rounds numbers to four significant digits.
///
/// # Errors
///
/// [`RecordError`] if the text is not TOML, or the place of a parameter holds something else.
pub fn record(text: &str, fitted: &Fitted, table: &str, rows: &[String], rounds: u32) -> Result<String, RecordError> {
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| RecordError::Malformed(error.to_string()))?;
    for parameter in &fitted.parameters {
        let path = &parameter.path;
        if path == CLOCKS || clock_step(path).is_some() {
            write_clocks(&mut document, &fitted.machine)
        } else {
            write_number(&mut document, path, parameter.after)
        }
        .ok_or_else(|| RecordError::NoPlace(path.clone()))?;
    }
    let simulation = simulation(&mut document).ok_or_else(|| RecordError::NoPlace("simulation".to_owned()))?;
    let calibration = simulation.entry("calibration").or_insert_with(|| Item::Table(Table::new()));
    let paths = fitted.parameters.iter().map(|parameter| parameter.path.as_str());
    let named = calibration.get("parameters").and_then(Item::as_array);
    if !named.is_some_and(|named| named.iter().map(Value::as_str).eq(paths.clone().map(Some))) {
        calibration["parameters"] = toml_edit::value(paths.collect::<Array>());
    }
    let start = fitted.parameters.iter().map(|parameter| parameter.before).collect::<Array>();
    calibration["start"] = toml_edit::value(start);
    calibration["table"] = toml_edit::value(table);
    calibration["rows"] = toml_edit::value(rows.iter().map(String::as_str).collect::<Array>());
    calibration["rounds"] = toml_edit::value(i64::from(rounds));
    calibration["error"] = toml_edit::value(rounded(fitted.error));
    Ok(document.to_string())
}

const CLOCKS: &str = "clock.mhz";

/// The section with the costs.
fn simulation(document: &mut DocumentMut) -> Option<&mut dyn TableLike> {
    document.get_mut("simulation")?.as_table_like_mut()
}

/// Writes a number into its place and keeps the text around it.
fn write_number(document: &mut DocumentMut, path: &str, number: f64) -> Option<()> {
    let (table, key) = path.split_once('.')?;
    let table = simulation(document)?.entry(table).or_insert_with(|| Item::Table(Table::new())).as_table_like_mut()?;
    let new = Value::Float(Formatted::new(rounded(number)));
    match table.get_mut(key) {
        Some(item) => replace(item.as_value_mut()?, new),
        None => {
            table.insert(key, Item::Value(new));
        }
    }
    Some(())
}

/// Writes the clocks into their places.
fn write_clocks(document: &mut DocumentMut, machine: &Machine) -> Option<()> {
    let clocks = simulation(document)?.get_mut("clock")?.get_mut("mhz")?.as_array_mut()?;
    for (value, mhz) in clocks.iter_mut().zip(&machine.clock.mhz) {
        replace(value, Value::Integer(Formatted::new(i64::from(*mhz))));
    }
    Some(())
}

fn replace(value: &mut Value, mut new: Value) {
    *new.decor_mut() = value.decor().clone();
    *value = new;
}

/// A number rounded to four significant digits.
fn rounded(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::fit::FittedParameter;

    /// A machine without a fit.
    const UNFITTED: &str = "skylake-4s";

    fn fitted(values: &[(&str, f64)]) -> Fitted {
        let mut machine = Machine::built_in(UNFITTED).unwrap();
        let parameters = values.iter().map(|(path, after)| {
            let before = machine.parameter(path).unwrap();
            machine.set_parameter(path, *after).unwrap();
            FittedParameter { path: (*path).to_owned(), before, after: *after, bounds: (0.0, 1e6) }
        });
        let parameters = parameters.collect();
        Fitted { machine, predicted: Vec::new(), error: 0.012345, error_before: 1.0, parameters }
    }

    #[test]
    fn the_recorded_machine_has_the_values_and_all_comments() {
        let text = frameyard_machines::built_in_text(UNFITTED).unwrap();
        let fitted = fitted(&[("costs.read_overlap", 2.34567), ("clock.mhz[1]", 2950.0)]);
        let paths = ["costs.read_overlap", "clock.mhz[1]"];
        let rows = ["big-pcp/processes/1,5", "vanilla-4.16/threads/40"].map(str::to_owned);
        let new = record(text, &fitted, "page-fault", &rows, 8).unwrap();
        let machine: Machine = new.parse().unwrap();
        assert_eq!(machine.costs.read_overlap, 2.346);
        assert_eq!(machine.clock.mhz[..3], [3800, 2950, 3600]);
        assert_eq!(machine.calibration.rows, ["big-pcp/processes/1,5", "vanilla-4.16/threads/40"]);
        assert_eq!(machine.calibration.parameters, paths);
        assert_eq!(machine.calibration.start, [6.0, 3800.0]);
        assert_eq!(machine.calibration.table.as_deref(), Some("page-fault"));
        assert_eq!(machine.calibration.rounds, Some(8));
        assert_eq!(machine.calibration.error, Some(0.01235));
        let comments =
            |text: &str| text.lines().filter(|line| line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(comments(&new), comments(text));
        // Only the values and the calibration change.
        let keys = ["read_overlap", "mhz", "parameters", "start", "table", "rows", "rounds", "error"];
        let is_kept = |line: &&str| {
            let is_value = keys.iter().any(|key| line.starts_with(&format!("{key} = ")));
            !(is_value || line.starts_with(' ') || line.is_empty() || *line == "[simulation.calibration]")
        };
        let kept = |text| str::lines(text).filter(is_kept).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(kept(&new), kept(text));
    }

    #[test]
    fn a_second_record_replaces_the_first() {
        let text = frameyard_machines::built_in_text(UNFITTED).unwrap();
        let rows = ["big-pcp/processes/1".to_owned()];
        let once = record(text, &fitted(&[("costs.read_overlap", 2.0)]), "page-fault", &rows, 8).unwrap();
        assert_eq!(record(&once, &fitted(&[("costs.read_overlap", 2.0)]), "page-fault", &rows, 8).unwrap(), once);
    }

    #[test]
    fn adds_parameters_that_the_file_left_to_their_defaults() {
        let fitted = fitted(&[("kernel_overhead.map_call_cycles", 3000.0)]);
        let mut without: DocumentMut = frameyard_machines::built_in_text(UNFITTED).unwrap().parse().unwrap();
        simulation(&mut without).unwrap().remove("kernel_overhead");
        let new = record(&without.to_string(), &fitted, "page-fault", &[], 8).unwrap();
        assert!(new.contains("[simulation.kernel_overhead]\nmap_call_cycles = 3000.0\n"), "{new}");
        assert_eq!(new.parse::<Machine>().unwrap().kernel_overhead.map_call_cycles, 3000.0);
    }

    #[test]
    fn a_text_with_another_item_at_the_place_is_refused() {
        let fitted = fitted(&[("costs.read_overlap", 2.0)]);
        let refused = record("costs = 1.0\n", &fitted, "page-fault", &[], 8).unwrap_err();
        assert_eq!(refused, RecordError::NoPlace("costs.read_overlap".to_owned()));
        assert!(matches!(record("[", &fitted, "page-fault", &[], 8), Err(RecordError::Malformed(_))));
    }
}
