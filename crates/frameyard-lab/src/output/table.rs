//! Tables of rows for people, as wide as the terminal at most.
//!
//! A table that is wider than the terminal wraps its texts, then drops its minor columns and says which. If that does not
//! suffice, it becomes one record for each row. Where standard output is no terminal and `COLUMNS` is not set, no table is
//! too wide.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width};

use super::row::{Align, Row, Shown, Weight};

const HEADING: anstyle::Style = anstyle::Style::new().bold();
/// What stands for a value that was not measured.
const UNMEASURED: &str = "-";
/// Spaces between columns.
const GAP: usize = 2;
/// The widest paragraph, which can be read comfortably.
const PARAGRAPH_WIDTH: usize = 120;
/// A cell that is longer than this may be wrapped.
const TEXT_WIDTH: usize = 24;

/// The width of the terminal; `None` where standard output is none.
pub(super) fn terminal_width() -> Option<usize> {
    let of_terminal = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).or_else(of_terminal)
}

/// Writes rows as a table of at most `width` characters. A column without any value is left out.
pub(super) fn write(rows: &[Row], width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let columns = columns(rows);
    let major: Vec<&Column<'_>> = columns.iter().filter(|column| column.weight == Weight::Major).collect();
    if columns.is_empty() {
        return Ok(());
    }
    if fits(columns.iter(), width) {
        return write_columns(&columns.iter().collect::<Vec<_>>(), width, out);
    }
    if !fits(major.iter().copied(), width) {
        return write_records(&columns, rows.len(), out);
    }
    write_columns(&major, width, out)?;
    let dropped: Vec<&str> =
        columns.iter().filter(|column| column.weight == Weight::Minor).map(|column| column.heading).collect();
    let dropped = format!("(Too narrow for: {}. --json and --csv have every column.)", dropped.join(", "));
    writeln!(out, "{}", wrapped(&dropped, width))
}

/// Wraps paragraphs between words, at the width of the terminal or at [`PARAGRAPH_WIDTH`].
pub(super) fn wrapped(text: &str, width: Option<usize>) -> String {
    let width = width.map_or(PARAGRAPH_WIDTH, |width| width.min(PARAGRAPH_WIDTH));
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width.try_into().unwrap_or(u16::MAX)).add_row([text]);
    if let Some(column) = table.column_mut(0) {
        column.set_padding((0, 0));
    }
    table.trim_fmt()
}

/// A column of a table.
struct Column<'r> {
    heading: &'r str,
    cells: Vec<&'r str>,
    align: Align,
    weight: Weight,
}

/// The columns in which some row has a value.
fn columns(rows: &[Row]) -> Vec<Column<'_>> {
    let cells: Vec<Vec<&Shown>> = rows.iter().map(|row| row.shown().collect()).collect();
    let of = |at: usize| cells.iter().filter_map(move |row| row.get(at).copied());
    let count = cells.first().map_or(0, Vec::len);
    let column = |at: usize| {
        let first = of(at).find(|cell| cell.text.is_some())?;
        let cells = of(at).map(|cell| cell.text.as_deref().unwrap_or(UNMEASURED)).collect();
        Some(Column { heading: &first.heading, cells, align: first.align, weight: first.weight })
    };
    (0..count).filter_map(column).collect()
}

impl Column<'_> {
    fn width(&self) -> usize {
        self.cells.iter().chain([&self.heading]).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    /// The width to which the column can be wrapped.
    fn least_width(&self) -> usize {
        match self.align {
            Align::Left => self.width().min(TEXT_WIDTH.max(self.heading.chars().count())),
            Align::Right => self.width(),
        }
    }
}

fn fits<'c>(columns: impl Iterator<Item = &'c Column<'c>>, width: Option<usize>) -> bool {
    width.is_none_or(|width| columns.map(|column| column.least_width() + GAP).sum::<usize>() <= width + GAP)
}

fn write_columns(columns: &[&Column<'_>], width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(columns.iter().map(|column| column.heading));
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        table.add_row(columns.iter().map(|column| column.cells[row]));
    }
    let whole: usize = columns.iter().map(|column| column.width() + GAP).sum();
    let room = width.map_or(0, |width| (width + GAP).min(whole));
    let arrangement =
        if room < whole && width.is_some() { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    table.set_content_arrangement(arrangement).set_width(room.try_into().unwrap_or(u16::MAX));
    for (column, of) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, GAP as u16));
        if of.align == Align::Right {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if of.width() <= of.least_width() {
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed((of.width() + GAP) as u16)));
        }
    }
    for (at, line) in table.lines().enumerate() {
        match at {
            0 => writeln!(out, "{HEADING}{}{HEADING:#}", line.trim_end())?,
            _ => writeln!(out, "{}", line.trim_end())?,
        }
    }
    Ok(())
}

/// Writes a paragraph for each row, a line for each column.
fn write_records(columns: &[Column<'_>], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    let width = columns.iter().map(|column| column.heading.chars().count()).max().unwrap_or(0);
    for row in 0..rows {
        if row > 0 {
            writeln!(out)?;
        }
        for column in columns {
            writeln!(out, "{HEADING}{:<width$}{HEADING:#}  {}", column.heading, column.cells[row])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn plain(rows: &[Row], width: Option<usize>) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        write(rows, width, &mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    fn row(zone: &str, free: u64, get_ns: Option<f64>) -> Row {
        Row::new()
            .column("zone", "zone", zone)
            .column("free", "free", free)
            .column_as("get_ns", "get ns", Format::number(1), get_ns)
            .minor()
    }

    #[test]
    fn numbers_stand_right_and_words_left() {
        let rows = [row("DMA", 3840, Some(4.5678)), row("Normal", 12, None)];
        assert_eq!(plain(&rows, None), "zone    free  get ns\nDMA     3840     4.6\nNormal    12       -\n");
    }

    #[test]
    fn a_column_without_any_value_is_left_out() {
        assert_eq!(plain(&[row("DMA", 1, None)], None), "zone  free\nDMA      1\n");
        assert_eq!(plain(&[], None), "");
    }

    #[test]
    fn a_narrow_terminal_drops_minor_columns_and_says_which() {
        let rows = [row("DMA", 3840, Some(4.5))];
        assert_eq!(
            plain(&rows, Some(16)),
            "zone  free\nDMA   3840\n(Too narrow for:\nget ns. --json\nand --csv have\nevery column.)\n"
        );
        assert_eq!(plain(&rows, Some(18)), "zone  free  get ns\nDMA   3840     4.5\n");
    }

    #[test]
    fn a_narrower_one_gets_a_record_for_each_row() {
        let rows = [row("DMA", 3840, Some(4.5)), row("Normal", 1, None)];
        let expected = "zone    DMA\nfree    3840\nget ns  4.5\n\nzone    Normal\nfree    1\nget ns  -\n";
        assert_eq!(plain(&rows, Some(8)), expected);
    }

    #[test]
    fn long_texts_are_wrapped_before_anything_is_dropped() {
        let note = "a note that is longer than the terminal is wide and so has several lines";
        let rows = [row("DMA", 3840, Some(4.5)).column("note", "note", note)];
        let text = plain(&rows, Some(50));
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.chars().count() <= 50), "{text}");
        assert!(
            text.contains("get ns") && text.starts_with("zone  free  get ns  note\nDMA   3840     4.5  a note"),
            "{text}"
        );
    }
}
