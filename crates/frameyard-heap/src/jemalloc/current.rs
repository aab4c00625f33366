//! The extents of the process, which the hooks find without an argument.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::jemalloc::extents::Extents;

static EXTENTS: AtomicPtr<Extents> = AtomicPtr::new(ptr::null_mut());

/// The extents, once the yard exists.
#[inline]
pub(crate) fn extents() -> Option<&'static Extents> {
    // Acquire: pairs with the Release in `publish`.
    let extents = EXTENTS.load(Ordering::Acquire);
    // SAFETY: `publish` has stored a pointer that is never freed, or it is null.
    unsafe { extents.as_ref() }
}

/// Makes the extents known to the hooks, for the rest of the process.
pub(crate) fn publish(extents: Extents) -> &'static Extents {
    let extents = Box::leak(Box::new(extents));
    // Release: pairs with the Acquire in `extents`.
    EXTENTS.store(extents, Ordering::Release);
    extents
}
