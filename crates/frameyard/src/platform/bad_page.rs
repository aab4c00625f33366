//! A page structure whose words are not those of a free page.

use core::fmt;

use crate::units::{Pfn, named};

/// What is wrong with a page structure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum PageProblem {
    /// The tag is neither that of a block that has left its zone nor that of a frame inside such a block.
    Tag = 0,
    /// The page has references or mappings (the kernel's "nonzero _refcount" and "nonzero mapcount").
    Counts = 1,
    /// Links or an owner's words are in use (the kernel's "non-NULL mapping", and flags that a free page does not
    /// have).
    Words = 2,
}

named!(PageProblem: Tag => "tag", Counts => "counts", Words => "words");

/// A page structure that a check has found bad. Its block is taken out of use. Modelled on the report of the kernel's
/// `bad_page`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BadPage {
    /// The frame.
    pub pfn: Pfn,
    /// What is wrong.
    pub problem: PageProblem,
}

impl BadPage {
    /// As a word of shared memory, never 0.
    pub(crate) fn to_bits(self) -> u64 {
        (self.pfn.0 << 2 | self.problem as u64).wrapping_add(1)
    }

    /// From such a word, which may be anything. `None` for 0.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let bits = bits.checked_sub(1)?;
        let problem = PageProblem::ALL.get(bits as usize & 3).copied().unwrap_or(PageProblem::Words);
        Some(Self { pfn: Pfn(bits >> 2), problem })
    }
}

impl fmt::Display for BadPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad page structure of {}: {}", self.pfn, self.problem)
    }
}
