//! Creation, look-up by name and exit of address spaces.

use core::fmt;
use core::num::NonZeroUsize;

use frameyard::platform::{Activity, Probe};
use frameyard::sync::Ordering;
use frameyard::{ByteSize, PageCount, Platform};

use super::{HANDLES, Put, SpaceRef, SpaceWord, Unmapped};
use crate::address::{VirtAddr, VirtRange};
use crate::error::{VmError, VmValidateError};
use crate::object_id::{ObjectId, ObjectKind};
use crate::root::HeaderWord;
use crate::vm::Vm;

/// The name of an address space, the same in all processes that share the yard. A name is reused only after 2²⁴ more
/// spaces have been created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpaceId(u64);

impl SpaceId {
    /// Bits of the object's id.
    const OBJECT: u32 = 40;

    fn of<P: Platform>(space: SpaceRef<'_, P>) -> Self {
        Self(space.object().bits() | space.word(SpaceWord::SERIAL).load(Ordering::Relaxed) << Self::OBJECT)
    }

    pub(crate) fn object(self) -> ObjectId {
        ObjectId::from_bits(self.0 & ((1 << Self::OBJECT) - 1))
    }

    /// The name as a number, to send to another process.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The name that [`to_bits`](Self::to_bits) returned as this number. Any number is safe to try.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Display for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "space {:#x}", self.0)
    }
}

/// A handle of an address space: areas of addresses and the page tables that map them. Dropping the last handle tears
/// the space down and returns its memory to the yard.
///
/// Any number of threads can use a space at once.
pub struct AddressSpace<'y, P: Platform> {
    space: SpaceRef<'y, P>,
}

/// The result of an exit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum ExitOutcome {
    /// It was the last handle, and the space is gone.
    Gone(Unmapped),
    /// Other handles exist, so the space stays.
    StillUsed,
}

/// Why a space was not torn down in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExitProblem {
    /// A visit, which moves a page of the space, has not ended. Nothing has changed.
    Visited,
    /// The page at this address is in migration, and there is no visit that could finish it, for example because the
    /// process was killed. All other pages are gone; the areas remain.
    Moving(VirtAddr),
    /// A lock was not released, or the state is damaged ([`VmError::Lock`], [`VmError::Damaged`]). Some pages may be gone.
    Vm(VmError),
}

impl fmt::Display for ExitProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Visited => f.write_str("a migration of a page of the space has not ended: exit again"),
            Self::Moving(addr) => {
                write!(f, "the page at {addr} is still in migration: exit again")
            }
            Self::Vm(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ExitProblem {}

/// A space that was not torn down in time. The handle in it can exit again; dropping this is the same as dropping the
/// handle.
pub struct ExitStalled<'y, P: Platform> {
    /// The handle.
    pub space: AddressSpace<'y, P>,
    /// The reason.
    pub problem: ExitProblem,
}

impl<P: Platform> fmt::Display for ExitStalled<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.space.id(), self.problem)
    }
}

impl<P: Platform> fmt::Debug for ExitStalled<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExitStalled").field("space", &self.space).field("problem", &self.problem).finish()
    }
}

impl<P: Platform> core::error::Error for ExitStalled<'_, P> {}

