//! Failures on purpose: every step that can fail asks here first.

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
    /// Putting a page in its CPU's batch: without it, the page goes to its list alone.
    AddToBatch,
    /// Splitting a huge page into single ones: without it, it stays one block that small entries map.
    SplitHuge,
    /// Getting a page's own lock in time.
    LockPage,
    /// Getting the lock of a file's size in time.
    LockSize,
    /// Taking a clean page out of its file: without it, the page is busy.
    DropPage,
    /// Waiting until a page that is being moved is there again.
    AwaitMove,
    /// Waiting, with the last handle of a space, until nobody looks in.
    AwaitVisits,
    /// Isolating a page for migration.
    Isolate,
    /// Finding the space or the file that a page is of.
    Visit,
    /// Getting the map lock of the space whose page is moved.
    ReadMap,
    /// Marking the entry of a page as moving.
    Mark,
    /// Freezing the users of a page.
    Freeze,
    /// Copying a page.
    Copy,
    /// Letting others at the page's new frame.
    Thaw,
    /// Putting a page that was not moved back in a batch: without it, the page goes to its list alone.
    PutBack,
    /// Looking at a page table without a lock: without it, the map lock is taken, or what was asked for is not to be had.
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
        Self::Thaw,
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
