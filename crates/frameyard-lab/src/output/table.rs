//! Aligned tables for people.

use std::io::{self, Write};

use frameyard::ByteSize;
use serde_json::Value;

use super::Rows;

const HEADING: anstyle::Style = anstyle::Style::new().bold();

/// A table: headings, and rows of cells; columns of numbers or sizes are aligned to the right.
#[derive(Clone, Debug)]
pub struct Table {
    /// Texts above the headings, each with the column that it begins at.
    bands: Vec<(usize, String)>,
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these headings.
    #[must_use]
    pub fn new<const COLUMNS: usize>(headings: [&str; COLUMNS]) -> Self {
        Self::with_headings(headings)
    }

    /// An empty table with headings whose number is known at run time only.
    #[must_use]
    pub fn with_headings<T: ToString>(headings: impl IntoIterator<Item = T>) -> Self {
        let headings = headings.into_iter().map(|heading| heading.to_string()).collect();
        Self { bands: Vec::new(), headings, rows: Vec::new() }
    }

    /// All columns of `rows`, headed as their keys are.
    #[must_use]
    pub fn of(rows: &Rows) -> Self {
        let rows = rows.as_slice();
        let headings = rows.first().map(|row| row.keys().cloned().collect()).unwrap_or_default();
        let rows = rows.iter().map(|row| row.values().map(cell).collect()).collect();
        Self { bands: Vec::new(), headings, rows }
    }

    /// The same with a text above the headings from that column on. Bands come from left to right; one that is too long for its
    /// columns moves those behind it. Empty ones are not written.
    #[must_use]
    pub fn with_band(mut self, column: usize, text: &str) -> Self {
        if !text.is_empty() {
            self.bands.push((column, text.to_owned()));
        }
        self
    }

    /// Appends a row; cells that are missing stay empty, cells beyond the headings are dropped.
    pub fn push<I, T>(&mut self, cells: I)
    where
        I: IntoIterator<Item = T>,
        T: ToString,
    {
        let mut row: Vec<String> = cells.into_iter().map(|cell| cell.to_string()).collect();
        row.resize(self.headings.len(), String::new());
        self.rows.push(row);
    }

    /// Writes the headings, in bold, and the rows; two spaces part the columns, no line ends in spaces.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns: Vec<Column> = (0..self.headings.len()).map(|at| self.column(at)).collect();
        if !self.bands.is_empty() {
            writeln!(out, "{HEADING}{}{HEADING:#}", self.band_line(&columns))?;
        }
        if !self.headings.is_empty() {
            writeln!(out, "{HEADING}{}{HEADING:#}", line(&self.headings, &columns))?;
        }
        self.rows.iter().try_for_each(|row| writeln!(out, "{}", line(row, &columns)))
    }

    fn band_line(&self, columns: &[Column]) -> String {
        let mut line = String::new();
        for (column, text) in &self.bands {
            let start: usize = columns.iter().take(*column).map(|column| column.width + 2).sum();
            let gap = if line.is_empty() { 0 } else { 2 };
            let written = line.chars().count();
            line.extend(std::iter::repeat_n(' ', start.saturating_sub(written).max(gap)));
            line += text;
        }
        line
    }

    fn column(&self, at: usize) -> Column {
        let cells = || self.rows.iter().map(|row| row[at].as_str());
        let width = cells().chain([self.headings[at].as_str()]).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let mut numbers = cells().filter(|cell| !cell.is_empty() && *cell != UNMEASURED).peekable();
        let numeric = numbers.peek().is_some() && numbers.all(is_number);
        Column { width, align: if numeric { Align::Right } else { Align::Left } }
    }
}

/// Whether a cell is a number or a size.
fn is_number(cell: &str) -> bool {
    cell.parse::<f64>().is_ok() || cell.parse::<ByteSize>().is_ok()
}

/// What stands for a value that was not measured.
const UNMEASURED: &str = "-";

struct Column {
    width: usize,
    align: Align,
}

enum Align {
    Left,
    Right,
}

fn line(cells: &[String], columns: &[Column]) -> String {
    let padded = cells.iter().zip(columns).map(|(cell, column)| match column.align {
        Align::Left => format!("{cell:<width$}", width = column.width),
        Align::Right => format!("{cell:>width$}", width = column.width),
    });
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// A value as a person reads it: a fraction with one digit behind the point.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => UNMEASURED.to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or(f64::NAN)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plain(table: &Table) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        table.write(&mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn numbers_stand_right_and_words_left() {
        let rows = Rows::of(&[
            json!({"zone": "DMA", "free": 3840, "get_ns": 4.5678}),
            json!({"zone": "Normal", "free": 12, "get_ns": null}),
        ]);
        let expected = "zone    free  get_ns\nDMA     3840     4.6\nNormal    12       -\n";
        assert_eq!(plain(&Table::of(&rows.unwrap())), expected);
    }

    #[test]
    fn short_rows_are_filled_up_and_no_line_ends_in_spaces() {
        let mut table = Table::new(["name", "what it is"]);
        table.push(["a", "first machine"]);
        table.push(["longer"]);
        assert_eq!(plain(&table), "name    what it is\na       first machine\nlonger\n");
    }

    #[test]
    fn bands_stand_over_the_columns_that_they_begin_at() {
        let mut table =
            Table::new(["policy", "ops", "lock"]).with_band(1, "here").with_band(2, "there").with_band(3, "");
        table.push(["vanilla", "1000", "5"]);
        assert_eq!(
            plain(&table),
            "         here  there\npolicy   ops   lock\nvanilla  1000     5\n".replace("ops ", " ops")
        );
    }

    #[test]
    fn no_rows_give_no_table() {
        assert_eq!(plain(&Table::of(&Rows::default())), "");
    }
}