/// What a space contains; may be stale.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SpaceStatistics {
    /// Number of areas.
    pub areas: u64,
    /// Bytes that the areas map.
    pub mapped: ByteSize,
    /// Resident pages of anonymous memory, including those of huge pages.
    pub resident: PageCount,
    /// Huge mappings of anonymous memory.
    pub huge: u64,
    /// Frames of page tables.
    pub page_tables: PageCount,
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Creates an empty address space.
    ///
    /// # Errors
    ///
    /// [`VmError::BadConfig`] if pages are not 4 KiB, [`VmError::OutOfMemory`], and [`VmError::Lock`] or
    /// [`VmError::Damaged`] if the state is known to be damaged. Nothing has changed then, except that the root may
    /// have kept a frame for future spaces.
    pub fn create_space(&self) -> Result<AddressSpace<'y, P>, VmError> {
        self.check_damage()?;
        let space = SpaceRef::new(*self, self.new_object(ObjectKind::Space)?)?;
        let link = match space.new_root_table() {
            Ok(link) => link,
            Err(problem) => {
                self.delete_object(ObjectKind::Space, space.object());
                return Err(problem);
            }
        };
        space.word(SpaceWord::ROOT_TABLE).store(u64::from(link.bits()), Ordering::Relaxed);
        space.word(SpaceWord::SERIAL).store(self.root().next(HeaderWord::Spaces), Ordering::Relaxed);
        // Release: pairs with the Acquire in `change_users`.
        space.word(SpaceWord::USERS).store(1, Ordering::Release);
        Ok(AddressSpace { space })
    }

    /// Another handle of an existing space; `None` if the space is gone. Any id is safe to try.
    ///
    /// Cost: a search through all frames with objects of spaces.
    #[must_use]
    pub fn space(&self, id: SpaceId) -> Option<AddressSpace<'y, P>> {
        let object = self.stable_objects(ObjectKind::Space).find(|object| *object == id.object())?;
        // Visit first, so that a space with a different name never gets an extra handle.
        let visit = SpaceRef::new(*self, object).ok()?.visit()?;
        (SpaceId::of(*visit) == id && visit.get_handle()).then(|| AddressSpace { space: *visit })
    }

    /// The objects of spaces, live or not.
    fn space_objects(&self) -> impl Iterator<Item = SpaceRef<'y, P>> {
        let vm = *self;
        self.stable_objects(ObjectKind::Space).filter_map(move |id| SpaceRef::new(vm, id).ok())
    }

    /// The live spaces. Requires that none is created or exits meanwhile.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = SpaceRef<'y, P>> {
        // Acquire: pairs with the Release in `create_space`.
        self.space_objects().filter(|space| space.word(SpaceWord::USERS).load(Ordering::Acquire) & HANDLES != 0)
    }

    /// Validates all spaces. Requires quiescence.
    pub(crate) fn validate_spaces(&self) -> Result<(), VmValidateError> {
        let visits_of = |space: SpaceRef<'y, P>| space.word(SpaceWord::USERS).load(Ordering::Relaxed) >> 32;
        let visits = self.space_objects().map(visits_of).fold(0, u64::wrapping_add);
        if visits != 0 {
            let what = "visits of quiet spaces, which killed processes leave";
            return Err(VmValidateError::Count { what, kept: visits, found: 0 });
        }
        let (mut spaces, mut areas) = (0, 0);
        for space in self.spaces() {
            let locked = space.word(SpaceWord::MAP_LOCK).load(Ordering::Relaxed);
            if locked != 0 {
                return Err(VmValidateError::Count { what: "map lock of a quiet space", kept: locked, found: 0 });
            }
            spaces += 1;
            areas += space.validate_areas()?;
            space.validate_tables()?;
        }
        let kept = |kind| self.live_objects(kind);
        let counts =
            [("spaces", kept(ObjectKind::Space), spaces), ("areas of all spaces", kept(ObjectKind::Area), areas)];
        match counts.into_iter().find(|(_, kept, found)| kept != found) {
            Some((what, kept, found)) => Err(VmValidateError::Count { what, kept, found }),
            None => Ok(()),
        }
    }
}

