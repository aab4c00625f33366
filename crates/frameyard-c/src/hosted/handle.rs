//! [`fy_yard`]: the handle of a yard, and what a panic in a call leads to.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::shared::{Failure, Fault, Handle, fy_error, fy_status, report};
use frameyard::Platform;
use frameyard::devices::{DeviceId, DeviceRequest};
use frameyard::owners::Owners;
use frameyard_host::{DeviceMemory, HostPlatform, HostYard, PageCount, Pfn, PfnRange, Yard};
use frameyard_vm::{Vm, VmError, VmValidateError};

use crate::hosted::failure::HostFailure;
use crate::hosted::log::Log;

/// A yard: memory in page frames, and the allocator of these frames. Opaque: calls create and destroy it.
///
/// All threads of the process may use one yard at once.
#[derive(Debug)]
pub struct fy_yard {
    yard: HostYard,
    log: Log,
    /// Set by a call that panicked. No later call uses the yard.
    has_panicked: AtomicBool,
}

impl Deref for fy_yard {
    type Target = HostYard;

    #[inline(always)]
    fn deref(&self) -> &HostYard {
        &self.yard
    }
}

impl fy_yard {
    pub(crate) fn new(yard: HostYard, log: Log) -> Self {
        Self { yard, log, has_panicked: AtomicBool::new(false) }
    }

    pub(crate) fn messages(&self) -> Log {
        self.log
    }
}

impl Handle for fy_yard {
    type Platform = HostPlatform;
    type Fault = HostFailure;

    #[inline(always)]
    fn yard(&self) -> &Yard<HostPlatform> {
        self.yard.core()
    }

    #[inline(always)]
    fn is_usable(&self) -> bool {
        !self.has_panicked.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn attempt<R>(&self, work: impl FnOnce() -> R) -> Result<R, HostFailure> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
            self.has_panicked.store(true, Ordering::Relaxed);
            panicked(payload)
        })
    }

    fn address_of(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        self.yard.platform().frame_bytes(pfn)
    }

    fn frame_at(&self, address: usize) -> Option<Pfn> {
        let of_device = |(range, memory): (PfnRange, Arc<DeviceMemory>)| {
            let offset = address.checked_sub(memory.base()?.addr().get())? as u64;
            let pfn = range.start + PageCount(offset / self.yard.geometry().page_size().0);
            range.contains(pfn).then_some(pfn)
        };
        let found = self.yard.memory().frame_at(address);
        found.or_else(|| self.yard.platform().devices().into_iter().find_map(of_device))
    }

    fn map_device(&self, request: DeviceRequest) -> Result<DeviceId, HostFailure> {
        Ok(self.yard.map_device(request)?)
    }

    fn split_device_page(&self, head: Pfn) -> Result<(), HostFailure> {
        Ok(self.yard.split_device_page(head)?)
    }

    fn with_owners<R>(&self, work: impl FnOnce(Option<&Owners<'_>>) -> R) -> R {
        match Vm::attach(self.yard.core()) {
            Ok(vm) => work(Some(&vm.owners())),
            Err(_) => work(None),
        }
    }

    fn validate(&self) -> Result<(), HostFailure> {
        self.yard.validate().map_err(Failure::from)?;
        match Vm::attach(self.yard.core()) {
            Err(VmError::NotThere) => Ok(()),
            spaces => Ok(spaces.map_err(VmValidateError::from)?.validate()?),
        }
    }

    fn log(&self, level: u32, text: fmt::Arguments<'_>) {
        self.log.write(level, text);
    }
}

/// Carries out a call without a yard.
///
/// # Safety
///
/// `error` is null or points to as many writable bytes as the size there says.
pub(crate) unsafe fn call_without_yard(
    error: *mut fy_error,
    work: impl FnOnce() -> Result<(), HostFailure>,
) -> fy_status {
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(panicked(payload))) {
        Ok(()) => fy_status::FY_OK,
        // SAFETY: passed on to the caller.
        Err(failure) => unsafe { report(error, &failure as &dyn Fault) },
    }
}

/// The failure of a call that panicked.
#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> HostFailure {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    // The drop of a payload may panic itself.
    std::mem::forget(payload);
    let text = text.unwrap_or_else(|| "a panic without a message".to_owned());
    HostFailure::other(fy_status::FY_PANICKED, format_args!("the library failed: {text}"))
}

#[cfg(test)]
mod tests;
