//! Batch: up to [`BATCH`] blocks of one order that move together between a per-CPU list and a zone, by their indices in the
//! memory map.
//!
//! A batch on its way is a [`Batch`] on the stack of its CPU. A batch that waits is [`packed`] into its own page structures.

use super::fixed_vec::FixedVec;
use crate::units::Order;

pub(crate) mod packed;

/// The most blocks in a batch. (Few in models, so that small lists reach every path.)
pub(crate) const BATCH: usize = if cfg!(loom) { 2 } else { 64 };

/// The orders below pageblock order that have per-CPU lists: 0 to 3 (the kernel's `PAGE_ALLOC_COSTLY_ORDER`). (Order 0 alone in models.)
pub(crate) const SMALL_ORDERS: usize = if cfg!(loom) { 1 } else { 4 };

/// The orders that have stacks in the depot, as far as they are below pageblock order: the small orders, and 4 to 8. (Order 0 alone in
/// models.)
pub(crate) const STACKED_ORDERS: usize = if cfg!(loom) { SMALL_ORDERS } else { 9 };

/// The blocks of a full batch of an order: [`BATCH`] of a small order, one of a larger order.
pub(crate) const fn batch_len(order: Order) -> usize {
    if order.index() < SMALL_ORDERS { BATCH } else { 1 }
}

/// The frames of a full batch of an order.
pub(crate) const fn batch_pages(order: Order) -> u64 {
    (batch_len(order) as u64) << order.0
}

/// Blocks of one order, by the indices of their first frames.
pub(crate) type Batch = FixedVec<u32, BATCH>;
