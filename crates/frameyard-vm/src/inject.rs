//! Failures on purpose: every step that can fail asks here first.

use core::fmt;

/// A step that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Step {
    /// Allocating a frame for a user's page.
    AllocatePage,
    /// Allocating a huge page.
    AllocateHugePage,
    /// Allocating a frame for page tables.
    AllocatePageTable,
    /// Allocating a frame for small objects.
    AllocateObjects,
    /// Isolating a page for migration.
    Isolate,
    /// Freezing the entries that map a page, or its place in a file.
    Freeze,
    /// Copying a page.
    Copy,
    /// Letting others at the page's new frame.
    Thaw,
}

impl Step {
    /// All steps.
    pub const ALL: [Self; 8] = [
        Self::AllocatePage,
        Self::AllocateHugePage,
        Self::AllocatePageTable,
        Self::AllocateObjects,
        Self::Isolate,
        Self::Freeze,
        Self::Copy,
        Self::Thaw,
    ];
}

/// Decides which steps fail, in tests of what happens then.
pub trait FaultInjector: Sync {
    /// Whether this step, now, is to fail.
    fn fails(&self, step: Step) -> bool;
}

impl fmt::Debug for dyn FaultInjector + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultInjector")
    }
}
