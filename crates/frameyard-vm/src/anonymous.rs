//! Migration of pages of address spaces.
//!
//! # Reverse mapping
//!
//! The page of an anonymous block names its space (owner's word) and its address (index). It has exactly one mapping,
//! unless its huge mapping was split while it was pinned. A walk from the root of that space therefore finds the entry.
//! A block with more mappings is split into single pages instead of moved; a later attempt can move those.
//!
//! # Protocol
//!
//! The caller has isolated the block: it holds a reference, and the block is on no list. The migration does, in this
//! order:
//!
//! 1. *Visit* the space. A dead space is being torn down, and the page with it.
//! 2. Try to take the map lock for reading. It only tries, because an allocating caller may hold a map lock already,
//!    and a writer may wait.
//! 3. Under the lock of the table: if the entry maps this block, replace it by a *moving* entry.
//! 4. *Freeze* the block's counts, if they are exactly the mapping's and the isolator's reference.
//! 5. Copy the bytes.
//! 6. Make `to` a counted block of the same owner and place, with a reference of the mapping and one for a batch.
//! 7. Under the lock of the table: replace the moving entry by one for `to` with the old flags.
//! 8. Return `from` to the caller as an allocated block. The caller adds `to` to a list with the reference for a batch.
//!
//! A failure before step 7 undoes the earlier steps in reverse order. Steps 7 and 8 cannot fail.
//!
//! # Races
//!
//! - **Accesses** to bytes hold the table's lock and check the entry under it. After step 3 no CPU accesses the bytes
//!   of `from`; before step 7 no CPU accesses those of `to`. The lock orders writes before step 3 before the copy, and
//!   writes after step 7 go to `to`. No write is lost.
//! - **Pins** are references. Pins taken under the table's lock come before step 3 and make step 4 fail, or come after
//!   step 7. Pins taken without it ([pins](crate::pin)) come before step 4 and make it fail, or see the changed entry
//!   and release their references.
//! - **Faults** that find the moving entry wait without the table's lock, with a bound. They hold the map lock for
//!   reading, which step 7 does not need to take again.
//! - **Look-ups by frame number** (a scanner, a list) try to take a reference. Before step 4 it makes the freeze fail,
//!   and the migration retries or stops. After step 4 they get none, like for a block that is being freed.
//! - **Unmap and split** hold the map lock for writing, so they come before step 2 or after step 8 and never see a
//!   moving entry.
//! - **Exit** of the space waits for visits. A space that died before step 1 cannot be visited.
//! - **Another migration** of the same block: a block has only one isolator.

use frameyard::owners::{Block, MigrateMode, MigrateProblem, Ownership};
use frameyard::page::{CountedPage, Counts};
use frameyard::{Order, Pfn, Platform};

use crate::error::Damage;
use crate::inject::Step;
use crate::lock::Reading;
use crate::page::{Flags, PageKind, object_of, owner_word};
use crate::space::{SpaceRef, Visit};
use crate::table::{Entry, HUGE, Level, LockedTable, Spot};
use crate::vm::Vm;
use crate::words::FrameBytes;

/// Attempts of a migration that may wait: all rounds pause or yield. It must not sleep, because allocations wait for
/// the memory it frees.
const SYNC_TRIES: u32 = if cfg!(loom) { 2 } else { 32 };

/// The counts of an isolated block: its mapping, and the isolator.
const EXPECTED: Counts = Counts { references: 2, mappings: 1 };

