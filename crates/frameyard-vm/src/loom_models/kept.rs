//! Handles and pins in models: released when a model ends, leaked when it fails.

use std::mem::ManuallyDrop;
use std::ops::Deref;

/// A handle or pin that is not dropped while a failed model unwinds.
pub(super) struct Kept<T>(ManuallyDrop<T>);

impl<T> Kept<T> {
    pub(super) fn new(kept: T) -> Self {
        Self(ManuallyDrop::new(kept))
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: dropped here alone.
            unsafe { ManuallyDrop::drop(&mut self.0) }
        }
    }
}
