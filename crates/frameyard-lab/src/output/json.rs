//! The JSON form: one object around flat rows.

use std::fmt;
use std::io::Write;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{HostFacts, Outcome};
use crate::Failure;
use crate::version::{COMMIT, VERSION};

/// The version of the form: it changes when a reader of the old one would misread the new one.
pub const SCHEMA: u32 = 1;

/// Rows with the same keys, each value a number, a text, a truth value or `null` for "not measured".
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rows(Vec<Map<String, Value>>);

/// Why values are no rows.
#[derive(Debug)]
pub enum RowError {
    /// A row is not an object.
    NotAnObject,
    /// A value of a row is an array or an object.
    Nested(String),
    /// A row has other keys than the first, or in another order.
    Keys(usize),
    /// The value could not be written as JSON at all.
    Unserialisable(serde_json::Error),
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("a row is not an object: rows are structs with named fields"),
            Self::Nested(key) => write!(f, "`{key}` of a row holds an array or object: rows are flat"),
            Self::Keys(row) => write!(f, "row {row} has other keys than row 0: all rows have the same"),
            Self::Unserialisable(error) => write!(f, "a row cannot be written as JSON: {error}"),
        }
    }
}

impl std::error::Error for RowError {}

impl Rows {
    /// Rows of values, most often of one struct; a field that is `None` or not finite becomes `null`.
    ///
    /// # Errors
    ///
    /// [`RowError`] when the values are not flat objects with the same keys.
    pub fn of<T: Serialize>(values: &[T]) -> Result<Self, RowError> {
        let mut rows: Vec<Map<String, Value>> = Vec::with_capacity(values.len());
        for value in values {
            let Value::Object(row) = serde_json::to_value(value).map_err(RowError::Unserialisable)? else {
                return Err(RowError::NotAnObject);
            };
            if let Some((key, _)) = row.iter().find(|(_, value)| value.is_array() || value.is_object()) {
                return Err(RowError::Nested(key.clone()));
            }
            if rows.first().is_some_and(|first| !first.keys().eq(row.keys())) {
                return Err(RowError::Keys(rows.len()));
            }
            rows.push(row);
        }
        Ok(Self(rows))
    }

    /// The rows, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Map<String, Value>] {
        &self.0
    }
}

/// Writes the one JSON object of an outcome, with a line end behind it.
pub(super) fn write(outcome: &dyn Outcome, host: &HostFacts, out: &mut dyn Write) -> Result<(), Failure> {
    let mut object = Map::new();
    object.insert("schema".to_owned(), SCHEMA.into());
    object.insert("command".to_owned(), outcome.command().into());
    object.insert("version".to_owned(), VERSION.into());
    object.insert("commit".to_owned(), COMMIT.into());
    object.insert("host".to_owned(), serde_json::to_value(host).map_err(Failure::run_time)?);
    object.insert("machine".to_owned(), outcome.machine().into());
    object.extend(outcome.totals());
    let rows = outcome.rows().map_err(Failure::run_time)?;
    object.insert("rows".to_owned(), rows.0.into_iter().map(Value::Object).collect());
    serde_json::to_writer_pretty(&mut *out, &object).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Row {
        zone: &'static str,
        free: u64,
        get_ns: Option<f64>,
    }

    struct TwoZones;

    impl Outcome for TwoZones {
        fn command(&self) -> &'static str {
            "boot"
        }
        fn machine(&self) -> Option<&str> {
            Some("desktop-8")
        }
        fn totals(&self) -> Map<String, Value> {
            Map::from_iter([("map_bytes".to_owned(), 64.into())])
        }
        fn rows(&self) -> Result<Rows, RowError> {
            Rows::of(&[
                Row { zone: "DMA", free: 3, get_ns: None },
                Row { zone: "Normal", free: 0, get_ns: Some(f64::NAN) },
            ])
        }
    }

    #[test]
    fn the_object_has_its_keys_in_order_and_null_for_what_was_not_measured() {
        let mut out = Vec::new();
        let host = HostFacts { cpu: None, cpus: Some(2), memory_bytes: Some(1024), kernel: Some("6.1.0".to_owned()) };
        write(&TwoZones, &host, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("}\n"));
        let compact: String = text.split_whitespace().collect();
        let expected = format!(
            r#"{{"schema":1,"command":"boot","version":"{VERSION}","commit":"{COMMIT}","host":{{"cpu":null,"cpus":2,"memory_bytes":1024,"kernel":"6.1.0"}},"machine":"desktop-8","map_bytes":64,"rows":[{{"zone":"DMA","free":3,"get_ns":null}},{{"zone":"Normal","free":0,"get_ns":null}}]}}"#
        );
        assert_eq!(compact, expected);
    }

    #[test]
    fn rows_that_are_not_flat_or_not_alike_are_refused() {
        use serde_json::json;
        assert!(matches!(Rows::of(&[1]), Err(RowError::NotAnObject)));
        assert!(matches!(Rows::of(&[json!({"a": [1]})]), Err(RowError::Nested(key)) if key == "a"));
        assert!(matches!(Rows::of(&[json!({"a": 1}), json!({"b": 1})]), Err(RowError::Keys(1))));
        assert!(matches!(Rows::of(&[json!({"a": 1}), json!({"a": 1, "b": 2})]), Err(RowError::Keys(1))));
        assert!(matches!(Rows::of(&[json!({"a": 1, "b": 1}), json!({"b": 1, "a": 1})]), Err(RowError::Keys(1))));
    }
}
