//! Frames of pages that left their file.

use frameyard::{Pfn, Platform};

use crate::vm::Vm;

/// The number of frames freed at once.
const GATHER: usize = 32;

/// Frames without references, freed in bulk.
pub(super) struct UnusedPages<'y, P: Platform> {
    vm: Vm<'y, P>,
    frames: [Pfn; GATHER],
    len: usize,
}

impl<'y, P: Platform> UnusedPages<'y, P> {
    pub(super) fn new(vm: Vm<'y, P>) -> Self {
        Self { vm, frames: [Pfn(0); GATHER], len: 0 }
    }

    /// Adds a frame. The caller holds no lock, unless there is [room](Self::is_full).
    pub(super) fn push(&mut self, pfn: Pfn) {
        if self.is_full() {
            self.free();
        }
        self.frames[self.len] = pfn;
        self.len += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == GATHER
    }

    pub(super) fn free(&mut self) {
        if self.len > 0 {
            self.vm.free_unused(&self.frames[..self.len]);
            self.len = 0;
        }
    }
}

impl<P: Platform> Drop for UnusedPages<'_, P> {
    fn drop(&mut self) {
        self.free();
    }
}
