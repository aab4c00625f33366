//! The page lock: a spare word of a page of a file, which names the process that holds it.

use core::mem::ManuallyDrop;

use frameyard::page::CountedPage;
use frameyard::platform::LockId;
use frameyard::sync::Ordering;
use frameyard::{Order, Platform, Yard};

use super::WAIT_ROUNDS;
use crate::error::VmError;
use crate::inject::Step;
use crate::lock::own_name;
use crate::vm::Vm;
use crate::words::FrameBytes;

/// The spare word that is the lock of a page of a file: 0 if free, or the name of its holder.
const LOCK: usize = 0;

/// The spare word that counts the references that gets and pins have taken of a page of a file.
///
/// A release by number takes references only from this count. So it never releases the reference of the tree, of a
/// mapping, or of a CPU that waits for the page lock.
const TAKEN: usize = 1;

/// Attempts to change that count.
const MOST_TRIES: u32 = 1 << 20;

/// The references that gets and pins have taken of a page of a file.
pub(crate) fn taken<P: Platform>(page: CountedPage<'_, P>) -> u64 {
    page.spare(TAKEN)
}

/// Counts references that the caller has got as taken.
#[inline(always)]
pub(crate) fn count_taken<P: Platform>(page: CountedPage<'_, P>, references: u32) {
    // Relaxed: the references order accesses to the page.
    page.spare_word(TAKEN).fetch_add(references.into(), Ordering::Relaxed);
}

/// Uncounts taken references, which the caller then puts; `false` if there are fewer. The caller has a further
/// reference.
#[inline(always)]
pub(crate) fn uncount_taken<P: Platform>(page: CountedPage<'_, P>, references: u32) -> bool {
    let word = page.spare_word(TAKEN);
    let mut found = word.load(Ordering::Relaxed);
    // Bounded: another process may write to the word all the time.
    for _ in 0..MOST_TRIES {
        let Some(left) = found.checked_sub(references.into()) else { return false };
        match word.compare_exchange_weak(found, left, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => found = other,
        }
    }
    false
}

/// Whether a page of a file is locked; may be stale.
pub(crate) fn is_locked<P: Platform>(page: CountedPage<'_, P>) -> bool {
    page.spare(LOCK) != 0
}

/// Makes a page that no other thread can find unlocked, whatever its frame was used for before.
pub(super) fn init_unlocked<P: Platform>(page: CountedPage<'_, P>) {
    page.set_spare(LOCK, 0);
    page.set_spare(TAKEN, 0);
}

/// A held page lock. Releases it on drop. The caller's reference must outlive it.
pub(super) struct PageHeld<'y, P: Platform>(CountedPage<'y, P>);

impl<'y, P: Platform> PageHeld<'y, P> {
    /// Takes the lock if it is free.
    pub(super) fn try_lock(vm: Vm<'y, P>, page: CountedPage<'y, P>) -> Option<Self> {
        if is_locked(page) {
            return None;
        }
        let own = u64::from(own_name(vm.yard().platform()));
        // Acquire: pairs with the Release in `drop`.
        let taken = page.spare_word(LOCK).compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
        // Create the guard only if the lock was taken: its drop would release another CPU's lock.
        taken.is_ok().then(|| Self(page))
    }

    /// Takes the lock, with a bounded wait. No other lock is held.
    pub(super) fn lock(vm: Vm<'y, P>, page: CountedPage<'y, P>, id: LockId) -> Result<Self, VmError> {
        vm.may_fail(Step::LockPage)?;
        let platform = vm.yard().platform();
        for round in 0..WAIT_ROUNDS {
            if let Some(held) = Self::try_lock(vm, page) {
                return Ok(held);
            }
            let holder = page.spare(LOCK);
            platform.check_holder(id, holder as u32, round, &|| page.spare(LOCK) == holder)?;
            platform.wait(round);
        }
        Err(VmError::Stalled)
    }

    /// Locks a page that no other thread can find yet, whatever its frame was used for before.
    fn created(vm: Vm<'y, P>, page: CountedPage<'y, P>) -> Self {
        page.set_spare(LOCK, u64::from(own_name(vm.yard().platform())));
        page.set_spare(TAKEN, 0);
        Self(page)
    }

    /// The page's bytes.
    pub(super) fn bytes<'a>(&'a mut self, yard: &'a Yard<P>) -> FrameBytes<'a, P> {
        // SAFETY: bytes of file pages are accessed only under the page's lock, which this guard holds. The caller's
        // reference keeps the page allocated.
        unsafe { FrameBytes::new(yard, self.0.pfn(), Order::ZERO) }
    }

    /// Forgets the lock: the caller has exclusive access to the page, or it is freed.
    pub(super) fn forget(self) {
        let _ = ManuallyDrop::new(self);
    }
}

impl<P: Platform> Drop for PageHeld<'_, P> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_lock`.
        self.0.spare_word(LOCK).store(0, Ordering::Release);
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
    /// Locks a page that no other thread can find yet, with a reference of the caller.
    pub(super) fn created(vm: Vm<'y, P>, page: CountedPage<'y, P>, id: LockId) -> Self {
        Self { held: PageHeld::created(vm, page), used: PageUse::of(vm, page, id) }
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
