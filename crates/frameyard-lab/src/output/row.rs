//! Result rows. Each column is declared once, where its value is computed, for JSON, CSV and text.
//!
//! A column has a key for JSON and CSV. A column that people see has a heading, with its unit, and a [`Format`]. All rows
//! of a command have the same columns in the same order. `null` stands for "not measured".

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Format;
use crate::measure::Spread;

/// A name of a column. It is a literal except where a table decides how many columns there are.
type Name = Cow<'static, str>;

/// One result row.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Row {
    cells: Vec<Cell>,
}

#[derive(Clone, PartialEq, Debug)]
struct Cell {
    /// `None` for what only people see.
    key: Option<Name>,
    value: Value,
    shown: Option<Shown>,
}

/// A cell of a table.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shown {
    pub(super) heading: Name,
    /// `None` where the value was not measured.
    pub(super) text: Option<String>,
    pub(super) align: Align,
    pub(super) weight: Weight,
}

/// On which side of its column a cell stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Align {
    Left,
    Right,
}

/// Whether a column is dropped where the terminal is too narrow for the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Weight {
    Major,
    Minor,
}

impl Row {
    /// A row without columns.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A column of JSON and CSV alone.
    pub(crate) fn data(mut self, key: impl Into<Name>, value: impl Into<Value>) -> Self {
        self.cells.push(Cell { key: Some(key.into()), value: value.into(), shown: None });
        self
    }

    /// A column whose values are shown as they are.
    pub(crate) fn column(self, key: impl Into<Name>, heading: impl Into<Name>, value: impl Into<Value>) -> Self {
        self.column_as(key, heading, Format::Plain, value)
    }

    /// A column.
    pub(crate) fn column_as(
        mut self,
        key: impl Into<Name>,
        heading: impl Into<Name>,
        format: Format,
        value: impl Into<Value>,
    ) -> Self {
        let value = value.into();
        let shown = shown(heading, format.text(&value), &value);
        self.cells.push(Cell { key: Some(key.into()), value, shown: Some(shown) });
        self
    }

    /// Three columns of JSON and CSV: the median under `key`, then `key_min` and `key_max`. People see one column, as in
    /// `4.5 (4.4–4.9)`.
    pub(crate) fn spread<T>(
        mut self,
        key: &'static str,
        heading: impl Into<Name>,
        format: Format,
        spread: Option<Spread<T>>,
    ) -> Self
    where
        Option<T>: Into<Value>,
    {
        let [median, min, max] = match spread {
            Some(Spread { median, min, max }) => [median, min, max].map(|value| Some(value).into()),
            None => [Value::Null, Value::Null, Value::Null],
        };
        let texts = [&median, &min, &max].map(|value| format.text(value));
        let text = match texts {
            [Some(median), Some(min), Some(max)] => Some(format!("{median} ({min}–{max})")),
            _ => None,
        };
        let shown = Shown { align: Align::Right, ..shown(heading, text, &median) };
        self.cells.push(Cell { key: Some(key.into()), value: median, shown: Some(shown) });
        self.data(format!("{key}_min"), min).data(format!("{key}_max"), max)
    }

    /// A column that only people see.
    pub(crate) fn remark(mut self, heading: impl Into<Name>, format: Format, value: impl Into<Value>) -> Self {
        let value = value.into();
        let shown = shown(heading, format.text(&value), &value);
        self.cells.push(Cell { key: None, value, shown: Some(shown) });
        self
    }

    /// The same row, whose last column is dropped first where the terminal is too narrow.
    pub(crate) fn minor(mut self) -> Self {
        if let Some(shown) = self.cells.iter_mut().rev().find_map(|cell| cell.shown.as_mut()) {
            shown.weight = Weight::Minor;
        }
        self
    }

    /// The columns of this row, then those of another.
    pub(crate) fn followed_by(mut self, other: Self) -> Self {
        self.cells.extend(other.cells);
        self
    }

    /// The value under a key; null where there is none.
    pub(crate) fn value(&self, key: &str) -> &Value {
        self.cells.iter().find(|cell| cell.key.as_deref() == Some(key)).map_or(&Value::Null, |cell| &cell.value)
    }

    /// The number under a key.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.value(key).as_f64()
    }

    /// The text under a key.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.value(key).as_str()
    }

    /// The row as an object of JSON.
    pub(crate) fn object(&self) -> Map<String, Value> {
        self.data_cells().map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }

    /// The keys of JSON and CSV, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.data_cells().map(|(key, _)| key)
    }

    /// Keys and values of JSON and CSV, in order.
    pub(super) fn data_cells(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.cells.iter().filter_map(|cell| Some((cell.key.as_deref()?, &cell.value)))
    }

    /// What people see, in order.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Shown> {
        self.cells.iter().filter_map(|cell| cell.shown.as_ref())
    }
}

impl From<Map<String, Value>> for Row {
    /// A row of JSON and CSV alone.
    fn from(object: Map<String, Value>) -> Self {
        object.into_iter().fold(Self::new(), |row, (key, value)| row.data(key, value))
    }
}

fn shown(heading: impl Into<Name>, text: Option<String>, value: &Value) -> Shown {
    let align = if value.is_number() { Align::Right } else { Align::Left };
    Shown { heading: heading.into(), text, align, weight: Weight::Major }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_declaration_is_a_key_a_heading_and_a_value() {
        let row = Row::new()
            .column("policy", "policy", "bits")
            .data("runs", 3)
            .spread("get_ns", "get ns", Format::number(1), Some(Spread { median: 4.56, min: 4.0, max: 5.0 }))
            .column_as("map_bytes", "map", Format::Size, None::<u64>)
            .remark("vs first %", Format::percent(1).signed(), 0.5);
        let expected = json!({"policy": "bits", "runs": 3, "get_ns": 4.56, "get_ns_min": 4.0, "get_ns_max": 5.0, "map_bytes": null});
        assert_eq!(Value::Object(row.object()), expected);
        let shown: Vec<(&str, Option<&str>)> =
            row.shown().map(|shown| (shown.heading.as_ref(), shown.text.as_deref())).collect();
        let expected =
            [("policy", Some("bits")), ("get ns", Some("4.6 (4.0–5.0)")), ("map", None), ("vs first %", Some("+50.0"))];
        assert_eq!(shown, expected);
    }

    #[test]
    fn values_are_found_by_their_keys() {
        let row = Row::new().data("a", 1.5).followed_by(Row::new().data("b", "x"));
        assert_eq!((row.number("a"), row.text("b"), row.value("c")), (Some(1.5), Some("x"), &Value::Null));
    }

    #[test]
    fn a_spread_that_was_not_measured_is_three_nulls() {
        let row = Row::new().spread("get_ns", "get ns", Format::Plain, None::<Spread<f64>>);
        assert_eq!(Value::Object(row.object()), json!({"get_ns": null, "get_ns_min": null, "get_ns_max": null}));
    }
}
