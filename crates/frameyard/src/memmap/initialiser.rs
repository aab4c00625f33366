//! By which means the pages of a fresh memory map are written.

use crate::page::MapContent;
use crate::units::named;

/// How the pages of the memory map are written when they come up. For one content all leave the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Initialiser {
    /// Not at all: the map's memory is zero already, and so is the content. Only heads of blocks are written.
    #[default]
    None,
    /// One pass zeroes, a second one writes each page's words.
    TwoPass,
    /// A general `memset` of 64 bytes for each page, then its words.
    MemsetPerPage,
    /// Eight stores of 8 bytes for each page.
    StoresPerPage,
    /// Whole lines from registers, past the caches; where the content is zero, the machine's fastest zeroing.
    Stream,
}

impl Initialiser {
    /// Whether it can write that content.
    #[must_use]
    pub const fn can_write(self, content: MapContent) -> bool {
        !matches!((self, content), (Self::None, MapContent::Kernel))
    }
}

named!(
    Initialiser: None => "none", TwoPass => "two-pass", MemsetPerPage => "memset-per-page",
    StoresPerPage => "stores-per-page", Stream => "stream"
);
