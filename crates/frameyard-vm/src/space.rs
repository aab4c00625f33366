//! Address spaces: [`AddressSpace`], a handle that keeps one in being, and [`SpaceRef`], which does not.
//!
//! # Who may do what
//!
//! The word of users has two counts. *Handles* keep a space in being: who puts the last one takes the space down. *Visits*
//! are for whoever finds a space by a page of it (migration, reclaim): they are to be had only while there are handles, are
//! short, and the last handle's owner waits for them, though not without a bound. A visitor never waits for a handle to go.
//!
//! Where visits do not come to an end in time, who exits hears of it and has his handle again; a handle that is dropped
//! *leaves* the space instead: the last visitor takes it down. So whoever ends a visit holds no spinning lock.
//!
//! Under the map lock: areas and page tables above the leaves' entries change while it is held for writing, and stay as they
//! are while it is held for reading. Who has it for reading may add page tables, each under the lock of its parent.

use core::fmt;

use frameyard::page::FrameLink;
use frameyard::platform::{Access, LineKind, LockId, SharedLine};
use frameyard::sync::{AtomicU64, Ordering};
use frameyard::{Pfn, Platform};

use crate::inject::Step;
use crate::lock::MapLock;
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

/// Words of a space. Those of a line are changed by the same people: the lock, what seldom changes, the counts that writers
/// of the map change, those that faults change.
pub(crate) struct SpaceWord;

impl SpaceWord {
    /// The map lock.
    pub(crate) const MAP_LOCK: usize = 0;

    /// Handles in bits 0–30, visits in bits 32–63. No handles: the space is dead, or not there yet. Bit 31: the last
    /// handle was dropped while there were visits, and the last of those takes the space down.
    pub(crate) const USERS: usize = 8;
    /// Link of the frame of the topmost page table. Fixed while there are users.
    pub(crate) const ROOT_TABLE: usize = 9;
    /// Which of all spaces that ever were it is, from 1. Fixed while there are users.
    pub(crate) const SERIAL: usize = 10;
    /// Root of the tree of areas. Map lock.
    pub(crate) const AREAS: usize = 11;
    /// How often page tables went that entries had led to. Changes under the map lock; read by who walks without it.
    pub(crate) const TABLES_GONE: usize = 12;

    /// How many areas there are. Map lock.
    pub(crate) const AREA_COUNT: usize = 16;
    /// How many bytes are mapped. Map lock.
    pub(crate) const MAPPED_BYTES: usize = 17;

    /// How many frames hold page tables, the topmost included. Atomic.
    pub(crate) const PAGE_TABLES: usize = 26;
    /// The area found last; of this space, or none. Who removes an area under the map lock clears it.
    pub(crate) const LAST_FOUND: usize = 27;

    /// The page tables of level 0 found lately, each at the word that its address says. Forgotten before tables go.
    pub(crate) const LEAVES: usize = 32;
    /// How many of them.
    pub(crate) const LEAF_COUNT: usize = 32;
}

/// A space, as found in its words. Copyable; says nothing of whether the space lives, which whoever holds it has to know.
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

const HANDLES: u64 = i32::MAX as u64;
const LEFT: u64 = 1 << 31;
const VISIT: u64 = 1 << 32;

/// How often the owner of a space's last handle looks whether all visitors have gone, before he gives up: rounds of
/// [`Platform::relax`]. A visitor moves one page.
const WAIT_ROUNDS: u32 = if cfg!(loom) { 1 } else { 4096 };

