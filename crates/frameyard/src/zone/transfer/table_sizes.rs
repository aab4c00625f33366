//! The sizes of a yard, as far as the mechanisms' tables depend on them.

use crate::units::Order;

/// The sizes that mechanisms plan their tables by.
#[derive(Clone, Copy)]
pub(crate) struct TableSizes {
    pub(crate) cpus: usize,
    pub(crate) zones: usize,
    /// Shelves of a depot that CPUs have.
    pub(crate) shelves: usize,
    /// Pageblocks of the memory map.
    pub(crate) pageblocks: usize,
    pub(crate) pageblock_order: Order,
    /// Whether free frames are bits.
    pub(crate) free_bits: bool,
    /// Words for what a zone has once per batch of its memory ([`batch_words`](super::batch_words)).
    pub(crate) batch_words: usize,
}
