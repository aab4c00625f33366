//! `layout`: the words of a page structure, and what each holds in each state.

use std::io::{self, Write};

use frameyard::page::{FrameState, PAGE_WORDS, Page, PageWord};
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
const WIDTH: usize = 22;

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
        let columns = columns();
        let heading = columns.iter().map(|states| wrapped(&states.names().join(", ")));
        let mut rows = vec![vec![wrapped("bytes"), wrapped("word")].into_iter().chain(heading).collect::<Vec<_>>()];
        rows.extend(PAGE_WORDS.iter().map(|word| {
            let bytes = format!("{}-{}", word.offset, word.offset + word.size - 1);
            let held = columns.iter().map(|states| wrapped(word.holds(states.0[0])));
            vec![vec![bytes], vec![word.name.to_owned()]].into_iter().chain(held).collect()
        }));
        write_rows(&rows, out)
    }
}

/// States in which every word holds the same; at least one.
struct Column(Vec<FrameState>);

impl Column {
    fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|state| state.name()).collect()
    }
}

/// All states, in as few columns as show the whole table.
fn columns() -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for state in FrameState::ALL {
        let alike = |column: &&mut Column| PAGE_WORDS.iter().all(|word| word.holds(state) == word.holds(column.0[0]));
        match columns.iter_mut().find(alike) {
            Some(column) => column.0.push(state),
            None => columns.push(Column(vec![state])),
        }
    }
    columns
}

/// The text in lines of about [`WIDTH`] characters, broken between words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
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
    fn every_state_has_a_place_and_only_equal_ones_share_it() {
        let columns = columns();
        let mut states: Vec<&str> = columns.iter().flat_map(Column::names).collect();
        states.sort_unstable();
        let mut all = FrameState::ALL.map(FrameState::name);
        all.sort_unstable();
        assert_eq!(states, all);
        for word in PAGE_WORDS {
            for Column(states) in &columns {
                assert!(states.iter().all(|state| word.holds(*state) == word.holds(states[0])), "{}", word.name);
            }
        }
    }

    #[test]
    fn a_cell_is_broken_between_words() {
        assert_eq!(wrapped("state, order, migration type, zone"), ["state, order,", "migration type, zone"]);
        assert_eq!(wrapped("0"), ["0"]);
    }

    #[test]
    fn cells_of_several_lines_stand_beside_each_other() {
        let cell = |text: &str| wrapped(text);
        let rows = [vec![cell("a"), cell("b")], vec![cell("previous block of the list"), cell("0")]];
        let mut out = Vec::new();
        write_rows(&rows, &mut out).unwrap();
        let expected = "a                      b\n------------------------\nprevious block of the  0\nlist\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
