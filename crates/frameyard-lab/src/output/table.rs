//! Tables of rows for people, as wide as the terminal at most.
//!
//! A table that is wider than the terminal wraps its texts, then drops its minor columns and says which. If that does not
//! suffice, it becomes one record for each row. Where standard output is no terminal and `COLUMNS` is not set, no table is
//! too wide.

use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Width};

use super::row::{Align, Row, Shown, Weight};

const HEADING: anstyle::Style = anstyle::Style::new().bold();
/// What stands for a value that was not measured.
const UNMEASURED: &str = "-";
/// What rules are made of.
const RULE: char = '-';
/// The widest table with rules: its texts are long and are always wrapped.
const RULED_WIDTH: usize = 180;
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

/// Whether lines part the rows, whose cells have several lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rules {
    None,
    BetweenRows,
}

/// Writes rows as a table of at most `width` characters. A column without any value is left out.
pub(super) fn write(rows: &[Row], rules: Rules, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let width = match rules {
        Rules::None => width,
        Rules::BetweenRows => Some(width.map_or(RULED_WIDTH, |width| width.min(RULED_WIDTH))),
    };
    let columns = columns(rows);
    let major: Vec<&Column<'_>> = columns.iter().filter(|column| column.weight == Weight::Major).collect();
    if columns.is_empty() {
        return Ok(());
    }
    if fits(columns.iter(), width) {
        return write_columns(&columns.iter().collect::<Vec<_>>(), rules, width, out);
    }
    if !fits(major.iter().copied(), width) {
        return write_records(&columns, rows.len(), width, out);
    }
    write_columns(&major, rules, width, out)?;
    let minor = columns.iter().filter(|column| column.weight == Weight::Minor);
    let dropped = minor.map(|column| column.heading).collect::<Vec<_>>().join(", ");
    writeln!(out, "{}", wrapped(&format!("(Too narrow for: {dropped}. --json and --csv have every column.)"), width))
}

/// Wraps paragraphs between words, at the width of the terminal or at [`PARAGRAPH_WIDTH`].
pub(super) fn wrapped(text: &str, width: Option<usize>) -> String {
    let width = width.map_or(PARAGRAPH_WIDTH, |width| width.min(PARAGRAPH_WIDTH));
    let mut table = comfy_table::Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
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
    fn width_of(texts: impl Iterator<Item = impl AsRef<str>>) -> usize {
        texts.map(|text| text.as_ref().chars().count()).max().unwrap_or(0)
    }

    fn width(&self) -> usize {
        Self::width_of(self.cells.iter().chain([&self.heading]))
    }

    /// The width to which the column can be wrapped: numbers stay on one line, and headings are broken between words.
    fn least_width(&self) -> usize {
        let word = Self::width_of(self.heading.split(' '));
        let cells = Self::width_of(self.cells.iter());
        match self.align {
            Align::Left => cells.min(TEXT_WIDTH).max(word),
            Align::Right => cells.max(word),
        }
    }
}

fn fits<'c>(columns: impl Iterator<Item = &'c Column<'c>>, width: Option<usize>) -> bool {
    width.is_none_or(|width| columns.map(|column| column.least_width() + GAP).sum::<usize>() <= width + GAP)
}

fn write_columns(columns: &[&Column<'_>], rules: Rules, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let rule = LineStyle::none().fill(RULE);
    // The line under the headings only marks where they end.
    let style = NOTHING.header_separator(rule);
    let mut table = comfy_table::Table::new();
    table.load_style(if rules == Rules::BetweenRows { style.row_separator(rule) } else { style });
    table.set_header(columns.iter().map(|column| column.heading));
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        table.add_row(columns.iter().map(|column| column.cells[row]));
    }
    let whole: usize = columns.iter().map(|column| column.width() + GAP).sum();
    if let Some(width) = width.filter(|width| *width + GAP < whole) {
        let room = (width + GAP).try_into().unwrap_or(u16::MAX);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(room);
    }
    for (column, of) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, GAP as u16));
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed((of.least_width() + GAP) as u16)));
        if of.align == Align::Right {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut is_heading = true;
    for line in table.lines() {
        match line.trim_end() {
            line if is_heading && !line.is_empty() && line.chars().all(|letter| letter == RULE) => {
                is_heading = false;
                if rules == Rules::BetweenRows {
                    writeln!(out, "{line}")?;
                }
            }
            line if is_heading => writeln!(out, "{HEADING}{line}{HEADING:#}")?,
            line => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}

/// Writes a paragraph for each row, a line for each column.
fn write_records(columns: &[Column<'_>], rows: usize, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    for row in 0..rows {
        if row > 0 {
            writeln!(out)?;
        }
        for column in columns {
            let (heading, cell) = (column.heading, column.cells[row]);
            let line = wrapped(&format!("{heading}: {cell}"), width);
            let (heading, rest) = line.split_at(heading.len().min(line.len()));
            writeln!(out, "{HEADING}{heading}{HEADING:#}{rest}")?;
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
        write(rows, Rules::None, width, &mut out).unwrap();
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
    fn a_narrow_terminal_breaks_headings_then_drops_minor_columns_and_says_which() {
        let rows = [row("DMA", 3840, Some(4.5))];
        assert_eq!(plain(&rows, Some(18)), "zone  free  get ns\nDMA   3840     4.5\n");
        assert_eq!(plain(&rows, Some(15)), "zone  free  get\n             ns\nDMA   3840  4.5\n");
        let narrow = plain(&rows, Some(13));
        assert!(narrow.starts_with("zone  free\nDMA   3840\n(Too narrow\nfor: get ns.\n"), "{narrow}");
    }

    #[test]
    fn a_narrower_one_gets_a_record_for_each_row() {
        let rows = [row("DMA", 3840, Some(4.5)), row("Normal", 1, None)];
        let expected = "zone: DMA\nfree: 3840\nget ns: 4.5\n\nzone: Normal\nfree: 1\nget ns: -\n";
        assert_eq!(
            plain(&rows, Some(9))
                .replace("free:\n3840", "free: 3840")
                .replace("get ns:\n", "get ns: ")
                .replace("zone:\n", "zone: "),
            expected
        );
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
