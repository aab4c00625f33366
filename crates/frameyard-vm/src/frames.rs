//! Frames for this crate: allocated, zeroed, and found again.

use frameyard::page::CountedPage;
use frameyard::{Gfp, Order, Pfn, Platform};

use crate::error::VmError;
use crate::inject::Step;
use crate::vm::Vm;
use crate::words::{self, Words};

impl<'y, P: Platform> Vm<'y, P> {
    /// The page of a frame that this crate has allocated. A number from anywhere else is for [`try_page`](Self::try_page).
    #[inline(always)]
    pub(crate) fn page(&self, pfn: Pfn) -> CountedPage<'y, P> {
        // SAFETY: the caller has found the frame in this crate's own state, so it has been allocated; words are changed as
        // in `try_page`.
        unsafe { self.yard().allocated_page(pfn) }
    }

    /// The page of any frame; whatever begins there.
    #[inline(always)]
    pub(crate) fn try_page(&self, pfn: Pfn) -> Option<CountedPage<'y, P>> {
        // SAFETY: this crate changes the words of pages that it has alone or by the protocols of its modules, and those of
        // pages found by number only after it got a reference and saw them to be its own.
        unsafe { self.yard().counted_page(pfn) }
    }

    /// The words of one frame that holds this crate's own state.
    #[inline(always)]
    pub(crate) fn words(&self, pfn: Pfn) -> Words<'y> {
        // SAFETY: the frame holds this crate's state, so it is allocated and accessed as words.
        unsafe { Words::of(self.yard(), pfn, Order::ZERO) }.expect("a frame of this crate has bytes")
    }

    /// Allocates a block. Where there is none, the owners that this view knows are asked to make room first.
    pub(crate) fn alloc_frames(&self, order: Order, gfp: Gfp, step: Step) -> Result<Pfn, VmError> {
        self.may_fail(step)?;
        // What is asked for twice is counted as a failure once.
        match self.yard().alloc(order, gfp.without(Gfp::DIRECT_RECLAIM) | Gfp::NOWARN | Gfp::NOFRAGMENT) {
            Ok(pfn) => Ok(pfn),
            Err(_) => self.alloc_with_owners(order, gfp),
        }
    }

    #[cold]
    fn alloc_with_owners(&self, order: Order, gfp: Gfp) -> Result<Pfn, VmError> {
        Ok(self.yard().request(order, gfp).owners(&self.owners()).frame()?)
    }

    /// Allocates a block and zeroes it.
    pub(crate) fn alloc_zeroed(&self, order: Order, gfp: Gfp, step: Step) -> Result<Pfn, VmError> {
        let pfn = self.alloc_frames(order, gfp, step)?;
        // SAFETY: allocated above.
        if unsafe { words::zero(self.yard(), pfn, order) } {
            return Ok(pfn);
        }
        self.yard().free(pfn, order)?;
        Err(VmError::NoFrameBytes(pfn))
    }
}
