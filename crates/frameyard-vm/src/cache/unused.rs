//! Frames of pages that left their file.

use frameyard::{Pfn, Platform};

use crate::frame_vec::Gathered;
use crate::vm::Vm;

/// Frames without references, freed in bulk.
pub(super) struct UnusedPages<'y, P: Platform> {
    vm: Vm<'y, P>,
    frames: Gathered,
}

impl<'y, P: Platform> UnusedPages<'y, P> {
    pub(super) fn new(vm: Vm<'y, P>) -> Self {
        Self { vm, frames: Gathered::new() }
    }

    /// Adds a frame. Frees the earlier ones if there is no [room](Self::is_full); the caller then holds no lock.
    pub(super) fn push(&mut self, pfn: Pfn) {
        if self.is_full() {
            self.free();
        }
        self.frames.push(pfn);
    }

    pub(super) fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    pub(super) fn free(&mut self) {
        self.vm.free_unused(self.frames.take());
    }
}

impl<P: Platform> Drop for UnusedPages<'_, P> {
    fn drop(&mut self) {
        self.free();
    }
}
