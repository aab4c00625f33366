//! What the mechanisms' validation shares: the recount, and the equations that do not hold.

use crate::units::{ORDER_SLOTS, Pfn};

/// An equation of a mechanism that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unsound {
    /// A structure does not hold together, or has a block that it should not have.
    Broken {
        /// Which structure.
        what: &'static str,
        /// The block.
        at: Pfn,
    },
    /// A count differs from the recount.
    Count {
        /// What is counted.
        what: &'static str,
        /// The count.
        kept: u64,
        /// The recount.
        found: u64,
    },
}

/// The blocks that mechanisms hold, by order; the walk over all frames must find as many.
pub(crate) struct Found {
    /// Blocks tagged and marked like those on per-CPU lists.
    pub(crate) listed: [u64; ORDER_SLOTS],
}

pub(super) fn compare(what: &'static str, kept: u64, found: u64) -> Result<(), Unsound> {
    if kept == found { Ok(()) } else { Err(Unsound::Count { what, kept, found }) }
}
