//! Address spaces: [`AddressSpace`], a handle that keeps a space alive, and [`SpaceRef`], which does not.
//!
//! # Handles and visits
//!
//! The users word of a space has two counts.
//!
//! - *Handles* keep the space alive. Dropping the last handle tears the space down.
//! - *Visits* let migration and reclaim use a space that they found through a page of it. A visit succeeds only while
//!   handles exist, is short, and never waits for a handle to be dropped. The owner of the last handle waits for
//!   visits, with a bound.
//!
//! A process that is killed during a visit leaves it for ever. Exits then end with an error, and validation reports it.
//!
//! If visits do not end in time, an exit returns an error with the handle. A dropped handle instead *abandons* the
//! space, and the last visitor tears it down. A visitor therefore holds no spinning lock when its visit ends.
//!
//! # Map lock
//!
//! Areas and page tables above the lowest entries change only while the map lock is held for writing. A reader may add
//! page tables, each under the lock of its parent table.

use core::fmt;

use frameyard::page::FrameLink;
use frameyard::platform::{Access, LineKind, LockError, LockId, Probe, SharedLine};
use frameyard::sync::{AtomicU64, Ordering};
use frameyard::{Pfn, Platform};

use crate::error::VmError;
use crate::inject::Step;
use crate::lock::{MAP_LOCK_WORDS, MapLock};
use crate::object_id::{ObjectId, ObjectKind};
use crate::vm::Vm;
use crate::words::Words;

mod error;
mod lifecycle;
#[cfg(test)]
mod tests;
mod unmapped;

pub use error::{FaultError, MapError};
pub use lifecycle::{AddressSpace, ExitOutcome, ExitProblem, ExitStalled, SpaceId, SpaceStatistics};
pub use unmapped::Unmapped;

/// Words of a space, grouped by cache line: the lock; rarely written words; counters written by map writers; counters
/// written by faults.
pub(crate) struct SpaceWord;

impl SpaceWord {
    /// The map lock: [`MAP_LOCK_WORDS`] words.
    pub(crate) const MAP_LOCK: usize = 0;

    /// Handles in bits 0–30, visits in bits 32–63. Without handles the space is dead or not created yet. Bit 31: the
    /// last handle was dropped during visits, and the last visitor tears the space down.
    pub(crate) const USERS: usize = 8;
    /// Link of the frame of the topmost page table. Fixed while there are users.
    pub(crate) const ROOT_TABLE: usize = 9;
    /// Serial number among all spaces ever created, from 1. Fixed while there are users.
    pub(crate) const SERIAL: usize = 10;
    /// Root of the tree of areas. Map lock.
    pub(crate) const AREAS: usize = 11;
    /// Counts removals of reachable page tables. Changes under the map lock; unlocked walks read it.
    pub(crate) const TABLE_REMOVALS: usize = 12;

    /// Number of areas. Map lock.
    pub(crate) const AREA_COUNT: usize = 16;
    /// Mapped bytes. Map lock.
    pub(crate) const MAPPED_BYTES: usize = 17;

    /// Frames of page tables, including the root. Atomic.
    pub(crate) const PAGE_TABLES: usize = 26;
    /// The cached area: of this space, or none. A CPU that removes an area under the map lock clears it.
    pub(crate) const LAST_FOUND: usize = 27;

    /// Cache of page tables of level 0, indexed by address. Cleared before tables are removed.
    pub(crate) const LEAVES: usize = 32;
    /// Number of cached tables.
    pub(crate) const LEAF_COUNT: usize = 32;
}

/// A reference to a space's words. Copyable. It does not keep the space alive; the holder must ensure that.
pub(crate) struct SpaceRef<'y, P: Platform> {
    vm: Vm<'y, P>,
    id: ObjectId,
    words: Words<'y>,
}

impl<P: Platform> Clone for SpaceRef<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for SpaceRef<'_, P> {}

impl<P: Platform> fmt::Debug for SpaceRef<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpaceRef").field(&self.id).finish()
    }
}

const _: () = assert!(SpaceWord::MAP_LOCK + MAP_LOCK_WORDS <= SpaceWord::USERS);

const HANDLES: u64 = i32::MAX as u64;
const ABANDONED: u64 = 1 << 31;
const VISIT: u64 = 1 << 32;

/// Bound of the wait for visits, in rounds of [`Platform::wait`]. A visitor moves one page.
const WAIT_ROUNDS: u32 = if cfg!(loom) { 1 } else { 4096 };

