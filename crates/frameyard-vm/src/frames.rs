//! Frames of this crate: allocation, zeroing, and look-up.

use frameyard::owners::Ownership;
use frameyard::page::{CountedPage, Counts, FrameLink};
use frameyard::platform::LockError;
use frameyard::{Gfp, Order, PageCount, Pfn, Platform};

use crate::block::{NewBlock, state_words};
use crate::error::{Damage, VmError};
use crate::inject::Step;
use crate::vm::Vm;
use crate::words::Words;

impl<'y, P: Platform> Vm<'y, P> {
    /// The page of a frame whose number was checked when it was read, or comes from the yard.
    #[inline(always)]
    pub(crate) fn page(&self, pfn: Pfn) -> CountedPage<'y, P> {
        // SAFETY: the frame has a page, which never goes away. Words change as in `try_page`.
        unsafe { self.yard().counted().allocated_page(pfn) }
    }

    /// Whether only this process writes to the frames: the yard is private. What this crate has written there needs no checks then.
    /// Models keep them, so that a broken protocol shows as damage.
    #[inline(always)]
    pub(crate) fn trusts_frames(&self) -> bool {
        !cfg!(loom) && self.yard().platform().process().is_none()
    }

    /// The page of a frame whose number was read in shared memory.
    #[inline(always)]
    pub(crate) fn found_page(&self, pfn: Pfn) -> Result<CountedPage<'y, P>, VmError> {
        if self.trusts_frames() {
            return Ok(self.page(pfn));
        }
        self.try_page(pfn).ok_or_else(|| self.damaged(Damage::Frame))
    }

    /// The page that a link names, if it is one with counted users. The allocator's own pages are never changed.
    #[inline(always)]
    pub(crate) fn linked_page(&self, link: FrameLink) -> Option<CountedPage<'y, P>> {
        let frames = self.yard().counted();
        if self.trusts_frames() {
            // SAFETY: as in `page`.
            return unsafe { frames.allocated_linked_page(link) };
        }
        // SAFETY: as in `try_page`.
        unsafe { frames.linked_page(link) }.filter(CountedPage::is_counted)
    }

    /// The pages of a block, by its tag, which another process may have overwritten.
    #[inline(always)]
    pub(crate) fn pages_of(&self, page: CountedPage<'y, P>) -> PageCount {
        page.tag().order().min(self.yard().geometry().max_order()).pages()
    }

    /// The most frames that a list of this yard can have: the bound of walks along links in shared memory.
    pub(crate) fn most_frames(&self) -> usize {
        self.yard().map_frames().0 as usize
    }

    /// Notes that the state in frames is damaged; the error that says so.
    #[cold]
    pub(crate) fn damaged(&self, what: Damage) -> VmError {
        self.root().note_damage(what);
        VmError::Damaged(what)
    }

    /// Notes damage if a change of state in frames was refused.
    #[inline(always)]
    pub(crate) fn expect<T, E>(&self, done: Result<T, E>, what: Damage) {
        let _ = done.map_err(|_| self.damaged(what));
    }

    /// Fails if the state in frames is known to be damaged, or a process died holding a lock.
    pub(crate) fn check_damage(&self) -> Result<(), VmError> {
        match (self.yard().platform().lock_error(), self.root().damage()) {
            (Some(error @ (LockError::OwnerDied { .. } | LockError::Corrupt { .. })), _) => Err(VmError::Lock(error)),
            (_, Some(what)) => Err(VmError::Damaged(what)),
            _ => Ok(()),
        }
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
    pub(crate) fn words(&self, pfn: Pfn) -> Result<Words<'y>, VmError> {
        state_words(self.yard(), pfn, Order::ZERO).ok_or_else(|| self.damaged(Damage::Frame))
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
        self.alloc_frames(Order::ZERO, Gfp::KERNEL, step)?.into_zeroed(Ownership { counts, owner, index })
    }

    /// Gives a frozen block, which the caller has alone, an owner and users.
    #[inline(always)]
    pub(crate) fn unfreeze_as(&self, page: CountedPage<'y, P>, ownership: Ownership) {
        page.set_index(ownership.index);
        page.set_owner(ownership.owner);
        page.unfreeze(ownership.counts);
    }

    /// Frees a frame from [`alloc_state`](Self::alloc_state) that no code reaches any more. If a CPU that found it by number holds a
    /// reference, that CPU frees it.
    pub(crate) fn free_state(&self, page: CountedPage<'y, P>) {
        let freed = page.put().map_err(VmError::from).and_then(|left| match left {
            // SAFETY: the last reference was put.
            0 => unsafe { self.yard().counted().free(page.pfn(), Order::ZERO) }.map_err(VmError::from),
            _ => Ok(()),
        });
        self.expect(freed, Damage::Frame);
    }
}
