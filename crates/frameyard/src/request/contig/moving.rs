//! Moving blocks out of a range, several at a time.
//!
//! Moving one frame misses the cache in many places: the page structures of both frames, their bytes in the allocation
//! map, and the stores of the copy, which the next atomic operation waits for. So blocks are moved in batches. First up
//! to [`BATCH`] blocks of one owner are isolated. One hold of the zone lock then takes their
//! [targets](crate::request::contig::targets), one call asks the owner to move all of them, and one hold frees their
//! old places.

use crate::boot::{PageChecks, Poisoning};
use crate::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, Move, OwnerKind, Owners};
use crate::platform::Platform;
use crate::request::contig::targets::TargetWalk;
use crate::request::contig::{BlockedBy, Blocker, Isolation, Round, reason};
use crate::store;
use crate::store::batch::{BATCH, Batch};
use crate::units::{Order, Pfn};
use crate::yard::Yard;
use crate::zone::fixed_vec::FixedVec;
use crate::zone::poison;

/// Blocks that their owner has isolated. It gets those back that are left when this is dropped.
pub(super) struct Sources<'o> {
    kind: OwnerKind,
    owner: &'o dyn FrameOwner,
    blocks: FixedVec<Block, BATCH>,
}

impl<'o> Sources<'o> {
    pub(super) fn of(kind: OwnerKind, owner: &'o dyn FrameOwner) -> Self {
        Self { kind, owner, blocks: FixedVec::new() }
    }

    /// Whether there is room for a block of an owner.
    pub(super) fn have_room(&self, kind: OwnerKind) -> bool {
        self.kind == kind && !self.blocks.is_full()
    }

    /// Has the owner isolate a block; there is room.
    pub(super) fn isolate(&mut self, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem> {
        self.owner.isolate(block, mode).map(|()| self.blocks.push(block))
    }
}

impl Drop for Sources<'_> {
    fn drop(&mut self) {
        self.blocks.iter().for_each(|block| self.owner.put_back(*block));
    }
}

impl<P: Platform> Yard<P> {
    /// Has the owner of isolated blocks move them out of the isolated pageblocks, and frees their old places there.
    ///
    /// # Errors
    ///
    /// The first block that cannot move. The owner has that one back, and all that did not move.
    pub(super) fn move_together(
        &self,
        isolation: &Isolation<'_, P>,
        mut sources: Sources<'_>,
        walk: &mut TargetWalk,
        round: &mut Round,
        owners: &Owners<'_>,
    ) -> Result<(), Blocker> {
        let Sources { kind, owner, ref mut blocks } = sources;
        let singles = blocks.iter().filter(|block| block.order == Order::ZERO).count();
        let mut targets = self.take_targets(isolation, walk, singles);
        let (mut moves, mut failed) = (FixedVec::<Move, BATCH>::new(), Ok(()));
        for from in blocks.iter().copied() {
            let ready = if from.order == Order::ZERO { targets.pop() } else { None };
            let target = ready.or_else(|| failed.is_ok().then(|| self.target_for(isolation, from, owners))?);
            if let Some(to) = target {
                moves.push(Move { from, to, problem: None });
            } else {
                owner.put_back(from);
                failed = failed.and(round.note_failed(kind, from, BlockedBy::OutOfMemory));
            }
        }
        blocks.clear();
        owner.migrate_all(&mut moves, isolation.patience.mode());
        let mut vacated = Batch::new();
        for Move { from, to, problem } in moves.iter().copied() {
            if let Some(problem) = problem {
                owner.put_back(from);
                self.release(to, from.order);
                failed = failed.and(round.note_failed(kind, from, reason(problem)));
            } else if from.order > Order::ZERO {
                self.release(from.pfn, from.order);
            } else if self.take_vacated(from.pfn) {
                vacated.push(self.map.index(from.pfn));
            }
        }
        store::give_back_isolated(self.zone_view(isolation.zone), &vacated);
        failed
    }

    /// Ends the allocation of a frame that its owner has left. `false` if it must not be freed.
    fn take_vacated(&self, pfn: Pfn) -> bool {
        // A bad free may have won the frame.
        let is_ours = self.allocation_map().clear_allocated(&self.platform, pfn, Order::ZERO).is_some();
        if !is_ours || (self.checks == PageChecks::All && !self.is_free_block_good(pfn, Order::ZERO)) {
            return false;
        }
        if self.poisoning == Poisoning::On {
            // SAFETY: the frame is no longer allocated and on no list yet: it is the caller's.
            unsafe { poison::fill(&self.platform, self.geometry, pfn, Order::ZERO) };
        }
        true
    }
}
