//! How address spaces come into being, are found by name, and go.

use core::fmt;
use core::num::NonZeroUsize;

use frameyard::platform::Activity;
use frameyard::sync::Ordering;
use frameyard::{ByteSize, PageCount, Platform};

use super::{HANDLES, Put, SpaceRef, SpaceWord, Unmapped};
use crate::address::{VirtAddr, VirtRange};
use crate::error::{VmError, VmValidateError};
use crate::object_id::{ObjectId, ObjectKind};
use crate::root::HeaderWord;
use crate::vm::Vm;

/// The name of an address space, the same in all processes that share the yard. Not given again before 2²⁴ further spaces
/// have been.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpaceId(u64);

impl SpaceId {
    /// Bits of the id of the object.
    const OBJECT: u32 = 40;

    fn of<P: Platform>(space: SpaceRef<'_, P>) -> Self {
        Self(space.object().bits() | space.word(SpaceWord::SERIAL).load(Ordering::Relaxed) << Self::OBJECT)
    }

    pub(crate) fn object(self) -> ObjectId {
        ObjectId::from_bits(self.0 & ((1 << Self::OBJECT) - 1))
    }

    /// The name as a number, to be handed to another process.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The name that [`to_bits`](Self::to_bits) gave. Any number may be tried.
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

/// An address space: areas of addresses, and the page tables that map them. While a handle like this lives, it is there;
/// with the last one it goes, and all its memory returns to the yard.
///
/// Any number of threads may use it at once.
pub struct AddressSpace<'y, P: Platform> {
    space: SpaceRef<'y, P>,
}

/// How a handle of a space went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum ExitOutcome {
    /// The space is no more: this was its last handle.
    Gone(Unmapped),
    /// Others have handles, and use the space on.
    StillUsed,
}

/// Why a space was not taken down in time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ExitProblem {
    /// Somebody who moves a page of it does not come to an end. Nothing has changed.
    Visited,
    /// The page at this address is being moved, and nobody is to be seen who would come to an end with that (he was
    /// killed, say). All other pages are gone; the areas are there.
    Moving(VirtAddr),
}

impl fmt::Display for ExitProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Visited => f.write_str("somebody moves a page of the space, and does not come to an end: exit again"),
            Self::Moving(addr) => {
                write!(f, "the page at {addr} is being moved, and that does not come to an end: exit again")
            }
        }
    }
}

impl core::error::Error for ExitProblem {}

/// A space that was not taken down in time, with the handle that was to go: it can exit again. Dropped, the space goes as a
/// dropped handle's does.
pub struct ExitStalled<'y, P: Platform> {
    /// The handle.
    pub space: AddressSpace<'y, P>,
    /// What was waited for.
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

