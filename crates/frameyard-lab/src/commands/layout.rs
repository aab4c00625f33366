//! `layout`: the words of a page structure, and what each holds in each state.

use std::io::{self, Write};

use frameyard::{FrameState, PAGE_WORDS, Page, PageWord};
use serde_json::{Map, Value};

use crate::Failure;
use crate::cli::LayoutArgs;
use crate::output::{self, Outcome, RowError, Rows};

/// Prints the table.
pub(super) fn run(args: &LayoutArgs) -> Result<(), Failure> {
    output::print(&PageLayout, &args.output)
}

/// The page-word table; everything in it comes from the core.
struct PageLayout;

/// The text breaks what a word holds at about this width.
const COLUMN: usize = 15;

impl Outcome for PageLayout {
    fn command(&self) -> &'static str {
        "layout"
    }

    fn totals(&self) -> Map<String, Value> {
        Map::from_iter([("page_struct_bytes".to_owned(), size_of::<Page>().into())])
    }

    fn rows(&self) -> Result<Rows, RowError> {
        let row = |word: &PageWord| {
            let place = [("offset", word.offset.into()), ("size", word.size.into()), ("word", word.name.into())];
            let held = FrameState::ALL.map(|state| (state.name(), word.holds(state).into()));
            let row = place.into_iter().chain(held).map(|(key, value): (&str, Value)| (key.to_owned(), value));
            row.collect::<Map<String, Value>>()
        };
        Rows::of(&PAGE_WORDS.iter().map(row).collect::<Vec<_>>())
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let heading = ["bytes", "word"].into_iter().chain(FrameState::ALL.map(FrameState::name));
        let mut rows = vec![heading.map(|name| vec![name.to_owned()]).collect::<Vec<_>>()];
        rows.extend(PAGE_WORDS.iter().map(|word| {
            let bytes = format!("{}-{}", word.offset, word.offset + word.size - 1);
            let held = FrameState::ALL.map(|state| wrapped(word.holds(state)));
            [vec![bytes], vec![word.name.to_owned()]].into_iter().chain(held).collect()
        }));
        write_rows(&rows, out)
    }
}

/// The text in lines of about [`COLUMN`] characters, broken between words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= COLUMN => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Writes rows of cells of several lines; two spaces part the columns, a rule parts the rows.
fn write_rows(rows: &[Vec<Vec<String>>], out: &mut dyn Write) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let widest = |column: usize| rows.iter().flat_map(|row| &row[column]).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            writeln!(out, "{}", "-".repeat(widths.iter().sum::<usize>() + 2 * (columns - 1)))?;
        }
        for line in 0..row.iter().map(Vec::len).max().unwrap_or(0) {
            let cell = |(cell, width): (&Vec<String>, &usize)| {
                format!("{:<width$}", cell.get(line).map_or("", String::as_str))
            };
            let cells: Vec<String> = row.iter().zip(&widths).map(cell).collect();
            writeln!(out, "{}", cells.join("  ").trim_end())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_broken_between_words() {
        assert_eq!(wrapped("state, order, migration type, zone"), ["state, order,", "migration type,", "zone"]);
        assert_eq!(wrapped("0"), ["0"]);
    }

    #[test]
    fn cells_of_several_lines_stand_beside_each_other() {
        let cell = |text: &str| wrapped(text);
        let rows = [vec![cell("a"), cell("b")], vec![cell("previous block of the list"), cell("0")]];
        let mut out = Vec::new();
        write_rows(&rows, &mut out).unwrap();
        let expected = "a               b\n------------------\nprevious block  0\nof the list\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
