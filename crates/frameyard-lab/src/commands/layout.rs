//! `layout`: the words of a page structure, and what each holds in each state.

use clap::Args;
use frameyard::page::{FrameState, PAGE_WORDS, Page, PageWord};

use crate::Failure;
use crate::args::OutputArgs;
use crate::output::{Format, Report, Row};

/// What follows the options in the help text.
const HELP: &str = "\
Examples:
  frameyard layout
  frameyard layout --json";

/// Prints the words of a page structure and their contents in each state
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct LayoutArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the page-word table. Everything in it comes from the core. Text has one column for all states in which every word
/// holds the same.
pub(super) fn run(args: &LayoutArgs) -> Result<(), Failure> {
    let row = |word: &PageWord| {
        let place = Row::new().data("offset", word.offset).data("size", word.size).data("word", word.name);
        FrameState::ALL.iter().fold(place, |row, state| row.data(state.name(), word.holds(*state)))
    };
    let columns = columns();
    let text_row = |word: &PageWord| {
        let bytes = format!("{}-{}", word.offset, word.offset + word.size - 1);
        let place = Row::new().remark("bytes", Format::Plain, bytes).remark("word", Format::Plain, word.name);
        columns
            .iter()
            .fold(place, |row, column| row.remark(column.names().join(", "), Format::Plain, word.holds(column.0[0])))
    };
    Report::new("layout", PAGE_WORDS.iter().map(row).collect())
        .total("page_struct_bytes", size_of::<Page>())
        .ruled_table(PAGE_WORDS.iter().map(text_row))
        .print(&args.output)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_column_and_only_equal_states_share_one() {
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
}