/// What is in a space, a moment ago.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SpaceStatistics {
    /// How many areas there are.
    pub areas: u64,
    /// How much is mapped by them.
    pub mapped: ByteSize,
    /// Pages of anonymous memory that are there, those of huge pages among them.
    pub resident: PageCount,
    /// Huge mappings of anonymous memory.
    pub huge: u64,
    /// Frames of page tables.
    pub page_tables: PageCount,
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Makes an address space with nothing in it.
    ///
    /// # Errors
    ///
    /// [`VmError::BadConfig`] where pages have not 4 KiB, or no memory; nothing has changed then, but for a frame that
    /// stays with the root for spaces to come.
    pub fn create_space(&self) -> Result<AddressSpace<'y, P>, VmError> {
        let space = SpaceRef::new(*self, self.new_object(ObjectKind::Space)?);
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

    /// A further handle of a space that some process made; `None` where it is gone. Any id may be tried.
    ///
    /// Cost: a look at each frame of spaces.
    #[must_use]
    pub fn space(&self, id: SpaceId) -> Option<AddressSpace<'y, P>> {
        let object = self.stable_objects(ObjectKind::Space).find(|object| *object == id.object())?;
        // A visit, so that a space of another name never has a handle too many.
        let visit = SpaceRef::new(*self, object).visit()?;
        (SpaceId::of(*visit) == id && visit.get_handle()).then(|| AddressSpace { space: *visit })
    }

    /// The spaces that live, while none comes or goes.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = SpaceRef<'y, P>> {
        let vm = *self;
        let all = self.stable_objects(ObjectKind::Space).map(move |id| SpaceRef::new(vm, id));
        // Acquire: pairs with the Release in `create_space`.
        all.filter(|space| space.word(SpaceWord::USERS).load(Ordering::Acquire) & HANDLES != 0)
    }

    /// Recounts the areas of all spaces, while nobody is at work.
    pub(crate) fn validate_spaces(&self) -> Result<(), VmValidateError> {
        let (mut spaces, mut areas) = (0, 0);
        for space in self.spaces() {
            let locked = space.word(SpaceWord::MAP_LOCK).load(Ordering::Relaxed);
            let visits = space.word(SpaceWord::USERS).load(Ordering::Relaxed) >> 32;
            for (what, kept) in [("map lock of a space at rest", locked), ("visits of a space at rest", visits)] {
                if kept != 0 {
                    return Err(VmValidateError::Count { what, kept, found: 0 });
                }
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
    /// The space's words. It lives as long as this handle.
    #[inline(always)]
    pub(crate) fn space(&self) -> SpaceRef<'y, P> {
        self.space
    }

    /// The space's name.
    #[must_use]
    pub fn id(&self) -> SpaceId {
        SpaceId::of(self.space)
    }

    /// What is in the space. Under the map lock, for reading.
    ///
    /// Cost: a look at each page of page tables above the lowest level, and at the page structures of all.
    #[must_use]
    pub fn statistics(&self) -> SpaceStatistics {
        let _reading = self.space.map_lock().read();
        let get = |word| self.space.word(word).load(Ordering::Relaxed);
        let mapped = self.space.count_mapped();
        SpaceStatistics {
            areas: get(SpaceWord::AREA_COUNT),
            mapped: ByteSize(get(SpaceWord::MAPPED_BYTES)),
            resident: PageCount(mapped.pages),
            huge: mapped.huge,
            page_tables: PageCount(get(SpaceWord::PAGE_TABLES)),
        }
    }

    /// Gives the handle back. With the last one the space goes: its pages and page tables are freed, by as many workers at
    /// once as are asked for and the platform has.
    ///
    /// Dropping the handle does the same with one worker. Where this would fail with [`ExitProblem::Visited`], whoever the
    /// last handle's owner has waited for takes the space down when he is done.
    ///
    /// # Errors
    ///
    /// [`ExitStalled`], after a bounded time; it has the handle, which can exit again.
    ///
    /// # Cost
    ///
    /// O(1) for each page, page table and area, divided by the workers.
    #[expect(clippy::result_large_err, reason = "the handle comes back, and there is no heap")]
    pub fn exit(self, workers: NonZeroUsize) -> Result<ExitOutcome, ExitStalled<'y, P>> {
        let space = self.space;
        core::mem::forget(self);
        let problem = match space.put_handle() {
            Put::StillUsed => return Ok(ExitOutcome::StillUsed),
            Put::Last => match space.take_down(workers) {
                Ok(unmapped) => return Ok(ExitOutcome::Gone(unmapped)),
                Err(addr) => ExitProblem::Moving(addr),
            },
            Put::Visited => ExitProblem::Visited,
        };
        space.take_handle_back();
        Err(ExitStalled { space: Self { space }, problem })
    }
}

impl<P: Platform> SpaceRef<'_, P> {
    /// Frees all that a space has, and the space. The caller has it alone.
    ///
    /// # Errors
    ///
    /// An address whose page is being moved, and that does not come to an end: the space is still there.
    fn take_down(self, workers: NonZeroUsize) -> Result<Unmapped, VirtAddr> {
        let platform = self.vm().yard().platform();
        platform.begin_activity(Activity::Exit);
        let unmapped = self.take_all_down(workers);
        platform.end_activity(Activity::Exit, unmapped.map_or(PageCount(0), |unmapped| unmapped.pages));
        unmapped
    }

    fn take_all_down(self, workers: NonZeroUsize) -> Result<Unmapped, VirtAddr> {
        let writing = self.map_lock().write();
        let zapped = self.zap_parallel(workers);
        if let Some(addr) = zapped.moving {
            return Err(addr);
        }
        let all = VirtRange { start: VirtAddr(0), end: VirtAddr::END };
        let mut tables = self.free_tables(all, VirtAddr(0), VirtAddr::END);
        if let Some(root) = self.root_table() {
            self.free_table_frames(&[root]);
            tables += 1;
        }
        self.clear_areas();
        drop(writing);
        self.vm().delete_object(ObjectKind::Space, self.object());
        Ok(Unmapped { pages: PageCount(zapped.pages), huge: zapped.huge, tables: PageCount(zapped.tables + tables) })
    }

    /// Takes a space down that its last handle's owner has left, or that he cannot wait for any longer. A page that is being
    /// moved by nobody who would come to an end stays, and the space's object and tables with it, as nobody's: the next
    /// validation says so.
    pub(super) fn take_down_left(self) {
        let _ = self.take_down(NonZeroUsize::MIN);
    }
}

impl<P: Platform> Clone for AddressSpace<'_, P> {
    /// A further handle.
    ///
    /// # Panics
    ///
    /// Where there are 2³¹ − 1 handles already.
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
            Put::Visited => !self.space.leave(),
        };
        if is_ours {
            self.space.take_down_left();
        }
    }
}

impl<P: Platform> fmt::Debug for AddressSpace<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressSpace").field(&self.id()).finish()
    }
}
