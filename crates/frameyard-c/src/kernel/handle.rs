//! [`fy_yard`]: the handle of a yard.

use core::fmt;
use core::ptr::NonNull;

use crate::shared::{Failure, Handle};
use frameyard::devices::{DeviceId, DeviceRequest};
use frameyard::{Pfn, PfnRange, Platform, Yard};

use crate::kernel::platform::{Kernel, has_panicked};

/// A yard: memory in page frames, and the allocator of these frames. Opaque: calls create and destroy it.
///
/// All CPUs may use one yard at once.
#[derive(Debug)]
pub struct fy_yard {
    yard: Yard<Kernel>,
}

impl fy_yard {
    pub(crate) fn new(yard: Yard<Kernel>) -> Self {
        Self { yard }
    }
}

impl Handle for fy_yard {
    type Platform = Kernel;
    // The panic handler does not return.
    type Fault = Failure;

    #[inline(always)]
    fn yard(&self) -> &Yard<Kernel> {
        &self.yard
    }

    #[inline(always)]
    fn is_usable(&self) -> bool {
        !has_panicked()
    }

    #[inline(always)]
    fn attempt<R>(&self, work: impl FnOnce() -> R) -> Result<R, Failure> {
        Ok(work())
    }

    fn address_of(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        self.yard.zone_of(pfn)?;
        self.yard.platform().frame_bytes(pfn)
    }

    fn frame_at(&self, address: usize) -> Option<Pfn> {
        let size = self.yard.geometry().page_size().0 as usize;
        self.yard.memory_ranges().find_map(|(range, _): (PfnRange, _)| {
            let first = self.yard.platform().frame_bytes(range.start)?;
            let frames = (address.checked_sub(first.addr().get())? / size) as u64;
            let pfn = Pfn(range.start.0.checked_add(frames)?);
            // The range may have fewer bytes behind its start than frames.
            let base = range.contains(pfn).then(|| self.yard.platform().frame_bytes(pfn))??;
            (address.wrapping_sub(base.addr().get()) < size).then_some(pfn)
        })
    }

    fn map_device(&self, request: DeviceRequest) -> Result<DeviceId, Failure> {
        Ok(self.yard.devices().map(request)?)
    }

    fn split_device_page(&self, head: Pfn) -> Result<(), Failure> {
        Ok(self.yard.devices().split(head)?)
    }

    fn log(&self, level: u32, text: fmt::Arguments<'_>) {
        self.yard.platform().log(level, text);
    }
}
