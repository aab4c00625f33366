//! Ways to write the page structures of a fresh memory map.

use crate::page::MapContent;
use crate::units::named;

/// How initialisation writes page structures: an option of [`MapInit`](crate::boot::MapInit). The result is the same bits in all cases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Initialiser {
    /// Not at all, because the memory is zero already and the content is zero. Only heads of blocks are written.
    #[default]
    None,
    /// One pass that zeroes, then another that writes the words of each page.
    TwoPass,
    /// For each page, a general `memset` of 64 bytes, then its words.
    MemsetPerPage,
    /// Eight stores of 8 bytes per page.
    StoresPerPage,
    /// Non-temporal stores of whole lines; for zero content, the machine's fastest way to zero.
    Stream,
}

impl Initialiser {
    /// Whether this initialiser can write that content.
    #[must_use]
    pub const fn can_write(self, content: MapContent) -> bool {
        !matches!((self, content), (Self::None, MapContent::Kernel))
    }
}

named!(
    Initialiser: None => "none", TwoPass => "two-pass", MemsetPerPage => "memset-per-page",
    StoresPerPage => "stores-per-page", Stream => "stream"
);
