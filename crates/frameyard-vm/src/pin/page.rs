//! One pin at a time: [`PinnedPage`].

use core::fmt;

use frameyard::page::{Counts, ReferenceUnderflow};
use frameyard::{Pfn, Platform};

use super::PinError;
use super::error::ReleaseProblem;
use super::request::{Dirty, PinFlags, PinPath, PinRequest, RefHandling};
use crate::address::VirtAddr;
use crate::error::{Damage, VmError};
use crate::space::{AddressSpace, FaultError};
use crate::vm::Vm;

/// A pinned page. Even if it is unmapped, it is neither moved nor freed. Dropping this unpins it.
pub struct PinnedPage<'y, P: Platform> {
    vm: Vm<'y, P>,
    pfn: Pfn,
}

impl<P: Platform> PinnedPage<'_, P> {
    /// The frame of the pinned address.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }
}

impl<P: Platform> Drop for PinnedPage<'_, P> {
    fn drop(&mut self) {
        self.vm.expect(self.vm.unpin(self.pfn), Damage::Frame);
    }
}

impl<P: Platform> fmt::Debug for PinnedPage<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PinnedPage").field(&self.pfn).finish()
    }
}

impl<P: Platform> Vm<'_, P> {
    /// Releases a pin by frame number, for a [`PinnedPage`] that was passed to `core::mem::forget`.
    ///
    /// # Errors
    ///
    /// [`VmError::Underflow`] if the frame has no pin, or is not a page of an address space, a file, a device or a
    /// pool. Nothing has changed then.
    pub fn unpin(&self, pfn: Pfn) -> Result<(), VmError> {
        let unpinned = self.unpin_pages(&[pfn], RefHandling::Batched, Dirty::Keep);
        unpinned.map_err(|error| match error.problem {
            ReleaseProblem::Underflow(underflow) => VmError::Underflow(underflow),
            ReleaseProblem::Vm(error) => error,
            ReleaseProblem::NoUserPage => VmError::Underflow(ReferenceUnderflow { pfn, counts: Counts::default() }),
        })
    }
}

impl<'y, P: Platform> AddressSpace<'y, P> {
    /// Pins the page of an address until the result is dropped (the kernel's `pin_user_pages`, for writing). If the
    /// page is missing, faults it in first. A huge page is pinned as a whole.
    ///
    /// # Errors
    ///
    /// [`FaultError`]. A device whose users are not counted returns [`FaultError::NoFrameBytes`].
    pub fn pin(&self, addr: VirtAddr) -> Result<PinnedPage<'y, P>, FaultError> {
        let page = addr.align_down(crate::PageLevel::Small.size());
        if page >= VirtAddr::END {
            return Err(FaultError::NotMapped(addr));
        }
        let mut frames = [Pfn(0)];
        let request = PinRequest::PIN.by(PinPath::SlowOnly).with(PinFlags::WRITE);
        match self.take_pages(page, request, &mut frames) {
            Ok(_) => Ok(PinnedPage { vm: *self.space().vm(), pfn: frames[0] }),
            Err(PinError::Fault(FaultError::NotMapped(_))) => Err(FaultError::NotMapped(addr)),
            Err(PinError::Fault(FaultError::ReadOnly(_))) => Err(FaultError::ReadOnly(addr)),
            Err(PinError::Fault(FaultError::Moving(_))) => Err(FaultError::Moving(addr)),
            Err(PinError::Fault(error)) => Err(error),
            Err(PinError::Overflow(error)) => Err(FaultError::Vm(VmError::Overflow(error))),
            Err(PinError::Vm(error)) => Err(FaultError::Vm(error)),
            Err(_) => Err(FaultError::NoFrameBytes(addr)),
        }
    }
}
