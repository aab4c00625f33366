//! Moving pages of address spaces to other frames.
//!
//! # Reverse mapping
//!
//! The page of an anonymous block names its space (owner's word) and its address (index). It has exactly one mapping, unless
//! its huge mapping was split while it was pinned. So there is one entry to find, by a walk from the top of that space. A
//! block with more of them is split into single pages instead of being moved; they can be moved then.
//!
//! # Protocol
//!
//! The caller has isolated the block: he has a reference, and it is on no list. Then, in this order:
//!
//! 1. *Visit* the space. A dead one is being taken down, and the page with it.
//! 2. Take the map lock for reading, by trying: who allocates holds one already, and a writer may wait.
//! 3. Under the lock of the table: if the entry maps this block, exchange it for one that is *moving*.
//! 4. *Freeze* the block's counts, if they are exactly the mapping's and the isolator's reference.
//! 5. Copy the bytes.
//! 6. Make `to` a counted block of the same owner and place, with the references of a mapping and of a batch.
//! 7. Under the lock of the table: exchange the moving entry for one of `to`, with the flags that it had.
//! 8. `from` is the caller's, allocated; the reference for a batch is his, too, and takes `to` to a list.
//!
//! Whatever fails up to 6 is undone in reverse order; 7 and 8 cannot fail.
//!
//! # Who sees what
//!
//! - **Access** to bytes holds the table's lock and looks at the entry under it. After 3 nobody is at the bytes of `from`, and
//!   nobody comes to them any more; before 7 nobody is at those of `to`. What was written before 3 is copied, by that lock;
//!   what is written after 7 goes to `to`. So no write is lost.
//! - **Pins** are references. Those taken under the table's lock come before 3, and make 4 fail, or after 7. Those taken
//!   without it ([pins](crate::pin)) come before 4, and make it fail, or find the entry changed and are given back.
//! - **Faults** that find the moving entry wait without the table's lock, for a bounded time. They hold the map lock for
//!   reading, which step 7 does not need to take again.
//! - **Whoever finds the block by number** (a scanner, a list) tries to get a reference: before 4 that makes the freeze fail,
//!   and it is tried again or given up; after 4 he gets none, of `from` as of a block that is being freed.
//! - **Unmapping and splitting** hold the map lock for writing, so they come before 2 or after 8, and never meet a moving entry.
//! - **Exit** of the space: visits are waited for. A space that died before 1 cannot be visited.
//! - **Another move** of the same block: isolated once only.

use frameyard::owners::{Adoption, Block, MigrateMode, MigrateProblem};
use frameyard::page::{CountedPage, Counts};
use frameyard::{Order, Pfn, Platform};

use crate::inject::Step;
use crate::lock::Reading;
use crate::page::{Flags, PageKind, object_of, owner_word};
use crate::space::{SpaceRef, Visit};
use crate::table::{Entry, HUGE, Level, Spot};
use crate::vm::Vm;
use crate::words;

/// How often a move that may wait tries to get in. As many rounds as pause or yield: it must not sleep, for others wait for
/// the memory that it makes.
const SYNC_TRIES: u32 = if cfg!(loom) { 2 } else { 32 };

/// The users of a block that is moved: its mapping, and who has isolated it.
const EXPECTED: Counts = Counts { references: 2, mappings: 1 };

/// A page that is being moved: its entry says so, and its users are frozen or not yet.
struct Moving<'a, 'y, P: Platform> {
    space: &'a SpaceRef<'y, P>,
    spot: Spot<'y>,
    /// The entry as it was.
    before: Entry,
    from: CountedPage<'y, P>,
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Moves an isolated block of an address space to the block at `to`: see the module's protocol. On success `from` is the
    /// caller's as if just allocated, and `to` is the space's.
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`]: `from` is still isolated, and `to` still the caller's.
    pub(crate) fn migrate_anonymous(&self, from: Block, to: Pfn, mode: MigrateMode) -> Result<(), MigrateProblem> {
        let page = self.page(from.pfn);
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
        let visit = SpaceRef::new(*self, object_of(word)).visit().ok_or(MigrateProblem::Gone)?;
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
                self.yard().platform().relax(round);
            }
            reading
        })
    }

    fn finish_move(
        &self,
        moving: &Moving<'_, 'y, P>,
        to: Pfn,
        order: Order,
        mode: MigrateMode,
    ) -> Result<(), MigrateProblem> {
        if let Err(problem) = self.freeze(moving, mode) {
            moving.end(moving.from.pfn());
            return Err(problem);
        }
        match self.fill_frozen(moving.from, to, order) {
            Ok(()) => {
                moving.end(to);
                let disowned = self.yard().disown(moving.from.pfn(), order);
                debug_assert!(disowned.is_ok(), "who has frozen a block has it alone: {disowned:?}");
                Ok(())
            }
            Err(problem) => {
                moving.from.thaw(EXPECTED);
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
                self.yard().platform().relax(round);
            }
        }
        Err(MigrateProblem::Busy)
    }

    /// Makes `to` what the frozen block is.
    fn fill_frozen(&self, from: CountedPage<'y, P>, to: Pfn, order: Order) -> Result<(), MigrateProblem> {
        self.may_fail(Step::Copy).map_err(|_| MigrateProblem::Failed)?;
        // SAFETY: the block is frozen and not mapped, so nothing writes to it; `to` is a fresh block of this thread.
        if !unsafe { words::copy(self.yard(), from.pfn(), to, order) } {
            return Err(MigrateProblem::Failed);
        }
        self.may_fail(Step::Thaw).map_err(|_| MigrateProblem::Failed)?;
        let word = from.owner();
        let kept = word & (Flags::ACTIVE | Flags::REFERENCED | Flags::DIRTY);
        let owner = owner_word(PageKind::Anonymous, object_of(word), kept);
        // One reference is the mapping's, one is for the batch that puts it on a list.
        let counts = Counts { references: 2, mappings: 1 };
        let adopted = self.yard().adopt(to, order, Adoption { counts, owner, index: from.index() });
        adopted.map_err(|_| MigrateProblem::Failed)
    }
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Marks the entry of a page as moving. The caller has the map lock for reading.
    fn begin_move(&self, from: CountedPage<'y, P>, level: Level) -> Result<Moving<'_, 'y, P>, MigrateProblem> {
        self.vm().may_fail(Step::Mark).map_err(|_| MigrateProblem::Failed)?;
        let spot = self.walk(from.index());
        let table = self.lock_table(spot.table);
        let before = table.entry(spot.index);
        let is_its = spot.level == level
            && before.is_present()
            && before.pfn() == from.pfn()
            && !before.is_device()
            && !before.is_part();
        if !is_its {
            drop(table);
            // Mapped by parts of its block, or not at all any more. The parts can be moved by themselves, the next time.
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

impl<P: Platform> Moving<'_, '_, P> {
    /// Lets everybody at the page again, in the frame where it is now.
    fn end(&self, at: Pfn) {
        let table = self.space.lock_table(self.spot.table);
        debug_assert_eq!(table.entry(self.spot.index), self.before.moving(), "nobody touches a moving entry");
        table.set(self.spot.index, self.before.moved(at));
    }
}

mod ageing;
#[cfg(test)]
mod tests;

pub(crate) use ageing::Use;