/// A migration with the entry marked and the counts frozen or about to be.
struct Moving<'a, 'y, P: Platform> {
    space: &'a SpaceRef<'y, P>,
    spot: Spot<'y>,
    /// The entry before the mark.
    before: Entry,
    from: CountedPage<'y, P>,
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Moves an isolated block of an address space to the frozen block at `to`, as the module describes. On success `from`
    /// belongs to the caller as if just allocated, and `to` to the space.
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`]: `from` is still isolated, and `to` still frozen.
    pub(crate) fn migrate_anonymous(
        &self,
        from: Block,
        to: FrameBytes<'y, P>,
        mode: MigrateMode,
    ) -> Result<(), MigrateProblem> {
        let page = self.try_page(from.pfn).ok_or(MigrateProblem::Gone)?;
        let word = page.owner();
        let level = match from.order {
            Order::ZERO => Level::SMALL,
            HUGE => Level::HUGE,
            _ => return Err(MigrateProblem::Unmovable),
        };
        if PageKind::of_word(word) != Some(PageKind::Anonymous) {
            return Err(MigrateProblem::Gone);
        }
        if page.maybe_pinned() {
            return Err(MigrateProblem::Pinned);
        }
        let failed = |_| MigrateProblem::Failed;
        self.may_fail(Step::Visit).map_err(failed)?;
        let space = SpaceRef::new(*self, object_of(word)).map_err(failed)?;
        let visit = space.visit().ok_or(MigrateProblem::Gone)?;
        self.may_fail(Step::ReadMap).map_err(failed)?;
        let _reading = self.read_map(&visit, mode).ok_or(MigrateProblem::Busy)?;
        let moving = visit.begin_move(page, level)?;
        self.finish_move(&moving, to, from.order, mode)
    }

    fn read_map(&self, space: &Visit<'y, P>, mode: MigrateMode) -> Option<Reading<'y, P>> {
        let lock = space.map_lock();
        let tries = if mode == MigrateMode::Sync { SYNC_TRIES } else { 1 };
        (0..tries).find_map(|round| {
            let reading = lock.try_read();
            if reading.is_none() && tries > 1 {
                self.yard().platform().wait(round);
            }
            reading
        })
    }

    fn finish_move(
        &self,
        moving: &Moving<'_, 'y, P>,
        to: FrameBytes<'y, P>,
        order: Order,
        mode: MigrateMode,
    ) -> Result<(), MigrateProblem> {
        if let Err(problem) = self.freeze(moving, mode) {
            moving.end(moving.from.pfn());
            return Err(problem);
        }
        let new_frame = self.page(to.pfn());
        // The block gets its users under the lock of the table, so that nothing has changed if the lock cannot be taken.
        let filled = self.fill_frozen(moving.from, to, order);
        match filled.and_then(|ownership| moving.replace(new_frame, ownership)) {
            Ok(()) => {
                // SAFETY: this thread froze the counts of the block, and has moved its bytes.
                self.expect(unsafe { self.yard().counted().clear_refs(moving.from.pfn(), order) }, Damage::Frame);
                Ok(())
            }
            Err(problem) => {
                moving.from.unfreeze(EXPECTED);
                moving.end(moving.from.pfn());
                Err(problem)
            }
        }
    }

    fn freeze(&self, moving: &Moving<'_, 'y, P>, mode: MigrateMode) -> Result<(), MigrateProblem> {
        self.may_fail(Step::Freeze).map_err(|_| MigrateProblem::Failed)?;
        let tries = if mode == MigrateMode::Sync { SYNC_TRIES } else { 1 };
        for round in 0..tries {
            if moving.from.freeze(EXPECTED) {
                return Ok(());
            }
            if moving.from.maybe_pinned() {
                return Err(MigrateProblem::Pinned);
            }
            if tries > 1 {
                self.yard().platform().wait(round);
            }
        }
        Err(MigrateProblem::Busy)
    }

    /// Gives `to` the bytes of the frozen block; the state that it gets.
    fn fill_frozen(
        &self,
        from: CountedPage<'y, P>,
        mut to: FrameBytes<'y, P>,
        order: Order,
    ) -> Result<Ownership, MigrateProblem> {
        let failed = |_| MigrateProblem::Failed;
        self.may_fail(Step::Copy).map_err(failed)?;
        // SAFETY: the block is frozen and not mapped, so nothing accesses its bytes.
        let content = unsafe { FrameBytes::new(self.yard(), from.pfn(), order) };
        to.copy_from(&content).map_err(failed)?;
        self.may_fail(Step::Unfreeze).map_err(failed)?;
        let word = from.owner();
        let kept = word & (Flags::ACTIVE | Flags::REFERENCED | Flags::DIRTY);
        let owner = owner_word(PageKind::Anonymous, object_of(word), kept);
        // One reference of the mapping, one for a batch.
        let counts = Counts { references: 2, mappings: 1 };
        Ok(Ownership { counts, owner, index: from.index() })
    }
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Marks the entry of a page. The caller holds the map lock for reading.
    fn begin_move(&self, from: CountedPage<'y, P>, level: Level) -> Result<Moving<'_, 'y, P>, MigrateProblem> {
        self.vm().may_fail(Step::Mark).map_err(|_| MigrateProblem::Failed)?;
        let damaged = |_| MigrateProblem::Failed;
        let spot = self.walk(from.index()).map_err(damaged)?;
        let table = self.lock_table(spot.table).map_err(damaged)?;
        let before = table.entry(spot.index);
        let is_mapped_here = spot.level == level
            && before.is_present()
            && before.pfn() == from.pfn()
            && !before.is_device()
            && !before.is_part();
        if !is_mapped_here {
            drop(table);
            // Parts of the block map it, or nothing does. The parts can be moved one by one in a later attempt.
            if level == Level::HUGE && spot.level == Level::SMALL && self.split_parts(from, spot.table) {
                return Err(MigrateProblem::Busy);
            }
            let mapped = from.counts().mappings > 0;
            return Err(if mapped { MigrateProblem::Busy } else { MigrateProblem::Gone });
        }
        table.set(spot.index, before.moving());
        drop(table);
        Ok(Moving { space: self, spot, before, from })
    }
}

impl<'y, P: Platform> Moving<'_, 'y, P> {
    /// Ends the migration: the entry maps the page in frame `at`. If the lock of the table cannot be taken, the entry stays as it
    /// is, and accesses fail.
    fn end(&self, at: Pfn) {
        if let Ok(table) = self.space.lock_table(self.spot.table) {
            self.set(&table, at);
        }
    }

    /// Ends the migration: `to` gets its users, and the entry maps it.
    fn replace(&self, to: CountedPage<'y, P>, ownership: Ownership) -> Result<(), MigrateProblem> {
        let table = self.space.lock_table(self.spot.table).map_err(|_| MigrateProblem::Failed)?;
        self.space.vm().unfreeze_as(to, ownership);
        self.set(&table, to.pfn());
        Ok(())
    }

    fn set(&self, table: &LockedTable<'y, P>, at: Pfn) {
        if table.entry(self.spot.index) != self.before.moving() {
            // A moving entry stays unchanged.
            self.space.vm().damaged(Damage::Entry);
        }
        table.set(self.spot.index, self.before.moved(at));
    }
}

mod ageing;
#[cfg(test)]
mod tests;

pub(crate) use ageing::Use;
