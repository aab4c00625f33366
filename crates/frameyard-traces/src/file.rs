//! Frameyard's file format for recordings.
//!
//! | module | contents |
//! |---|---|
//! | `varint`, `packed` | numbers and compressed parts |
//! | `lists`, `classes`, `block` | events as columns |
//! | `reader`, `writer` | chunks |

mod block;
mod classes;
mod lists;
mod packed;
mod reader;
mod varint;
mod writer;

pub use reader::{FileEnd, Item, read_file, read_index};
pub use writer::TraceWriter;

use twox_hash::XxHash64;

/// The first bytes of a file.
pub(crate) const MAGIC: [u8; 8] = *b"FYTRACE\x01";
/// The last bytes of a complete file.
const END_MAGIC: [u8; 8] = *b"FYTRACE.";
/// Bytes before the content of a chunk: tag, length of the content, checksum.
const CHUNK_HEAD: usize = 4 + 4 + 8;
/// The most bytes of a chunk's content.
const MOST_CONTENT: usize = 64 << 20;
/// The most bytes of a text.
const MOST_TEXT: usize = 16 << 20;

/// What a chunk holds. A reader skips chunks of unknown tags.
mod tag {
    /// Events.
    pub(super) const EVENTS: [u8; 4] = *b"EVTS";
    /// A fact about the recording: `name: value`.
    pub(super) const FACT: [u8; 4] = *b"FACT";
    /// A file of /proc: its name, a line break, its text.
    pub(super) const SNAPSHOT: [u8; 4] = *b"SNAP";
    /// Where the blocks of events are.
    pub(super) const INDEX: [u8; 4] = *b"INDX";
}

/// The checksum of a chunk.
fn checksum(tag: [u8; 4], content: &[u8]) -> u64 {
    XxHash64::oneshot(u64::from(u32::from_le_bytes(tag)), content)
}

/// Where a block of events is, in an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockPlace {
    /// Bytes before its chunk.
    pub offset: u64,
    /// Its events.
    pub events: u64,
    /// The earliest time of an event.
    pub first_us: u64,
    /// The latest time of an event.
    pub last_us: u64,
}
