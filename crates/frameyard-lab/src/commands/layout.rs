//! `layout`: the words of a page structure, what each holds in each state or for each user of the page, and what metadata takes.

use clap::{Args, ValueEnum};
use frameyard::page::{FrameState, PAGE_WORDS, Page, PageWord};
use frameyard::{ByteSize, Geometry, Layout, MemoryTable, NodeId, Pfn, PfnRange, YardConfig};
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
    let metadata = [ByteSize::kib(4), ByteSize::kib(64), ByteSize::mib(2)].map(Metadata::of);
    Report::new("layout", table.rows.iter().map(|row| table.data(row)).collect())
        .total("page_struct_bytes", size_of::<Page>())
        .total("metadata_of_64g", metadata.iter().map(Metadata::data).collect::<Vec<_>>())
        .ruled_table(table.rows.iter().map(|row| table.text(row)))
        .title("Memory map and control region of 64 GiB of memory on one node with 2 CPUs, by the size of a frame:")
        .table(metadata.iter().map(Metadata::text))
        .print(&args.output)
}

/// What a yard keeps beside its frames.
struct Metadata {
    frame_size: ByteSize,
    memory: ByteSize,
    map: ByteSize,
    control: ByteSize,
}

impl Metadata {
    /// The metadata of a yard of 64 GiB from the address 4 GiB on.
    ///
    /// # Panics
    ///
    /// If no geometry has frames of that size.
    fn of(frame_size: ByteSize) -> Self {
        let memory = ByteSize::gib(64);
        let usual = Geometry::X86_64;
        let geometry = if frame_size == usual.page_size() { Ok(usual) } else { Geometry::of_frames(frame_size) };
        let geometry = geometry.expect("a size of frames");
        let count = geometry.pages_in(memory);
        let frames = PfnRange::new(Pfn(geometry.pages_in(ByteSize::gib(4)).0), count);
        let memory_table = [(frames, NodeId(0))];
        let table = MemoryTable { memory: &memory_table, ..MemoryTable::default() };
        let config = YardConfig { geometry, ..YardConfig::new(&[NodeId(0); 2]) };
        let layout = Layout::plan(&table, &config).expect("a yard");
        Self { frame_size, memory, map: layout.map_bytes(), control: layout.control_bytes() }
    }

    fn percent(&self) -> f64 {
        (self.map.0 + self.control.0) as f64 / self.memory.0 as f64 * 100.0
    }

    fn data(&self) -> serde_json::Value {
        serde_json::json!({
            "frame_bytes": self.frame_size.0,
            "memory_bytes": self.memory.0,
            "map_bytes": self.map.0,
            "control_bytes": self.control.0,
        })
    }

    fn text(&self) -> Row {
        Row::new()
            .remark("frame", Format::ExactSize, self.frame_size.0)
            .remark("map", Format::Size, self.map.0)
            .remark("control", Format::Size, self.control.0)
            .remark("% of memory", Format::number(4), self.percent())
    }
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
    fn metadata_follows_the_number_of_frames() {
        let percent = |size| Metadata::of(size).percent();
        let in_pages = percent(ByteSize::kib(4));
        assert!((1.5..1.7).contains(&in_pages), "{in_pages}");
        let in_frames = percent(ByteSize::mib(2));
        assert!((0.003..0.005).contains(&in_frames), "{in_frames}");
    }

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
