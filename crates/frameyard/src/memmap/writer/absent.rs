//! Instructions that a machine does not have, or that a program may not use.

use core::ptr::NonNull;

use crate::memmap::writer::WORDS;
use crate::page::Page;

/// No instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Absent {}

impl Absent {
    pub(super) fn available() -> impl Iterator<Item = Self> {
        core::iter::empty()
    }

    pub(super) fn is_wide(self) -> bool {
        match self {}
    }

    #[cfg(any(not(target_arch = "x86_64"), loom, miri))]
    pub(super) fn fewest_pages(self) -> usize {
        match self {}
    }

    /// # Safety
    ///
    /// None: there is no such value.
    pub(super) unsafe fn write(self, _: NonNull<Page>, _: usize, _: &[u64; WORDS]) {
        match self {}
    }

    /// # Safety
    ///
    /// None: there is no such value.
    #[cfg(any(not(target_arch = "x86_64"), loom, miri))]
    pub(super) unsafe fn zero(self, _: NonNull<Page>, _: usize) {
        match self {}
    }
}

/// Publication orders plain stores.
#[cfg(any(not(target_arch = "x86_64"), loom, miri))]
pub(super) fn fence() {}
