//! The sizes of a yard, as far as the mechanisms' tables depend on them.

use crate::units::PageCount;

/// The sizes that mechanisms plan their tables by.
pub(crate) struct TableSizes<'s> {
    pub(crate) cpus: usize,
    /// Cache groups of CPUs.
    pub(crate) groups: usize,
    /// Pageblocks of the memory map.
    pub(crate) pageblocks: usize,
    /// Frames of memory of each zone.
    pub(crate) present: &'s [u64],
    /// The batch size of a zone with that much memory.
    pub(crate) batch: &'s dyn Fn(PageCount) -> PageCount,
}
