//! [`fy_yard`]: the handle of a yard, and the way of every call into it.

use std::any::Any;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use frameyard_host::{HostYard, SharedYardName};

use crate::error::{fy_error, report};
use crate::failure::Failure;
use crate::log::{FY_LOG_ERROR, Log};
use crate::status::fy_status::{self, FY_DAMAGED, FY_INVALID, FY_OK, FY_PANICKED};

/// A yard: memory in page frames, and the allocator of these frames. Opaque: calls create and destroy it.
///
/// All threads of the process may use one yard at once.
#[derive(Debug)]
pub struct fy_yard {
    // Fields drop in this order: the memory is unmapped before the name goes.
    yard: HostYard,
    /// The name of a shared yard.
    _name: Option<SharedYardName>,
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
    pub(crate) fn new(yard: HostYard, name: Option<SharedYardName>, log: Log) -> Self {
        Self { yard, _name: name, log, has_panicked: AtomicBool::new(false) }
    }

    pub(crate) fn log(&self) -> Log {
        self.log
    }
}

/// Carries out a call on a yard: checks the handle, catches a panic, and reports a failure.
///
/// # Safety
///
/// `yard` is null or a handle that no call destroys meanwhile. `error` is null or points to as many writable bytes as the size there
/// says.
#[inline(always)]
pub(crate) unsafe fn call(
    yard: *const fy_yard,
    error: *mut fy_error,
    work: impl FnOnce(&fy_yard) -> Result<(), Failure>,
) -> fy_status {
    // SAFETY: passed on to the caller.
    let Some(yard) = (unsafe { usable(yard) }) else {
        // SAFETY: passed on to the caller.
        return unsafe { refuse(yard, error) };
    };
    match catch_unwind(AssertUnwindSafe(|| work(yard))) {
        Ok(Ok(())) => FY_OK,
        // SAFETY: passed on to the caller.
        Ok(Err(failure)) => unsafe { fail(yard, error, &failure) },
        // SAFETY: passed on to the caller.
        Err(payload) => unsafe { panicked(yard, error, payload) },
    }
}

/// Carries out a call on a yard that has a result: as [`call`], and writes the result to its place if the call succeeds.
///
/// # Safety
///
/// As for [`call`]; and `result` is null or writable.
#[inline(always)]
pub(crate) unsafe fn call_for<T>(
    yard: *const fy_yard,
    (result, name): (*mut T, &'static str),
    error: *mut fy_error,
    work: impl FnOnce(&fy_yard) -> Result<T, Failure>,
) -> fy_status {
    let work = |yard: &fy_yard| {
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
/// Another thread that starts a call at the moment of the panic may still use the yard. Its state is atomic, so that is sound.
///
/// # Safety
///
/// `yard` is null or a handle that no call destroys while the result is used.
#[inline(always)]
pub(crate) unsafe fn usable<'a>(yard: *const fy_yard) -> Option<&'a fy_yard> {
    // SAFETY: passed on to the caller.
    unsafe { yard.as_ref() }.filter(|yard| !yard.has_panicked.load(Ordering::Relaxed))
}

/// Reports a handle that is not usable.
///
/// # Safety
///
/// As for [`report`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn refuse(yard: *const fy_yard, error: *mut fy_error) -> fy_status {
    let failure = if yard.is_null() {
        Failure::Null("yard")
    } else {
        Failure::other(FY_PANICKED, format_args!("an earlier call failed inside the library: destroy the yard"))
    };
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
pub(crate) unsafe fn fail(yard: &fy_yard, error: *mut fy_error, failure: &Failure) -> fy_status {
    // SAFETY: passed on to the caller.
    let status = unsafe { report(error, failure) };
    if matches!(status, FY_DAMAGED | FY_INVALID) {
        yard.log().write(FY_LOG_ERROR, format_args!("{failure}"));
    }
    status
}

/// Ends the use of a yard after a panic.
///
/// # Safety
///
/// As for [`report`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn panicked(yard: &fy_yard, error: *mut fy_error, payload: Box<dyn Any + Send>) -> fy_status {
    yard.has_panicked.store(true, Ordering::Relaxed);
    let failure = Failure::other(FY_PANICKED, format_args!("the library failed: {}", message_of(payload)));
    yard.log().write(FY_LOG_ERROR, format_args!("{failure}"));
    // SAFETY: passed on to the caller.
    unsafe { report(error, &failure) }
}

/// Carries out a call without a yard.
///
/// # Safety
///
/// As for [`report`].
pub(crate) unsafe fn call_without_yard(error: *mut fy_error, work: impl FnOnce() -> Result<(), Failure>) -> fy_status {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        Err(Failure::other(FY_PANICKED, format_args!("the library failed: {}", message_of(payload))))
    });
    match done {
        Ok(()) => FY_OK,
        // SAFETY: passed on to the caller.
        Err(failure) => unsafe { report(error, &failure) },
    }
}

/// The message of a panic.
fn message_of(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    // The drop of a payload may panic itself.
    std::mem::forget(payload);
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

/// The place of a result.
///
/// # Errors
///
/// [`Failure::Null`].
#[inline(always)]
pub(crate) fn place<T>(at: *mut T, name: &'static str) -> Result<NonNull<T>, Failure> {
    NonNull::new(at).ok_or(Failure::Null(name))
}

#[cfg(test)]
mod tests;
