//! The page lock: a bit of the owner's word. In a shared yard a spare word of the page names the holder, from shortly after
//! it has taken the lock until shortly before it releases it.

use core::mem::ManuallyDrop;

use frameyard::page::CountedPage;
use frameyard::platform::LockId;
use frameyard::{Order, Platform, Yard};

use super::WAIT_ROUNDS;
use crate::error::VmError;
use crate::inject::Step;
use crate::page::Flags;
use crate::vm::Vm;
use crate::words::FrameBytes;

/// Takes a page lock if it is free. The caller has a reference.
fn try_take<P: Platform>(page: CountedPage<'_, P>) -> bool {
    page.owner() & Flags::LOCKED == 0 && page.set_owner_bits(Flags::LOCKED) & Flags::LOCKED == 0
}

/// Spare word of a page of a file: what names the process that holds its lock.
const HOLDER: usize = 0;

/// A held page lock. Releases it on drop. The caller's reference must outlive it.
pub(super) struct PageHeld<'y, P: Platform> {
    page: CountedPage<'y, P>,
    is_named: bool,
}

impl<'y, P: Platform> PageHeld<'y, P> {
    /// Takes the lock if it is free.
    pub(super) fn try_lock(vm: Vm<'y, P>, page: CountedPage<'y, P>) -> Option<Self> {
        // Create the guard only if the lock was taken: its drop would release another CPU's lock.
        if try_take(page) { Some(Self::taken(vm, page)) } else { None }
    }

    /// Takes the lock, with a bounded wait. No other lock is held.
    pub(super) fn lock(vm: Vm<'y, P>, page: CountedPage<'y, P>, id: LockId) -> Result<Self, VmError> {
        vm.may_fail(Step::LockPage)?;
        let platform = vm.yard().platform();
        for round in 0..WAIT_ROUNDS {
            if let Some(held) = Self::try_lock(vm, page) {
                return Ok(held);
            }
            if platform.process().is_some() {
                let holder = page.spare(HOLDER) as u32;
                let still = || page.spare(HOLDER) as u32 == holder && page.owner() & Flags::LOCKED != 0;
                platform.check_holder(id, holder, round, &still)?;
            }
            platform.wait(round);
        }
        Err(VmError::Stalled)
    }

    /// The guard of a page whose lock was just taken, or that was created locked.
    pub(super) fn taken(vm: Vm<'y, P>, page: CountedPage<'y, P>) -> Self {
        let process = vm.yard().platform().process();
        process.inspect(|process| page.set_spare(HOLDER, u64::from(process.get())));
        Self { page, is_named: process.is_some() }
    }

    /// The page's bytes.
    pub(super) fn bytes<'a>(&'a mut self, yard: &'a Yard<P>) -> FrameBytes<'a, P> {
        // SAFETY: bytes of file pages are accessed only under the page's lock, which this guard holds. The caller's
        // reference keeps the page allocated.
        unsafe { FrameBytes::new(yard, self.page.pfn(), Order::ZERO) }
    }

    /// Forgets the lock: the caller has exclusive access to the page, or it is freed.
    pub(super) fn forget(self) {
        let _ = ManuallyDrop::new(self);
    }
}

impl<P: Platform> Drop for PageHeld<'_, P> {
    fn drop(&mut self) {
        if self.is_named {
            self.page.set_spare(HOLDER, 0);
        }
        self.page.clear_owner_bits(Flags::LOCKED);
    }
}

/// A reference of a page. Releases it on drop, without a spinning lock held.
pub(super) struct PageUse<'y, P: Platform> {
    vm: Vm<'y, P>,
    page: CountedPage<'y, P>,
    /// What the page's lock guards.
    id: LockId,
}

impl<'y, P: Platform> PageUse<'y, P> {
    /// Takes over a reference of the caller.
    pub(super) fn of(vm: Vm<'y, P>, page: CountedPage<'y, P>, id: LockId) -> Self {
        Self { vm, page, id }
    }

    pub(super) fn page(&self) -> CountedPage<'y, P> {
        self.page
    }

    /// Forgets the reference: it is no longer counted.
    pub(super) fn forget(self) {
        let _ = ManuallyDrop::new(self);
    }

    /// Takes the page lock, with a bounded wait.
    pub(super) fn lock(self) -> Result<LockedPage<'y, P>, VmError> {
        let held = PageHeld::lock(self.vm, self.page, self.id)?;
        Ok(LockedPage { held, used: self })
    }
}

impl<P: Platform> Drop for PageUse<'_, P> {
    fn drop(&mut self) {
        // A model that fails on purpose skips this: its counts are wrong.
        #[cfg(all(test, loom))]
        if std::thread::panicking() {
            return;
        }
        self.vm.put_page(self.page);
    }
}

/// A locked page with a reference. Drop releases the lock and then the reference.
pub(super) struct LockedPage<'y, P: Platform> {
    held: PageHeld<'y, P>,
    used: PageUse<'y, P>,
}

impl<'y, P: Platform> LockedPage<'y, P> {
    /// A page that was created locked, with a reference of the caller.
    pub(super) fn made(vm: Vm<'y, P>, page: CountedPage<'y, P>, id: LockId) -> Self {
        Self { held: PageHeld::taken(vm, page), used: PageUse::of(vm, page, id) }
    }

    /// Releases the lock and keeps the reference.
    pub(super) fn unlock(self) -> PageUse<'y, P> {
        let Self { held, used } = self;
        drop(held);
        used
    }

    pub(super) fn page(&self) -> CountedPage<'y, P> {
        self.used.page
    }

    pub(super) fn bytes(&mut self) -> FrameBytes<'_, P> {
        self.held.bytes(self.used.vm.yard())
    }

    /// Whether all these flags are set.
    pub(super) fn is(&self, flags: u64) -> bool {
        self.page().owner() & flags == flags
    }

    pub(super) fn set(&self, flags: u64) {
        self.page().set_owner_bits(flags);
    }
}
