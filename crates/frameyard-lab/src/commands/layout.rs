//! `layout`: the words of a page structure, and what each holds in each state or for each user of the page.

use clap::{Args, ValueEnum};
use frameyard::page::{FrameState, PAGE_WORDS, Page, PageWord};
use frameyard_vm::{PAGE_FIELDS, PageField, PageUser};

use crate::Failure;
use crate::args::OutputArgs;
use crate::output::{Format, Report, Row};

/// What follows the options in the help text.
const HELP: &str = "\
Examples:
  frameyard layout
  frameyard layout --by user
  frameyard layout --json";

/// Prints the words of a page structure and their contents in each state, or for each user of a page
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct LayoutArgs {
    /// The columns: states of a frame, or users of a page (small objects, page cache, anonymous, huge head, tail, page table)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Columns::State)]
    by: Columns,

    #[command(flatten)]
    output: OutputArgs,
}

/// What the columns of the table are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Columns {
    /// States of a frame
    State,
    /// Users of a page
    User,
}

/// Prints the table of words by state, or of fields by user. Everything in it comes from the code.
pub(super) fn run(args: &LayoutArgs) -> Result<(), Failure> {
    let table = Table::new(args.by);
    Report::new("layout", table.rows.iter().map(|row| table.data(row)).collect())
        .total("page_struct_bytes", size_of::<Page>())
        .ruled_table(table.rows.iter().map(|row| table.text(row)))
        .print(&args.output)
}

/// What some bytes of a page structure hold, in each column.
struct Bytes {
    word: &'static str,
    offset: usize,
    size: usize,
    holds: Vec<&'static str>,
}

struct Table {
    /// The names of the columns.
    names: Vec<&'static str>,
    rows: Vec<Bytes>,
}

impl Table {
    fn new(by: Columns) -> Self {
        let of_word = |word: &PageWord| Bytes {
            word: word.name,
            offset: word.offset,
            size: word.size,
            holds: FrameState::ALL.map(|state| word.holds(state)).to_vec(),
        };
        let of_field = |field: &PageField| Bytes {
            word: field.word,
            offset: field.offset,
            size: field.size,
            holds: PageUser::ALL.map(|user| field.holds(user)).to_vec(),
        };
        match by {
            Columns::State => Self {
                names: FrameState::ALL.map(FrameState::name).to_vec(),
                rows: PAGE_WORDS.iter().map(of_word).collect(),
            },
            Columns::User => Self {
                names: PageUser::ALL.map(PageUser::name).to_vec(),
                rows: PAGE_FIELDS.iter().map(of_field).collect(),
            },
        }
    }

    /// The row for programs: all columns.
    fn data(&self, bytes: &Bytes) -> Row {
        let place = Row::new().data("offset", bytes.offset).data("size", bytes.size).data("word", bytes.word);
        self.names.iter().zip(&bytes.holds).fold(place, |row, (name, holds)| row.data(*name, *holds))
    }

    /// The row for people: one column for all those in which every row holds the same.
    fn text(&self, bytes: &Bytes) -> Row {
        let Bytes { word, offset, size, .. } = *bytes;
        let range = if size == 1 { offset.to_string() } else { format!("{offset}-{}", offset + size - 1) };
        let place = Row::new().remark("bytes", Format::Plain, range).remark("word", Format::Plain, word);
        let heading = |columns: &[usize]| columns.iter().map(|at| self.names[*at]).collect::<Vec<_>>().join(", ");
        let cell =
            |row: Row, columns: Vec<usize>| row.remark(heading(&columns), Format::Plain, bytes.holds[columns[0]]);
        self.merged().into_iter().fold(place, cell)
    }

    /// All columns; those in which every row holds the same are together.
    fn merged(&self) -> Vec<Vec<usize>> {
        let mut merged: Vec<Vec<usize>> = Vec::new();
        for column in 0..self.names.len() {
            let alike = |with: &&mut Vec<usize>| self.rows.iter().all(|row| row.holds[column] == row.holds[with[0]]);
            match merged.iter_mut().find(alike) {
                Some(with) => with.push(column),
                None => merged.push(vec![column]),
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_shown_and_only_equal_ones_together() {
        for by in [Columns::State, Columns::User] {
            let table = Table::new(by);
            let merged = table.merged();
            let mut shown = merged.concat();
            shown.sort_unstable();
            assert_eq!(shown, (0..table.names.len()).collect::<Vec<_>>());
            for row in &table.rows {
                for columns in &merged {
                    assert!(columns.iter().all(|at| row.holds[*at] == row.holds[columns[0]]), "{}", row.word);
                }
            }
        }
    }
}
