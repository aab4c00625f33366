//! How address spaces come into being, are found by name, and go.

use core::fmt;
use core::num::NonZeroUsize;

use frameyard::sync::Ordering;
use frameyard::{ByteSize, PageCount, Platform};

use super::{HANDLES, SpaceRef, SpaceWord, Unmapped};
use crate::address::{VirtAddr, VirtRange};
use crate::error::{VmError, VmValidateError};
use crate::objects::{ObjectId, ObjectKind};
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
    /// once as are asked for and the platform has. Dropping the handle does the same with one worker.
    ///
    /// # Cost
    ///
    /// O(1) for each page, page table and area, divided by the workers.
    pub fn exit(self, workers: NonZeroUsize) -> ExitOutcome {
        let space = self.space;
        core::mem::forget(self);
        put(space, workers)
    }
}

/// Puts a handle; takes the space down if it was the last.
fn put<P: Platform>(space: SpaceRef<'_, P>, workers: NonZeroUsize) -> ExitOutcome {
    if !space.put_handle() {
        return ExitOutcome::StillUsed;
    }
    let writing = space.map_lock().write();
    let zapped = space.zap_parallel(workers);
    let all = VirtRange { start: VirtAddr(0), end: VirtAddr::END };
    let mut tables = space.free_tables(all, VirtAddr(0), VirtAddr::END);
    if let Some(root) = space.root_table() {
        space.free_table_frames(&[root]);
        tables += 1;
    }
    space.clear_areas();
    drop(writing);
    space.vm().delete_object(ObjectKind::Space, space.object());
    ExitOutcome::Gone(Unmapped {
        pages: PageCount(zapped.pages),
        huge: zapped.huge,
        tables: PageCount(zapped.tables + tables),
    })
}

impl<P: Platform> Clone for AddressSpace<'_, P> {
    /// A further handle.
    ///
    /// # Panics
    ///
    /// Where there are 2³² − 1 handles already.
    fn clone(&self) -> Self {
        assert!(self.space.get_handle(), "a space has less than 2^32 handles");
        Self { space: self.space }
    }
}

impl<P: Platform> Drop for AddressSpace<'_, P> {
    fn drop(&mut self) {
        let _ = put(self.space, NonZeroUsize::MIN);
    }
}

impl<P: Platform> fmt::Debug for AddressSpace<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressSpace").field(&self.id()).finish()
    }
}
