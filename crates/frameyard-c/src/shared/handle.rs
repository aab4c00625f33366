//! [`Handle`]: what a C handle points to, and the way of every call into it.

use core::fmt;
use core::ptr::NonNull;

use frameyard::devices::{DeviceId, DeviceRequest};
use frameyard::owners::Owners;
use frameyard::{Pfn, Platform, Yard};

use crate::shared::error::fy_error;
use crate::shared::fault::{Failure, Fault, report};
use crate::shared::status::fy_status::{self, FY_DAMAGED, FY_INVALID, FY_OK};

/// Level of a message: a yard, or a call, failed in a way that needs attention: a panic, a damaged yard, a failed validation.
pub const FY_LOG_ERROR: u32 = 0;
/// Level of a message: something may need attention.
pub const FY_LOG_WARNING: u32 = 1;
/// Level of a message: a yard was created, opened, changed or destroyed.
pub const FY_LOG_INFO: u32 = 2;

/// What a C handle points to: a yard, and what the interface keeps beside it.
pub trait Handle: Sized {
    /// The platform of the yard.
    type Platform: Platform;
    /// What can go wrong, a panic inside the library included.
    type Fault: Fault + From<Failure>;

    /// The yard.
    fn yard(&self) -> &Yard<Self::Platform>;

    /// Whether no call has panicked. Another thread that starts a call at the moment of the panic may still use the yard. Its state is
    /// atomic, so that is sound.
    fn is_usable(&self) -> bool;

    /// Does some work, which may panic.
    ///
    /// # Errors
    ///
    /// The panic, if the interface goes on after one. The handle is not usable afterwards.
    fn attempt<R>(&self, work: impl FnOnce() -> R) -> Result<R, Self::Fault>;

    /// Where the bytes of a frame are.
    fn address_of(&self, pfn: Pfn) -> Option<NonNull<u8>>;

    /// The frame that has the byte at an address.
    fn frame_at(&self, address: usize) -> Option<Pfn>;

    /// Maps a device.
    ///
    /// # Errors
    ///
    /// [`Failure::Device`], or the reason why there is no memory for its page structures.
    fn map_device(&self, request: DeviceRequest) -> Result<DeviceId, Self::Fault>;

    /// Splits a compound page of a device.
    ///
    /// # Errors
    ///
    /// As for [`map_device`](Self::map_device).
    fn split_device_page(&self, head: Pfn) -> Result<(), Self::Fault>;

    /// Calls `work` with the owners that can move or release allocated blocks, if there are any.
    fn with_owners<R>(&self, work: impl FnOnce(Option<&Owners<'_>>) -> R) -> R {
        work(None)
    }

    /// Checks every equation that must hold while nothing uses the yard.
    ///
    /// # Errors
    ///
    /// [`Failure::Validate`], or what does not hold beside the yard.
    fn validate(&self) -> Result<(), Self::Fault> {
        Ok(self.yard().validate().map_err(Failure::from)?)
    }

    /// Writes a message to where those of the yard go. `level` is one of `FY_LOG_*`.
    fn log(&self, level: u32, text: fmt::Arguments<'_>);
}

/// Carries out a call on a yard: checks the handle, catches a panic, and reports a failure.
///
/// # Safety
///
/// `yard` is null or a handle that no call destroys meanwhile. `error` is null or points to as many writable bytes as the size there
/// says.
#[inline(always)]
pub unsafe fn call<Y: Handle>(
    yard: *const Y,
    error: *mut fy_error,
    work: impl FnOnce(&Y) -> Result<(), Failure>,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call_with(yard, error, work) }
}

/// As [`call`], with faults of the interface's own.
///
/// # Safety
///
/// As for [`call`].
#[inline(always)]
pub unsafe fn call_with<Y: Handle, F: Fault>(
    yard: *const Y,
    error: *mut fy_error,
    work: impl FnOnce(&Y) -> Result<(), F>,
) -> fy_status {
    // SAFETY: passed on to the caller.
    let Some(yard) = (unsafe { usable(yard) }) else {
        // SAFETY: passed on to the caller.
        return unsafe { refuse(yard.is_null(), error) };
    };
    match yard.attempt(|| work(yard)) {
        Ok(Ok(())) => FY_OK,
        // SAFETY: passed on to the caller.
        Ok(Err(failure)) => unsafe { fail(yard, error, &failure) },
        // SAFETY: passed on to the caller.
        Err(panic) => unsafe { fail(yard, error, &panic) },
    }
}

/// Carries out a call on a yard that has a result: as [`call`], and writes the result to its place if the call succeeds.
///
/// # Safety
///
/// As for [`call`]; and `result` is null or writable.
#[inline(always)]
pub unsafe fn call_for<Y: Handle, T>(
    yard: *const Y,
    (result, name): (*mut T, &'static str),
    error: *mut fy_error,
    work: impl FnOnce(&Y) -> Result<T, Failure>,
) -> fy_status {
    let work = |yard: &Y| {
        let place = place(result, name)?;
        let value = work(yard)?;
        // SAFETY: writable, as the caller says.
        unsafe { place.write(value) };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// The yard of a handle that is not null, if no call has panicked in it.
///
/// # Safety
///
/// `yard` is null or a handle that no call destroys while the result is used.
#[inline(always)]
pub unsafe fn usable<'a, Y: Handle>(yard: *const Y) -> Option<&'a Y> {
    // SAFETY: passed on to the caller.
    unsafe { yard.as_ref() }.filter(|yard| yard.is_usable())
}

/// Reports a handle that is not usable.
///
/// # Safety
///
/// As for [`report`].
#[cold]
#[inline(never)]
unsafe fn refuse(is_null: bool, error: *mut fy_error) -> fy_status {
    let failure = if is_null { Failure::Null("yard") } else { Failure::Unusable };
    // SAFETY: passed on to the caller.
    unsafe { report(error, &failure) }
}

/// Reports a failure, and logs it where it is no ordinary one.
///
/// # Safety
///
/// As for [`report`].
#[cold]
#[inline(never)]
unsafe fn fail<Y: Handle>(yard: &Y, error: *mut fy_error, fault: &dyn Fault) -> fy_status {
    // SAFETY: passed on to the caller.
    let status = unsafe { report(error, fault) };
    if matches!(status, FY_DAMAGED | FY_INVALID | fy_status::FY_PANICKED) {
        yard.log(FY_LOG_ERROR, format_args!("{fault}"));
    }
    status
}

/// The place of a result.
///
/// # Errors
///
/// [`Failure::Null`].
#[inline(always)]
pub fn place<T>(at: *mut T, name: &'static str) -> Result<NonNull<T>, Failure> {
    NonNull::new(at).ok_or(Failure::Null(name))
}
