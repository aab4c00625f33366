//! Blocks of this crate as the yard returns them, before they have a use.

use frameyard::owners::Owners;
use frameyard::{AllocError, Gfp, Order, Pfn, Platform, Yard};

use crate::error::VmError;
use crate::words::{FrameBytes, Words};

/// A block that was just allocated and that no other code uses yet.
#[must_use = "the block stays allocated"]
pub(crate) struct NewBlock<'y, P: Platform> {
    yard: &'y Yard<P>,
    pfn: Pfn,
    order: Order,
}

impl<'y, P: Platform> NewBlock<'y, P> {
    #[inline(always)]
    pub(crate) fn alloc(yard: &'y Yard<P>, order: Order, gfp: Gfp) -> Result<Self, AllocError> {
        Ok(Self { yard, pfn: yard.alloc(order, gfp)?, order })
    }

    /// Allocates a block. If none is free, the owners make room.
    #[cold]
    pub(crate) fn alloc_with(
        yard: &'y Yard<P>,
        order: Order,
        gfp: Gfp,
        owners: &Owners<'_>,
    ) -> Result<Self, AllocError> {
        Ok(Self { yard, pfn: yard.request(order, gfp).owners(owners).frame()?, order })
    }

    /// The block's first frame. The caller owns the block from now on.
    #[inline(always)]
    pub(crate) fn into_pfn(self) -> Pfn {
        self.pfn
    }

    /// Zeroes the block. Frees it if it has no bytes.
    #[inline(always)]
    pub(crate) fn zeroed(self) -> Result<Pfn, VmError> {
        // SAFETY: the allocator has just returned the block, and only this value names it.
        match unsafe { FrameBytes::new(self.yard, self.pfn, self.order) }.zero() {
            Ok(()) => Ok(self.pfn),
            Err(problem) => {
                self.yard.free(self.pfn, self.order)?;
                Err(problem)
            }
        }
    }
}

/// The words of a block with state of this crate; `None` in a phantom yard.
#[inline(always)]
pub(crate) fn state_words<P: Platform>(yard: &Yard<P>, pfn: Pfn, order: Order) -> Option<Words<'_>> {
    // SAFETY: a block with this crate's state stays allocated while code that found it there uses it, and is accessed
    // only as words.
    unsafe { Words::of(yard, pfn, order) }
}
