//! Ways to write the page structures of a fresh memory map.

use crate::page::MapContent;
use crate::units::named;

/// How initialisation writes page structures. All ways leave the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Initialiser {
    /// Not at all: memory and content are zero already. Only heads of blocks are written.
    #[default]
    None,
    /// A pass that zeroes, then a pass that writes each page's words.
    TwoPass,
    /// A general `memset` of 64 bytes per page, then its words.
    MemsetPerPage,
    /// Eight stores of 8 bytes per page.
    StoresPerPage,
    /// Non-temporal stores of whole lines; for zero content, the machine's fastest way to zero.
    Stream,
}

impl Initialiser {
    /// Whether this way can write that content.
    #[must_use]
    pub const fn can_write(self, content: MapContent) -> bool {
        !matches!((self, content), (Self::None, MapContent::Kernel))
    }
}

named!(
    Initialiser: None => "none", TwoPass => "two-pass", MemsetPerPage => "memset-per-page",
    StoresPerPage => "stores-per-page", Stream => "stream"
);