impl<'y, P: Platform> AddressSpace<'y, P> {
    /// The space. It lives as long as this handle.
    #[inline(always)]
    pub(crate) fn space(&self) -> SpaceRef<'y, P> {
        self.space
    }

    /// The space's name.
    #[must_use]
    pub fn id(&self) -> SpaceId {
        SpaceId::of(self.space)
    }

    /// What the space contains. Takes the map lock for reading.
    ///
    /// If the lock cannot be taken or the page tables are damaged, `resident` and `huge` are 0.
    ///
    /// Cost: reads all page tables above the lowest level, and the page structures of all tables.
    #[must_use]
    pub fn statistics(&self) -> SpaceStatistics {
        let reading = self.space.map_lock().read();
        let get = |word| self.space.word(word).load(Ordering::Relaxed);
        let mapped = reading.ok().and_then(|_reading| self.space.count_mapped().ok()).unwrap_or_default();
        SpaceStatistics {
            areas: get(SpaceWord::AREA_COUNT),
            mapped: ByteSize(get(SpaceWord::MAPPED_BYTES)),
            resident: PageCount(mapped.pages),
            huge: mapped.huge,
            page_tables: PageCount(get(SpaceWord::PAGE_TABLES)),
        }
    }

    /// Drops the handle. If it is the last one, this tears the space down, and frees pages and page tables with up to
    /// `workers` workers if the platform has them.
    ///
    /// `drop` does the same with one worker, except that in the case of [`ExitProblem::Visited`] it leaves the space to
    /// the visitor, which tears it down when its visit ends.
    ///
    /// # Errors
    ///
    /// [`ExitStalled`] if a wait, which is bounded, timed out. It contains the handle, which can exit again.
    ///
    /// # Cost
    ///
    /// O(1) per page, page table and area, divided by the workers.
    #[expect(clippy::result_large_err, reason = "the handle comes back, and there is no heap")]
    pub fn exit(self, workers: NonZeroUsize) -> Result<ExitOutcome, ExitStalled<'y, P>> {
        let space = self.space;
        core::mem::forget(self);
        let problem = match space.put_handle() {
            Put::StillUsed => return Ok(ExitOutcome::StillUsed),
            Put::Last => match space.tear_down(workers) {
                Ok(unmapped) => return Ok(ExitOutcome::Gone(unmapped)),
                Err(problem) => problem,
            },
            Put::Visited => ExitProblem::Visited,
            Put::VisitorGone(error) => ExitProblem::Vm(error.into()),
        };
        space.restore_handle();
        Err(ExitStalled { space: Self { space }, problem })
    }
}

impl<P: Platform> SpaceRef<'_, P> {
    /// Frees all memory of a space, and the space. The caller has exclusive access.
    ///
    /// # Errors
    ///
    /// The space still exists: a migration did not end, a lock was not released, or its state is damaged.
    fn tear_down(self, workers: NonZeroUsize) -> Result<Unmapped, ExitProblem> {
        let platform = self.vm().yard().platform();
        platform.probe().begin_activity(Activity::Exit);
        let unmapped = self.tear_down_all(workers);
        platform.probe().end_activity(Activity::Exit, unmapped.map_or(PageCount(0), |unmapped| unmapped.pages));
        unmapped
    }

    fn tear_down_all(self, workers: NonZeroUsize) -> Result<Unmapped, ExitProblem> {
        let writing = self.map_lock().write().map_err(|error| ExitProblem::Vm(error.into()))?;
        let zapped = self.zap_parallel(workers).map_err(ExitProblem::Vm)?;
        if let Some(addr) = zapped.moving {
            return Err(ExitProblem::Moving(addr));
        }
        let all = VirtRange { start: VirtAddr(0), end: VirtAddr::END };
        let mut tables = self.free_tables(all, VirtAddr(0), VirtAddr::END).map_err(ExitProblem::Vm)?;
        if let Some(root) = self.root_table() {
            self.free_table_frames(&[root]);
            tables += 1;
        }
        self.clear_areas();
        drop(writing);
        self.vm().delete_object(ObjectKind::Space, self.object());
        Ok(Unmapped {
            pages: PageCount(zapped.pages),
            huge: zapped.huge,
            file: PageCount(zapped.file),
            tables: PageCount(zapped.tables + tables),
        })
    }

    /// Tears down an abandoned space. If that fails, the rest of its pages, its object and its tables stay. The next validation
    /// reports it.
    pub(super) fn tear_down_abandoned(self) {
        let _ = self.tear_down(NonZeroUsize::MIN);
    }
}

impl<P: Platform> Clone for AddressSpace<'_, P> {
    /// Another handle.
    ///
    /// # Panics
    ///
    /// If 2³¹ − 1 handles exist.
    fn clone(&self) -> Self {
        assert!(self.space.get_handle(), "a space has less than 2^31 handles");
        Self { space: self.space }
    }
}

impl<P: Platform> Drop for AddressSpace<'_, P> {
    fn drop(&mut self) {
        let is_ours = match self.space.put_handle() {
            Put::StillUsed => false,
            Put::Last => true,
            Put::Visited | Put::VisitorGone(_) => !self.space.abandon(),
        };
        if is_ours {
            self.space.tear_down_abandoned();
        }
    }
}

impl<P: Platform> fmt::Debug for AddressSpace<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressSpace").field(&self.id()).finish()
    }
}