/// How a handle of a space went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    /// Others have handles.
    StillUsed,
    /// It was the last one. Nobody can visit any more, nobody does, and the caller has the space alone.
    Last,
    /// It was the last one, and visitors do not come to an end. Nobody else can visit.
    Visited,
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// The space of an id that once was a space's.
    pub(crate) fn new(vm: Vm<'y, P>, id: ObjectId) -> Self {
        Self { vm, id, words: vm.object(ObjectKind::Space, id) }
    }

    #[inline(always)]
    pub(crate) fn vm(&self) -> &Vm<'y, P> {
        &self.vm
    }

    /// The id by which pages name the space they are of.
    #[inline(always)]
    pub(crate) fn object(&self) -> ObjectId {
        self.id
    }

    #[inline(always)]
    pub(crate) fn word(&self, word: usize) -> &'y AtomicU64 {
        self.words.at(word)
    }

    /// Tells the platform that a word of the space's state is used.
    #[inline(always)]
    pub(crate) fn tell(&self, word: &AtomicU64, access: Access) {
        self.vm.yard().platform().touch_line(SharedLine::of(LineKind::SpaceState, word), access);
    }

    /// The lock of its areas and page tables.
    #[inline(always)]
    pub(crate) fn map_lock(&self) -> MapLock<'y, P> {
        let id = LockId::AddressSpace(self.id.bits() as u32);
        MapLock::new(self.vm.yard().platform(), id, self.word(SpaceWord::MAP_LOCK))
    }

    /// The frame of the topmost page table; `None` before there is one.
    #[inline(always)]
    pub(crate) fn root_table(&self) -> Option<Pfn> {
        let link = self.word(SpaceWord::ROOT_TABLE).load(Ordering::Relaxed);
        self.vm.yard().linked(FrameLink::from_bits(link as u32))
    }

    /// Counts in the space: `PAGE_TABLES` goes up.
    #[inline(always)]
    pub(crate) fn add(&self, word: usize, amount: u64) {
        self.tell(self.word(word), Access::ReadModifyWrite);
        self.word(word).fetch_add(amount, Ordering::Relaxed);
    }

    /// Counts in the space: `PAGE_TABLES` goes down.
    #[inline(always)]
    pub(crate) fn subtract(&self, word: usize, amount: u64) {
        self.tell(self.word(word), Access::ReadModifyWrite);
        let before = self.word(word).fetch_sub(amount, Ordering::Relaxed);
        debug_assert!(before >= amount, "word {word} of a space: {before} less {amount}");
    }

    /// Looks in, as whoever came by a page of it; `None` where the space is dead.
    pub(crate) fn visit(self) -> Option<Visit<'y, P>> {
        self.change_users(|users| (users & HANDLES != 0).then_some(users + VISIT)).then(|| Visit { space: self })
    }

    /// A further handle, where there is one.
    fn get_handle(self) -> bool {
        self.change_users(|users| (users & HANDLES != 0 && users & HANDLES != HANDLES).then_some(users + 1))
    }

    /// Puts a handle, and waits for visitors if it was the last.
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
            self.vm.yard().platform().relax(round);
        }
        Put::Visited
    }

    /// Takes the last handle back that was put while there were visitors: the space lives on.
    fn take_handle_back(self) {
        // Release: pairs with the Acquire in `change_users`. No other handle exists, so the count has not changed meanwhile.
        self.word(SpaceWord::USERS).fetch_add(1, Ordering::Release);
    }

    /// Leaves a space whose last handle was put to the last of its visitors; `false` where the last one has gone: the
    /// caller has the space alone.
    fn leave(self) -> bool {
        let leave = |users| (users != 0).then_some(users | LEFT);
        // Acquire, on failure: pairs with the Release in `Visit::drop`. Release: pairs with the Acquire there.
        self.word(SpaceWord::USERS).fetch_update(Ordering::Release, Ordering::Acquire, leave).is_ok()
    }

    fn change_users(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        // Acquire: pairs with the Release in `create_space`.
        self.word(SpaceWord::USERS).fetch_update(Ordering::Acquire, Ordering::Relaxed, change).is_ok()
    }
}

/// Somebody who found a space by a page of it looks in. The space stays until this is dropped, without a spinning lock held.
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
        // Release: pairs with the Acquire in `put_handle` and `leave`. Acquire: pairs with the Release in `leave`, and with
        // that of the visitors before.
        let before = self.space.word(SpaceWord::USERS).fetch_sub(VISIT, Ordering::AcqRel);
        if before == VISIT | LEFT {
            self.space.take_down_left();
        }
    }
}

impl<P: Platform> fmt::Debug for Visit<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.space.fmt(f)
    }
}

/// How an address is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryAccess {
    /// Read.
    Read,
    /// Written.
    Write,
}
