//! Frames of this crate: allocation, zeroing, and look-up.

use frameyard::owners::Adoption;
use frameyard::page::{CountedPage, Counts};
use frameyard::{Gfp, Order, Pfn, Platform};

use crate::block::{NewBlock, state_words};
use crate::error::VmError;
use crate::inject::Step;
use crate::vm::Vm;
use crate::words::Words;

impl<'y, P: Platform> Vm<'y, P> {
    /// The page of a frame that this crate has allocated. For other frame numbers use [`try_page`](Self::try_page).
    #[inline(always)]
    pub(crate) fn page(&self, pfn: Pfn) -> CountedPage<'y, P> {
        // SAFETY: the caller found the frame in this crate's own state, so it is allocated. Words change as in
        // `try_page`.
        unsafe { self.yard().counted().allocated_page(pfn) }
    }

    /// The page of any frame, whatever starts there.
    #[inline(always)]
    pub(crate) fn try_page(&self, pfn: Pfn) -> Option<CountedPage<'y, P>> {
        // SAFETY: this crate changes the words of a page under exclusive access or by the protocols of its modules. It
        // changes those of a page found by number only after it got a reference and verified the owner.
        unsafe { self.yard().counted().page(pfn) }
    }

    /// The words of one frame with state of this crate.
    #[inline(always)]
    pub(crate) fn words(&self, pfn: Pfn) -> Words<'y> {
        state_words(self.yard(), pfn, Order::ZERO).expect("a frame of this crate has bytes")
    }

    /// Allocates a block. If none is free, the owners known to this view make room first.
    #[inline(always)]
    pub(crate) fn alloc_frames(&self, order: Order, gfp: Gfp, step: Step) -> Result<NewBlock<'y, P>, VmError> {
        self.may_fail(step)?;
        // NOWARN on the first attempt, so that a failure counts once.
        let first = gfp.without(Gfp::DIRECT_RECLAIM) | Gfp::NOWARN | Gfp::NOFRAGMENT;
        let block = NewBlock::alloc(self.yard(), order, first);
        Ok(block.or_else(|_| NewBlock::alloc_with(self.yard(), order, gfp, &self.owners()))?)
    }

    /// Allocates a frame for state of this crate: zeroed, with one reference.
    pub(crate) fn alloc_state(&self, owner: u64, index: u64, step: Step) -> Result<Pfn, VmError> {
        let counts = Counts { references: 1, mappings: 0 };
        self.alloc_frames(Order::ZERO, Gfp::KERNEL, step)?.adopt_zeroed(Adoption { counts, owner, index })
    }

    /// Gives a frozen block, which the caller has alone, an owner and users.
    #[inline(always)]
    pub(crate) fn thaw_as(&self, page: CountedPage<'y, P>, adoption: Adoption) {
        page.set_index(adoption.index);
        page.set_owner(adoption.owner);
        page.thaw(adoption.counts);
    }

    /// Frees a frame from [`alloc_state`](Self::alloc_state) that no code reaches any more. If a CPU that found it by number holds a
    /// reference, that CPU frees it.
    pub(crate) fn free_state(&self, page: CountedPage<'y, P>) {
        let freed = page.put().map_err(VmError::from).and_then(|left| match left {
            // SAFETY: the last reference was put.
            0 => unsafe { self.yard().counted().free(page.pfn(), Order::ZERO) }.map_err(VmError::from),
            _ => Ok(()),
        });
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}
