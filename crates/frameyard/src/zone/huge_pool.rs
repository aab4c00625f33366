//! The state of a zone's pools of huge pages, which [`huge_pool`](crate::huge_pool) uses.

use crate::sync::{AtomicU32, AtomicU64, all_atomic};
use crate::units::Order;

/// The orders of huge pages. They may be larger than the largest block of a zone.
pub(crate) const POOLED_ORDERS: [Order; 2] = [Order(9), Order(18)];

/// The pool of one size in one zone, in the control region.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct HugePool {
    pub(crate) lock: AtomicU32,
    /// The first free page.
    pub(crate) first: AtomicU32,
    pub(crate) pages: AtomicU64,
    pub(crate) free: AtomicU64,
    /// Bytes of the map that were returned to the host.
    pub(crate) released: AtomicU64,
}

all_atomic!(HugePool { lock, first, pages, free, released });
