//! Batch: up to [`BATCH`] blocks of one order that move together between a per-CPU list and a zone, by their indices in the
//! memory map.
//!
//! A batch in transit is a [`Batch`] on the stack of its CPU. A batch that is stored is [`packed`] into its own page
//! structures.

use crate::zone::fixed_vec::FixedVec;

pub(crate) mod packed;

/// The most blocks in a batch. (Few in models, so that small lists reach every path.)
pub(crate) const BATCH: usize = if cfg!(loom) { 2 } else { 64 };

/// The orders below pageblock order that have per-CPU lists: 0 to 3 (the kernel's `PAGE_ALLOC_COSTLY_ORDER`). (Order 0 alone in models.)
pub(crate) const SMALL_ORDERS: usize = if cfg!(loom) { 1 } else { 4 };

/// Blocks of one order, by the indices of their first frames.
pub(crate) type Batch = FixedVec<u32, BATCH>;
