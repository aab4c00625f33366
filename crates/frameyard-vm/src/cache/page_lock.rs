//! A page's own lock: a bit of its owner's word.

use core::mem::ManuallyDrop;

use frameyard::Platform;
use frameyard::page::CountedPage;

use super::WAIT_ROUNDS;
use crate::error::VmError;
use crate::inject::Step;
use crate::page::Flags;
use crate::vm::Vm;

/// Takes a page's lock if it is free; the caller has a reference.
fn try_take<P: Platform>(page: CountedPage<'_, P>) -> bool {
    page.owner() & Flags::LOCKED == 0 && page.set_owner_bits(Flags::LOCKED) & Flags::LOCKED == 0
}

/// A page's lock, given back when dropped. The reference that the caller has lasts longer.
pub(super) struct PageHeld<'y, P: Platform> {
    page: CountedPage<'y, P>,
}

impl<'y, P: Platform> PageHeld<'y, P> {
    /// Takes the lock if it is free.
    pub(super) fn try_lock(page: CountedPage<'y, P>) -> Option<Self> {
        // Made only where the lock was taken: dropping it would give another's back.
        if try_take(page) { Some(Self { page }) } else { None }
    }

    /// Takes the lock, waiting for it so long; no other lock is held.
    pub(super) fn lock(vm: Vm<'y, P>, page: CountedPage<'y, P>) -> Result<Self, VmError> {
        vm.may_fail(Step::LockPage)?;
        for round in 0..WAIT_ROUNDS {
            if let Some(held) = Self::try_lock(page) {
                return Ok(held);
            }
            vm.yard().platform().relax(round);
        }
        Err(VmError::Stalled)
    }

    /// Knows of a lock that was taken when the page was made.
    pub(super) fn taken(page: CountedPage<'y, P>) -> Self {
        Self { page }
    }

    /// Forgets the lock: the page is the caller's alone, or no page any more.
    pub(super) fn forget(self) {
        let _ = ManuallyDrop::new(self);
    }
}

impl<P: Platform> Drop for PageHeld<'_, P> {
    fn drop(&mut self) {
        self.page.clear_owner_bits(Flags::LOCKED);
    }
}

/// A reference to a page, put when dropped. No spinning lock is held then.
pub(super) struct PageUse<'y, P: Platform> {
    vm: Vm<'y, P>,
    page: CountedPage<'y, P>,
}

impl<'y, P: Platform> PageUse<'y, P> {
    /// Takes over a reference of the caller's.
    pub(super) fn of(vm: Vm<'y, P>, page: CountedPage<'y, P>) -> Self {
        Self { vm, page }
    }

    pub(super) fn page(&self) -> CountedPage<'y, P> {
        self.page
    }

    /// Forgets the reference: it is counted no more.
    pub(super) fn forget(self) {
        let _ = ManuallyDrop::new(self);
    }

    /// Takes the page's lock, waiting for it so long.
    pub(super) fn lock(self) -> Result<LockedPage<'y, P>, VmError> {
        let held = PageHeld::lock(self.vm, self.page)?;
        Ok(LockedPage { held, used: self })
    }
}

impl<P: Platform> Drop for PageUse<'_, P> {
    fn drop(&mut self) {
        // A model that has failed on purpose is left as it is: its counts are wrong.
        #[cfg(all(test, loom))]
        if std::thread::panicking() {
            return;
        }
        self.vm.put_page(self.page);
    }
}

/// A page that the caller has locked and has a reference to; given back in this order.
pub(super) struct LockedPage<'y, P: Platform> {
    held: PageHeld<'y, P>,
    used: PageUse<'y, P>,
}

impl<'y, P: Platform> LockedPage<'y, P> {
    /// A page that was made locked, with a reference for the caller.
    pub(super) fn made(vm: Vm<'y, P>, page: CountedPage<'y, P>) -> Self {
        Self { held: PageHeld::taken(page), used: PageUse::of(vm, page) }
    }

    /// Gives the lock back, and keeps the reference.
    pub(super) fn unlock(self) -> PageUse<'y, P> {
        let Self { held, used } = self;
        drop(held);
        used
    }

    pub(super) fn page(&self) -> CountedPage<'y, P> {
        self.used.page
    }

    /// Whether these flags are all set.
    pub(super) fn is(&self, flags: u64) -> bool {
        self.page().owner() & flags == flags
    }

    pub(super) fn set(&self, flags: u64) {
        self.page().set_owner_bits(flags);
    }
}
