//! `layout`: the words of a page structure, and what each holds in each state.

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, LineStyle, Width};
use frameyard::page::{FrameState, PAGE_WORDS, Page, PageWord};

use crate::Failure;
use crate::cli::LayoutArgs;
use crate::output::{Report, Row};

/// The text wraps cells at this width.
const WIDTH: u16 = 22;

/// Prints the page-word table. Everything in it comes from the core.
pub(super) fn run(args: &LayoutArgs) -> Result<(), Failure> {
    let row = |word: &PageWord| {
        let place = Row::new().data("offset", word.offset).data("size", word.size).data("word", word.name);
        FrameState::ALL.iter().fold(place, |row, state| row.data(state.name(), word.holds(*state)))
    };
    Report::new("layout", PAGE_WORDS.iter().map(row).collect())
        .total("page_struct_bytes", size_of::<Page>())
        .verbatim(text())
        .print(&args.output)
}

/// The table, with one column for all states in which every word holds the same.
fn text() -> String {
    let columns = columns();
    let mut table = comfy_table::Table::new();
    table.load_style(NOTHING.row_separator(LineStyle::none().fill('-').junction('-')));
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(u16::MAX);
    let names = columns.iter().map(|column| column.names().join(", "));
    table.add_row(["bytes", "word"].map(str::to_owned).into_iter().chain(names));
    for word in PAGE_WORDS {
        let bytes = format!("{}-{}", word.offset, word.offset + word.size - 1);
        let held = columns.iter().map(|column| word.holds(column.0[0]).to_owned());
        table.add_row([bytes, word.name.to_owned()].into_iter().chain(held));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2)).set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(WIDTH + 2)));
    }
    table.trim_fmt() + "\n"
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

    #[test]
    fn cells_are_wrapped_between_words_and_rules_part_the_rows() {
        let text = text();
        assert!(text.starts_with("bytes  word"), "{text}");
        let rules = text.lines().filter(|line| !line.is_empty() && line.chars().all(|letter| letter == '-')).count();
        assert_eq!(rules, PAGE_WORDS.len(), "{text}");
        assert!(
            text.lines().all(|line| line
                .split("  ")
                .all(|cell| cell.trim().len() <= usize::from(WIDTH) || cell.starts_with('-'))),
            "{text}"
        );
    }
}
