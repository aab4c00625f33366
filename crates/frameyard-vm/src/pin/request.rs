//! [`PinRequest`]: what to take, and how.

use core::ops::BitOr;

use frameyard::units::named;

use crate::space::MemoryAccess;
use crate::table::Entry;

/// The purpose of taking pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PinCall {
    /// Use of the page structure: one reference per page. The pages are not freed, but a migration may move them after
    /// waiting.
    Get,
    /// Use of the bytes, for example by a device: one pin per page. The pages are neither freed nor moved.
    #[default]
    Pin,
}

named!(PinCall: Get => "get", Pin => "pin");

/// The path that takes the pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PinPath {
    /// Without locks as far as possible, the rest under the map lock.
    #[default]
    FastThenSlow,
    /// Under the map lock.
    SlowOnly,
    /// Without locks or faults. Pages that this cannot take are not taken.
    FastOnly,
}

named!(PinPath: FastThenSlow => "fast", SlowOnly => "slow", FastOnly => "fast-only");

/// How references of several pages with one head are counted. The resulting counts are equal.
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
    /// out first. Private mappings of files get a copy of the page first. Shared mappings of files with a store can be
    /// pinned for long only for reading.
    pub const LONGTERM: Self = Self(1 << 1);
    /// Writes are allowed in read-only areas of anonymous memory and of private mappings of files, which get a copy of the
    /// page first (`FOLL_FORCE`, for debuggers; `check_vma_flags`). Only the slow path takes such pages.
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
    /// The purpose.
    pub call: PinCall,
    /// The path.
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

/// Whether released pages were written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dirty {
    /// The caller reports no write.
    #[default]
    Keep,
    /// The pages were written, which is recorded (`unpin_user_pages_dirty_lock`).
    Mark,
}

named!(Dirty: Keep => "keep", Mark => "mark");
