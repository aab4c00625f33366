//! [`PinRequest`]: what to take, and how.

use core::ops::BitOr;

use frameyard::units::named;

use crate::space::MemoryAccess;
use crate::table::Entry;

/// What the pages are taken for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PinCall {
    /// To use the page structures: one reference per page. The pages are not freed, and a migration can move them only
    /// once the references are released.
    Get,
    /// To use the bytes, for example by a device: one pin per page. The pages are neither freed nor moved.
    #[default]
    Pin,
}

named!(PinCall: Get => "get", Pin => "pin");

/// Which path takes the pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PinPath {
    /// Without locks for as long as possible, and the rest under the map lock.
    #[default]
    FastThenSlow,
    /// Under the map lock.
    SlowOnly,
    /// Without locks and faults. Pages that cannot be taken this way are not taken.
    FastOnly,
}

named!(PinPath: FastThenSlow => "fast", SlowOnly => "slow", FastOnly => "fast-only");

/// How references to several pages with one head are counted. Both ways lead to the same counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RefHandling {
    /// One operation per page.
    PerPage,
    /// One operation for all pages of an entry with one head.
    #[default]
    Batched,
}

named!(RefHandling: PerPage => "per-page", Batched => "batched");

/// Further options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PinFlags(u8);

impl PinFlags {
    /// No option.
    pub const NONE: Self = Self(0);
    /// The pages will be written (`FOLL_WRITE`).
    pub const WRITE: Self = Self(1 << 0);
    /// The pages stay pinned for long (`FOLL_LONGTERM`). Pages in Movable zones and contiguous memory areas are moved
    /// out first. In a private mapping of a file, the space gets its own copy of the page first. A shared mapping of a
    /// file with a store can be pinned for long only for reading.
    pub const LONGTERM: Self = Self(1 << 1);
    /// Allows writes in read-only areas of anonymous memory, and in those of private mappings of files, where the space
    /// gets its own copy of the page first (`FOLL_FORCE`, for debuggers; `check_vma_flags`). Only the slow path takes
    /// such pages.
    pub const FORCE: Self = Self(1 << 2);

    /// Whether all options of `other` are set.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for PinFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How to take pages of a space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PinRequest {
    /// What the pages are taken for.
    pub call: PinCall,
    /// Which path takes them.
    pub path: PinPath,
    /// How references are counted.
    pub refs: RefHandling,
    /// Further options.
    pub flags: PinFlags,
}

impl PinRequest {
    /// References (`get_user_pages_fast`).
    pub const GET: Self = Self::of(PinCall::Get);
    /// Pins (`pin_user_pages_fast`).
    pub const PIN: Self = Self::of(PinCall::Pin);

    const fn of(call: PinCall) -> Self {
        Self { call, path: PinPath::FastThenSlow, refs: RefHandling::Batched, flags: PinFlags::NONE }
    }

    /// Changes the path.
    #[must_use]
    pub const fn by(self, path: PinPath) -> Self {
        Self { path, ..self }
    }

    /// Changes how references are counted.
    #[must_use]
    pub const fn counted(self, refs: RefHandling) -> Self {
        Self { refs, ..self }
    }

    /// Adds options.
    #[must_use]
    pub fn with(self, flags: PinFlags) -> Self {
        Self { flags: self.flags | flags, ..self }
    }

    /// The access that the request implies.
    #[inline(always)]
    pub(super) const fn access(self) -> MemoryAccess {
        if self.flags.contains(PinFlags::WRITE) { MemoryAccess::Write } else { MemoryAccess::Read }
    }

    /// The access for missing pages: with force they are faulted in as the area allows and checked afterwards.
    #[inline(always)]
    pub(super) const fn access_to_map(self) -> MemoryAccess {
        if self.flags.contains(PinFlags::FORCE) { MemoryAccess::Read } else { self.access() }
    }

    /// Whether the entry allows the request, by force if requested.
    #[inline(always)]
    pub(super) const fn allows(self, entry: Entry) -> bool {
        entry.allows(self.access()) || self.flags.contains(PinFlags::FORCE) && entry.is_anonymous()
    }
}

/// Whether the pages being released were written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dirty {
    /// No, as far as the caller knows.
    #[default]
    Keep,
    /// Yes. They are marked dirty (`unpin_user_pages_dirty_lock`).
    Mark,
}

named!(Dirty: Keep => "keep", Mark => "mark");
