//! By which means the pages of a fresh memory map are written.

use core::fmt;
use core::str::FromStr;

use crate::page::MapContent;
use crate::units::UnknownName;

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
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::TwoPass, Self::MemsetPerPage, Self::StoresPerPage, Self::Stream];

    /// The name used on command lines and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TwoPass => "two-pass",
            Self::MemsetPerPage => "memset-per-page",
            Self::StoresPerPage => "stores-per-page",
            Self::Stream => "stream",
        }
    }

    /// Whether it can write that content.
    #[must_use]
    pub const fn can_write(self, content: MapContent) -> bool {
        !matches!((self, content), (Self::None, MapContent::Kernel))
    }
}

impl FromStr for Initialiser {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let choices = "none, two-pass, memset-per-page, stores-per-page, stream";
        Self::ALL.into_iter().find(|choice| choice.name() == text).ok_or(UnknownName { choices })
    }
}

impl fmt::Display for Initialiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
