//! Fault injection for tests: each step that can fail asks the injector first.

use core::fmt;

/// A step that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Step {
    /// Allocating a frame for a page of an address space.
    AllocatePage,
    /// Allocating a huge page.
    AllocateHugePage,
    /// Allocating a frame for a page of a file.
    AllocateCachePage,
    /// Allocating a frame for page tables.
    AllocatePageTable,
    /// Allocating a frame for small objects.
    AllocateObjects,
    /// Making the object of an address space.
    MakeSpace,
    /// Making the object of an area of addresses.
    MakeArea,
    /// Making the object of a file.
    MakeFile,
    /// Making a node of the tree of a file's pages.
    MakeCacheNode,
    /// Adding a page to its CPU's batch. If this fails, the page goes to its list directly.
    AddToBatch,
    /// Splitting a huge page into single pages. If this fails, the page stays one block, which small entries map.
    SplitHuge,
    /// Getting the lock of a page in time.
    LockPage,
    /// Getting the lock of a file's size in time.
    LockSize,
    /// Removing a clean page from its file. If this fails, the page counts as busy.
    DropPage,
    /// Waiting for a migration to end.
    AwaitMove,
    /// Waiting for visits to end after the last handle of a space was dropped.
    AwaitVisits,
    /// Isolating a page for migration.
    Isolate,
    /// Finding the space or file of a page.
    Visit,
    /// Taking the map lock of the space of a page in migration.
    ReadMap,
    /// Marking the entry of a page as in migration.
    Mark,
    /// Freezing the counts of a page.
    Freeze,
    /// Copying a page.
    Copy,
    /// Publishing the page's new frame.
    Unfreeze,
    /// Returning a page to a batch after it was not moved. If this fails, the page goes to its list directly.
    PutBack,
    /// Reading a page table without a lock. If this fails, the caller takes the map lock, or the pin fails.
    WalkUnlocked,
}

impl Step {
    /// All steps.
    pub const ALL: [Self; 25] = [
        Self::AllocatePage,
        Self::AllocateHugePage,
        Self::AllocateCachePage,
        Self::AllocatePageTable,
        Self::AllocateObjects,
        Self::MakeSpace,
        Self::MakeArea,
        Self::MakeFile,
        Self::MakeCacheNode,
        Self::AddToBatch,
        Self::SplitHuge,
        Self::LockPage,
        Self::LockSize,
        Self::DropPage,
        Self::AwaitMove,
        Self::AwaitVisits,
        Self::Isolate,
        Self::Visit,
        Self::ReadMap,
        Self::Mark,
        Self::Freeze,
        Self::Copy,
        Self::Unfreeze,
        Self::PutBack,
        Self::WalkUnlocked,
    ];

    /// Whether the step needs memory.
    #[must_use]
    pub const fn allocates(self) -> bool {
        matches!(
            self,
            Self::AllocatePage
                | Self::AllocateHugePage
                | Self::AllocateCachePage
                | Self::AllocatePageTable
                | Self::AllocateObjects
                | Self::MakeSpace
                | Self::MakeArea
                | Self::MakeFile
                | Self::MakeCacheNode
        )
    }
}

/// Decides which steps fail, for tests of the failure paths.
pub trait FaultInjector: Sync {
    /// Whether this step fails now.
    fn fails(&self, step: Step) -> bool;
}

impl fmt::Debug for dyn FaultInjector + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultInjector")
    }
}
