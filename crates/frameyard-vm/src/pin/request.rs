//! What is asked for: [`PinRequest`].

use core::ops::BitOr;

use frameyard::units::named;

use crate::space::MemoryAccess;
use crate::table::Entry;

/// What the pages are wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PinCall {
    /// To be looked at as pages: a reference for each. They are not freed, but a page that somebody moves may be waited for.
    Get,
    /// To have their bytes worked on, by a device say: a pin for each. They are neither freed nor moved.
    #[default]
    Pin,
}

named!(PinCall: Get => "get", Pin => "pin");

/// By which way the pages are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PinPath {
    /// Without any lock as far as that goes, the rest under the map lock.
    #[default]
    FastThenSlow,
    /// Under the map lock alone.
    SlowOnly,
    /// Without any lock and without faults; what is not there like that is not taken.
    FastOnly,
}

named!(PinPath: FastThenSlow => "fast", SlowOnly => "slow", FastOnly => "fast-only");

/// How references are counted where several pages have one head. The counts are the same afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RefHandling {
    /// One by one.
    PerPage,
    /// All of an entry of page tables that have one head at once.
    #[default]
    Batched,
}

named!(RefHandling: PerPage => "per-page", Batched => "batched");

/// What else is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PinFlags(u8);

impl PinFlags {
    /// Nothing else.
    pub const NONE: Self = Self(0);
    /// The pages are going to be written (`FOLL_WRITE`).
    pub const WRITE: Self = Self(1 << 0);
    /// They stay taken for long (`FOLL_LONGTERM`): those that lie where everything has to be movable, in Movable zones and in
    /// contiguous memory areas, are moved out first.
    pub const LONGTERM: Self = Self(1 << 1);
    /// Written also where the area is read-only, if it is anonymous memory, so that nobody else sees it (`FOLL_FORCE`, as
    /// debuggers use it; `check_vma_flags`). Such pages are taken by the slow path.
    pub const FORCE: Self = Self(1 << 2);

    /// Whether all of the other's are asked for.
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

/// How pages of a space are to be taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PinRequest {
    /// What for.
    pub call: PinCall,
    /// By which way.
    pub path: PinPath,
    /// How references are counted.
    pub refs: RefHandling,
    /// What else.
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

    /// The same by another way.
    #[must_use]
    pub const fn by(self, path: PinPath) -> Self {
        Self { path, ..self }
    }

    /// The same with references counted otherwise.
    #[must_use]
    pub const fn counted(self, refs: RefHandling) -> Self {
        Self { refs, ..self }
    }

    /// The same, and that too.
    #[must_use]
    pub fn with(self, flags: PinFlags) -> Self {
        Self { flags: self.flags | flags, ..self }
    }

    /// How the pages are used.
    #[inline(always)]
    pub(super) const fn access(self) -> MemoryAccess {
        if self.flags.contains(PinFlags::WRITE) { MemoryAccess::Write } else { MemoryAccess::Read }
    }

    /// How pages are used that are not there yet: by force they come as their area says, and are looked at then.
    #[inline(always)]
    pub(super) const fn access_to_map(self) -> MemoryAccess {
        if self.flags.contains(PinFlags::FORCE) { MemoryAccess::Read } else { self.access() }
    }

    /// Whether the page of an entry may be used so, by force where that is asked for.
    #[inline(always)]
    pub(super) const fn allows(self, entry: Entry) -> bool {
        entry.allows(self.access()) || self.flags.contains(PinFlags::FORCE) && !entry.is_device()
    }
}

/// Whether pages that are given back were written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dirty {
    /// As far as the caller knows they are as before.
    #[default]
    Keep,
    /// They were: that is noted (`unpin_user_pages_dirty_lock`).
    Mark,
}

named!(Dirty: Keep => "keep", Mark => "mark");