/// The result of dropping a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    /// Other handles exist.
    StillUsed,
    /// It was the last handle, and no visits remain. The caller has exclusive access.
    Last,
    /// It was the last handle, and the wait for visits timed out. No new visit can start.
    Visited,
    /// As `Visited`: the process of a visitor has died, or does not go on.
    VisitorGone(LockError),
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// The space of an id that once named a space.
    pub(crate) fn new(vm: Vm<'y, P>, id: ObjectId) -> Result<Self, VmError> {
        Ok(Self { vm, id, words: vm.object(ObjectKind::Space, id)? })
    }

    #[inline(always)]
    pub(crate) fn vm(&self) -> &Vm<'y, P> {
        &self.vm
    }

    /// The id in the owner's words of the space's pages.
    #[inline(always)]
    pub(crate) fn object(&self) -> ObjectId {
        self.id
    }

    #[inline(always)]
    pub(crate) fn word(&self, word: usize) -> &'y AtomicU64 {
        self.words.at(word)
    }

    /// Reports an access to a word of the space to the platform.
    #[inline(always)]
    pub(crate) fn report_access(&self, word: &AtomicU64, access: Access) {
        self.vm.yard().platform().probe().touch_line(SharedLine::of(LineKind::SpaceState, word), access);
    }

    /// The lock of its areas and page tables.
    #[inline(always)]
    pub(crate) fn map_lock(&self) -> MapLock<'y, P> {
        let id = LockId::AddressSpace(self.id.bits() as u32);
        MapLock::new(self.vm.yard().platform(), id, self.words.part(SpaceWord::MAP_LOCK, MAP_LOCK_WORDS))
    }

    /// The frame of the topmost page table; `None` before there is one.
    #[inline(always)]
    pub(crate) fn root_table(&self) -> Option<Pfn> {
        let link = self.word(SpaceWord::ROOT_TABLE).load(Ordering::Relaxed);
        self.vm.yard().counted().linked(FrameLink::from_bits(link as u32))
    }

    /// Adds to a counter of the space.
    #[inline(always)]
    pub(crate) fn add(&self, word: usize, amount: u64) {
        self.report_access(self.word(word), Access::ReadModifyWrite);
        self.word(word).fetch_add(amount, Ordering::Relaxed);
    }

    /// Subtracts from a counter of the space.
    #[inline(always)]
    pub(crate) fn subtract(&self, word: usize, amount: u64) {
        self.report_access(self.word(word), Access::ReadModifyWrite);
        self.word(word).fetch_sub(amount, Ordering::Relaxed);
    }

    /// Starts a visit; `None` if the space is dead.
    pub(crate) fn visit(self) -> Option<Visit<'y, P>> {
        let visited = |users: u64| users.checked_add(VISIT).filter(|_| users & HANDLES != 0);
        self.change_users(visited).then(|| Visit { space: self })
    }

    /// Takes another handle; `false` if the space is dead or the count is full.
    fn get_handle(self) -> bool {
        self.change_users(|users| (users & HANDLES != 0 && users & HANDLES != HANDLES).then_some(users + 1))
    }

    /// Drops a handle, and waits for visits if it was the last.
    fn put_handle(self) -> Put {
        let users = self.word(SpaceWord::USERS);
        // AcqRel: pairs with `put_handle` of the other handles, so that the last one takes the space down after their last
        // accesses.
        if users.fetch_sub(1, Ordering::AcqRel) & HANDLES != 1 {
            return Put::StillUsed;
        }
        if self.vm.may_fail(Step::AwaitVisits).is_err() {
            return Put::Visited;
        }
        for round in 0..WAIT_ROUNDS {
            // Acquire: pairs with the Release in `Visit::drop`.
            if users.load(Ordering::Acquire) == 0 {
                return Put::Last;
            }
            // Most of the time a visitor reads the map, which names its process.
            if let Err(error) = self.map_lock().check_readers(round) {
                return Put::VisitorGone(error);
            }
            self.vm.yard().platform().wait(round);
        }
        Put::Visited
    }

    /// Restores the last handle after visits timed out: the space lives on.
    fn restore_handle(self) {
        // Release: pairs with the Acquire in `change_users`. No other handle exists, so the count has not changed meanwhile.
        self.word(SpaceWord::USERS).fetch_add(1, Ordering::Release);
    }

    /// Abandons a space to the last of its visitors; `false` if the last visit has ended: the caller has exclusive
    /// access.
    fn abandon(self) -> bool {
        let leave = |users| (users != 0).then_some(users | ABANDONED);
        // Acquire, on failure: pairs with the Release in `Visit::drop`. Release, on success: pairs with the Acquire in
        // `Visit::drop`.
        self.word(SpaceWord::USERS).fetch_update(Ordering::Release, Ordering::Acquire, leave).is_ok()
    }

    fn change_users(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        // Acquire: pairs with the Release in `create_space`.
        self.word(SpaceWord::USERS).fetch_update(Ordering::Acquire, Ordering::Relaxed, change).is_ok()
    }
}

/// A visit of a space found through a page. The space stays until the guard is dropped. Drop it without a spinning lock
/// held.
pub(crate) struct Visit<'y, P: Platform> {
    space: SpaceRef<'y, P>,
}

impl<'y, P: Platform> core::ops::Deref for Visit<'y, P> {
    type Target = SpaceRef<'y, P>;

    fn deref(&self) -> &SpaceRef<'y, P> {
        &self.space
    }
}

impl<P: Platform> Drop for Visit<'_, P> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `put_handle` and `abandon`. Acquire: pairs with the Release in `abandon` and
        // in earlier `Visit::drop` calls.
        let before = self.space.word(SpaceWord::USERS).fetch_sub(VISIT, Ordering::AcqRel);
        if before == VISIT | ABANDONED {
            self.space.tear_down_abandoned();
        }
    }
}

impl<P: Platform> fmt::Debug for Visit<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.space.fmt(f)
    }
}

/// The kind of an access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryAccess {
    /// Read.
    Read,
    /// Write.
    Write,
}
