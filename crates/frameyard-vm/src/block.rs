//! Blocks of this crate as the yard returns them, before they have a use.

use frameyard::owners::{Owners, Ownership};
use frameyard::page::Counts;
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

    /// The block's first frame. The caller owns the block from now on, and accesses its bytes only once the block is counted.
    #[inline(always)]
    pub(crate) fn into_pfn(self) -> Pfn {
        self.pfn
    }

    /// Frees the block, which was not used.
    pub(crate) fn free(self) -> Result<(), VmError> {
        Ok(self.yard.free(self.pfn, self.order)?)
    }

    /// Makes the block a counted one of an owner, zeroes it, and then gives it its users. Frees it if it has no bytes.
    ///
    /// Until it is counted any code that names the frame can free it, so its bytes are not touched before. Until it has users, no
    /// other code finds it.
    #[inline(always)]
    pub(crate) fn into_zeroed(self, ownership: Ownership) -> Result<Pfn, VmError> {
        self.into_filled(ownership, FrameBytes::zero)
    }

    /// Like [`into_zeroed`](Self::into_zeroed), with the bytes of another block of the same order.
    pub(crate) fn into_copy(self, from: &FrameBytes<'_, P>, ownership: Ownership) -> Result<Pfn, VmError> {
        self.into_filled(ownership, |to| to.copy_from(from))
    }

    #[inline(always)]
    fn into_filled(
        self,
        ownership: Ownership,
        fill: impl FnOnce(&mut FrameBytes<'y, P>) -> Result<(), VmError>,
    ) -> Result<Pfn, VmError> {
        let Self { yard, pfn, order } = self;
        yard.counted().init_refs(pfn, order, Ownership { counts: Counts::default(), ..ownership })?;
        // SAFETY: the block is counted and frozen, and only this function has it.
        match fill(&mut unsafe { FrameBytes::new(yard, pfn, order) }) {
            Ok(()) => {
                // SAFETY: as above: the caller's, until it has users.
                unsafe { yard.counted().allocated_page(pfn) }.unfreeze(ownership.counts);
                Ok(pfn)
            }
            Err(problem) => {
                // SAFETY: as above.
                unsafe { yard.counted().free(pfn, order) }?;
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
