//! What a command found: rows, values of the whole run, and the text that people read.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::Row;
use super::output_file::OutputFile;
use super::table::{self, Rules};
use crate::Failure;

/// The result of a command.
///
/// JSON has all rows, with values of the whole run beside them. CSV has the rows. Text has the sections in order; without
/// a section that is a table it begins with a table of all rows.
#[derive(Clone, Debug)]
#[must_use = "a report does nothing until it is printed"]
pub(crate) struct Report {
    pub(super) command: &'static str,
    pub(super) machine: Option<String>,
    pub(super) totals: Map<String, Value>,
    pub(super) rows: Vec<Row>,
    sections: Vec<Section>,
}

/// A part of the text.
#[derive(Clone, Debug)]
enum Section {
    /// A line directly above what follows.
    Title(String),
    Table(Vec<Row>, Rules),
    /// Lines after a blank line.
    Note(String),
    /// As it is.
    Verbatim(String),
}

impl Report {
    /// The rows of a command, as it was typed: `boot`, `bench alloc`.
    pub(crate) fn new(command: &'static str, rows: Vec<Row>) -> Self {
        Self { command, machine: None, totals: Map::new(), rows, sections: Vec::new() }
    }

    /// The same report about a machine.
    pub(crate) fn of_machine(mut self, name: impl Into<String>) -> Self {
        self.machine = Some(name.into());
        self
    }

    /// The same report with a value of the whole run.
    pub(crate) fn total(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.totals.insert(key.to_owned(), value.into());
        self
    }

    /// The same report with a line above the next table.
    pub(crate) fn title(mut self, text: impl Into<String>) -> Self {
        self.sections.push(Section::Title(text.into()));
        self
    }

    /// The same report with a table in the text.
    pub(crate) fn table(mut self, rows: impl IntoIterator<Item = Row>) -> Self {
        self.sections.push(Section::Table(rows.into_iter().collect(), Rules::None));
        self
    }

    /// The same report with a table of long texts, whose rows are parted by lines.
    pub(crate) fn ruled_table(mut self, rows: impl IntoIterator<Item = Row>) -> Self {
        self.sections.push(Section::Table(rows.into_iter().collect(), Rules::BetweenRows));
        self
    }

    /// The same report with lines of explanation.
    pub(crate) fn note(mut self, text: impl Into<String>) -> Self {
        self.sections.push(Section::Note(text.into()));
        self
    }

    /// The same report with text that is written as it is.
    pub(crate) fn verbatim(mut self, text: impl Into<String>) -> Self {
        self.sections.push(Section::Verbatim(text.into()));
        self
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Writes the text, with tables of at most `width` characters.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub(crate) fn write_text(&self, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        let is_shown = |section: &Section| matches!(section, Section::Table(..) | Section::Verbatim(_));
        let mut is_first = true;
        if !self.sections.iter().any(is_shown) {
            table::write(&self.rows, Rules::None, width, out)?;
            is_first = self.rows.is_empty();
        }
        let mut after_title = false;
        for section in &self.sections {
            let is_apart = !matches!(section, Section::Verbatim(_)) && !after_title && !is_first;
            if is_apart {
                writeln!(out)?;
            }
            match section {
                Section::Title(text) if width.is_none() => writeln!(out, "{text}")?,
                Section::Title(text) | Section::Note(text) => writeln!(out, "{}", table::wrapped(text, width))?,
                Section::Table(rows, rules) => table::write(rows, *rules, width, out)?,
                Section::Verbatim(text) => out.write_all(text.as_bytes())?,
            }
            after_title = matches!(section, Section::Title(_));
            is_first = false;
        }
        Ok(())
    }

    /// Writes the rows as comma-separated values: a line of keys, then a line for each row. Null is empty.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`].
    pub(crate) fn write_csv(&self, file: &OutputFile) -> Result<(), Failure> {
        let cell = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        file.write(|out| {
            let mut out = csv::Writer::from_writer(out);
            if let Some(first) = self.rows.first() {
                out.write_record(first.keys())?;
            }
            for row in &self.rows {
                out.write_record(row.data_cells().map(|(_, value)| cell(value)))?;
            }
            out.flush()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        vec![
            Row::new().column("zone", "zone", "DMA").data("note", "y, \"z\""),
            Row::new().column("zone", "zone", "Normal").data("note", Value::Null),
        ]
    }

    fn text(report: &Report) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        report.write_text(None, &mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn without_a_table_of_its_own_a_report_begins_with_all_rows() {
        let report = Report::new("show", rows()).note("A note.");
        assert_eq!(text(&report), "zone\nDMA\nNormal\n\nA note.\n");
    }

    #[test]
    fn sections_are_apart_and_titles_stand_on_their_tables() {
        let report = Report::new("show", rows()).title("First").table(rows()).title("Second").table(rows());
        assert_eq!(text(&report), "First\nzone\nDMA\nNormal\n\nSecond\nzone\nDMA\nNormal\n");
    }

    #[test]
    fn rows_are_lines_of_csv_under_their_keys() {
        let path = std::env::temp_dir().join(format!("frameyard-report-{}.csv", std::process::id()));
        let file = OutputFile::create(&path).unwrap();
        Report::new("show", rows()).write_csv(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "zone,note\nDMA,\"y, \"\"z\"\"\"\nNormal,\n");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_title_is_wrapped_at_the_width_of_the_terminal() {
        let report = Report::new("x", Vec::new()).title("one two three four").table([Row::new().column("a", "a", 1)]);
        let text = |width| {
            let mut out = Vec::new();
            report.write_text(width, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(text(Some(12)).starts_with("one two\nthree four\n"), "{}", text(Some(12)));
        assert!(text(None).starts_with("one two three four\n"));
    }
}
