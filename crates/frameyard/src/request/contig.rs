//! Contiguous ranges of any length, taken from memory that may be in use: requests with a range, an alignment or an
//! area.
//!
//! # Protocol
//!
//! 1. The page structures of the range's pageblocks are initialised if necessary. If a block in the range cannot move,
//!    the request fails here.
//! 2. The zone is quiesced: from now on the per-CPU lists transfer page by page, and transfers under other policies
//!    have finished ([`transfer`](crate::store)). Then the pageblocks are isolated one by one, each under the
//!    zone lock. Nothing is allocated from their free lists, and frames freed there stay there
//!    ([`zone::isolate`](crate::zone)). A request that finds a pageblock isolated gives up and undoes its own
//!    isolation, so two requests never work on the same frame.
//! 3. Each round drains the per-CPU lists. For every counted block of the range, the owner isolates the block and moves
//!    it to a block allocated elsewhere, and the old block is freed into its isolated pageblock. No lock of the yard is
//!    held meanwhile. Then one acquisition of the zone lock takes the whole range, if every frame of it is on an
//!    Isolate list. What is read without the lock only decides what to try next.
//! 4. The pageblocks get their types back when [`Isolation`] is dropped, whatever the outcome.
//!
//! # Races and termination
//!
//! - A CPU that read a pageblock's type before the isolation can free a frame onto a per-CPU list, from where it may be
//!   allocated again. The next round finds it, on the list or in use.
//! - A target can come from such a list, too. If a target is inside the isolated pageblocks, the request frees it and
//!   allocates another.
//! - Apart from this, the number of frames in use in the range only falls, as frames are moved or freed by their users.
//!   A round that reaches no new minimum is idle. After [`IDLE_ROUNDS`] idle rounds in a row the request fails and
//!   reports a block that is still in the way. So it always ends, however long the range is.

use crate::gfp::Gfp;
use crate::owners::{Block, MigrateProblem, OwnerKind, Owners};
use crate::page::FrameState;
use crate::platform::Platform;
use crate::store::buddy::{RangeBlocked, RangeLists};
use crate::store::{self, Quiescence, TransferStalled};
use crate::units::{MigrateType, Order, Pfn, PfnRange, ZoneId};
use crate::yard::{AllocError, BlockedBy, Blocker, Yard};
use crate::zone::Patience;

mod moving;
mod obstacle;
mod search;
mod targets;

use moving::Sources;
use obstacle::Cover;
use targets::TargetWalk;

/// After this many rounds in a row without progress the request reports the block in the way.
const IDLE_ROUNDS: u32 = if cfg!(loom) { 1 } else { 16 };
/// The waiting rounds between two idle rounds, by patience: together they stay within [`Patience::rounds`].
const fn looks(patience: Patience) -> u32 {
    match patience {
        _ if cfg!(loom) => 1,
        Patience::Spins => 2,
        Patience::Sleeps => 32,
    }
}
/// How often a target that lies in the isolated pageblocks, or memory that is missing, is asked for again.
const TARGET_TRIES: usize = 8;

/// Flags for the memory that blocks are moved to, by patience.
const fn target_flags(patience: Patience) -> Gfp {
    let sleeps = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);
    match patience {
        Patience::Spins => sleeps.without(Gfp::DIRECT_RECLAIM),
        Patience::Sleeps => sleeps,
    }
}

/// Isolated pageblocks; they get their types back when it is dropped.
struct Isolation<'y, P: Platform> {
    yard: &'y Yard<P>,
    zone: ZoneId,
    /// Whole pageblocks.
    range: PfnRange,
    patience: Patience,
}

impl<'y, P: Platform> Isolation<'y, P> {
    /// Isolates the pageblocks of a range, which begins and ends with them.
    ///
    /// # Errors
    ///
    /// The first pageblock that is isolated already. Those before it have their types back.
    fn new(yard: &'y Yard<P>, zone: ZoneId, range: PfnRange, patience: Patience) -> Result<Self, Pfn> {
        let mut isolation = Self { yard, zone, range: PfnRange { end: range.start, ..range }, patience };
        let view = yard.zone_view(zone);
        for pageblock in yard.pageblocks().starts_in(range) {
            // What mechanisms hold of it returns to the free lists first.
            store::collect_around(view, pageblock);
            if !view.lock().is_ok_and(|mut locked| locked.isolate_pageblock(pageblock)) {
                return Err(pageblock);
            }
            isolation.range.end = pageblock + yard.pageblocks().pages();
        }
        Ok(isolation)
    }
}

impl<P: Platform> Drop for Isolation<'_, P> {
    fn drop(&mut self) {
        for pageblock in self.yard.pageblocks().starts_in(self.range) {
            if let Ok(mut locked) = self.yard.zone_view(self.zone).lock() {
                locked.unisolate_pageblock(pageblock);
            }
        }
    }
}

/// What a round found and did.
#[derive(Default)]
struct Round {
    /// Frames of blocks that are still in the way.
    in_the_way: u64,
    /// The last block that could not be moved this time, of those that are more than busy if there are such. The last one, because
    /// a search goes on behind it: all places between the first and the last hold it.
    blocked: Option<Blocker>,
}

impl Round {
    /// Remembers a block in the way. One that is busy gives way: it says less than one that is pinned.
    fn note(&mut self, blocker: Blocker) {
        self.in_the_way += blocker.order.pages().0;
        if self.blocked.is_none_or(|known| known.why == BlockedBy::Busy || blocker.why != BlockedBy::Busy) {
            self.blocked = Some(blocker);
        }
    }

    /// Remembers a block that its owner does not move now.
    ///
    /// # Errors
    ///
    /// The block, if it will not move later either.
    fn note_failed(&mut self, owner: OwnerKind, block: Block, why: BlockedBy) -> Result<(), Blocker> {
        let blocker = Blocker { owner, ..Blocker::new(block, FrameState::Counted, why) };
        match why {
            BlockedBy::Unmovable | BlockedBy::OutOfMemory => Err(blocker),
            _ => {
                self.note(blocker);
                Ok(())
            }
        }
    }
}

impl<P: Platform> Yard<P> {
    /// Allocates the frames of a range, and has owners move counted blocks out of it (`alloc_contig_range`).
    ///
    /// Owners are called from here, so the caller holds no lock that they take. Watermarks do not apply.
    ///
    /// # Cost
    ///
    /// Takes the zone lock twice for each pageblock, once for each block moved, and once a round while it takes the range.
    pub(crate) fn empty_range(&self, range: PfnRange, gfp: Gfp, owners: &Owners<'_>) -> Result<PfnRange, AllocError> {
        let migrate_type = gfp.migrate_type().ok_or(AllocError::BadFlags(gfp))?;
        self.take_contiguous(range, gfp, migrate_type, owners)
    }

    /// As [`empty_range`](Self::empty_range), with the type that the blocks are tagged with.
    pub(crate) fn take_contiguous(
        &self,
        range: PfnRange,
        gfp: Gfp,
        migrate_type: MigrateType,
        owners: &Owners<'_>,
    ) -> Result<PfnRange, AllocError> {
        let (zone, pageblocks) = self.zone_of_contiguous(range)?;
        self.check_zeroing(range, gfp)?;
        if let Some(obstacle) = self.first_obstacle(range, migrate_type, owners) {
            return Err(AllocError::Blocked(obstacle));
        }
        let patience = Patience::of(gfp);
        if !self.ensure_initialised(pageblocks, patience) {
            return Err(AllocError::NotInitialised(pageblocks));
        }
        let quiescence =
            Quiescence::begin(self.zone_view(zone), patience).map_err(|TransferStalled| AllocError::Stalled(zone))?;
        let isolation = Isolation::new(self, zone, pageblocks, patience)
            .map_err(|pfn| AllocError::Blocked(self.isolated_by_another(pfn)))?;
        self.empty_and_take(&isolation, range, migrate_type, owners)?;
        drop(isolation);
        drop(quiescence);
        self.finish_range(range, migrate_type, gfp)
    }

    /// The zone of a range that may be allocated, and the pageblocks that it lies in.
    fn zone_of_contiguous(&self, range: PfnRange) -> Result<(ZoneId, PfnRange), AllocError> {
        if range.is_empty() {
            return Err(AllocError::Empty);
        }
        let hole = |pfn| {
            let hole = Blocker::new(Block { pfn, order: Order::ZERO }, FrameState::Interior, BlockedBy::Hole);
            AllocError::Blocked(self.devices().page(pfn).map_or(hole, |page| {
                let block = Block { pfn: page.head(), order: page.order() };
                Blocker::new(block, FrameState::Device, BlockedBy::Device)
            }))
        };
        let (memory, zone) = self.tables.range_of(range.start).ok_or(hole(range.start))?;
        if range.end > memory.end {
            let next = self.tables.range_of(memory.end);
            return Err(next.map_or(hole(memory.end), |_| AllocError::NotOneZone(range)));
        }
        let order = self.geometry.pageblock_order();
        let end = range.end.align_up(order).unwrap_or(range.end);
        let pageblocks = PfnRange { start: range.start.align_down(order), end };
        if self.tables.ranges_in(pageblocks).any(|(_, other)| other != zone) {
            return Err(AllocError::NotOneZone(pageblocks));
        }
        Ok((zone, pageblocks))
    }

    /// The blocker that reports a pageblock isolated by another request.
    fn isolated_by_another(&self, pfn: Pfn) -> Blocker {
        let state = self.stats().frame(pfn).map_or(FrameState::Interior, |info| info.state);
        Blocker::new(Block { pfn, order: self.geometry.pageblock_order() }, state, BlockedBy::Busy)
    }

    /// Moves all blocks out of a range of isolated pageblocks, and takes the range.
    fn empty_and_take(
        &self,
        isolation: &Isolation<'_, P>,
        range: PfnRange,
        migrate_type: MigrateType,
        owners: &Owners<'_>,
    ) -> Result<(), AllocError> {
        let view = self.zone_view(isolation.zone);
        let patience = isolation.patience;
        let (mut idle, mut fewest) = (0, u64::MAX);
        // Ends: each round makes the frames in the way fewer than ever, or is one of a few in a row that do not.
        loop {
            self.zone(isolation.zone).drain_for(range, patience);
            let round = self.move_away(isolation, range, owners).map_err(AllocError::Blocked)?;
            let take = || view.take_range(range, RangeLists::Isolated, migrate_type);
            let Err(RangeBlocked { head: pfn, state, order }) = self.take_initialised(isolation.zone, patience, take)
            else {
                return Ok(());
            };
            // What a lock guards that is not taken stays in the way.
            self.platform.lock_error().map_or(Ok(()), |error| Err(AllocError::Lock(error)))?;
            idle = if round.in_the_way < fewest { 0 } else { idle + 1 };
            fewest = fewest.min(round.in_the_way);
            if idle == IDLE_ROUNDS {
                let busy = Blocker::new(Block { pfn, order }, state, BlockedBy::Busy);
                return Err(AllocError::Blocked(round.blocked.unwrap_or(busy)));
            }
            if idle > 0 {
                let looks = looks(patience);
                (0..looks).for_each(|look| patience.wait(&self.platform, (idle - 1) * looks + look));
            }
        }
    }

    /// Has the owners move their blocks out of a range.
    ///
    /// # Errors
    ///
    /// A block that cannot move.
    fn move_away(&self, isolation: &Isolation<'_, P>, range: PfnRange, owners: &Owners<'_>) -> Result<Round, Blocker> {
        let mut round = Round::default();
        let mut sources: Option<Sources<'_>> = None;
        let mut walk = TargetWalk::default();
        let mut at = range.start;
        while at < range.end {
            let cover = self.cover_of(at, owners);
            at = cover.end().max(Pfn(at.0 + 1));
            match cover {
                Cover::Free(_) => {}
                Cover::Fixed(blocker) => return Err(blocker),
                Cover::Passing(blocker) => round.note(blocker),
                Cover::Owned(block, kind) => {
                    let Some(owner) = owners.of(kind) else { continue };
                    if let Some(full) = sources.take_if(|sources| !sources.have_room(kind)) {
                        self.move_together(isolation, full, &mut walk, &mut round, owners)?;
                    }
                    let isolated = sources
                        .get_or_insert_with(|| Sources::of(kind, owner))
                        .isolate(block, isolation.patience.mode());
                    isolated.or_else(|problem| round.note_failed(kind, block, reason(problem)))?;
                }
            }
        }
        sources.map_or(Ok(()), |sources| self.move_together(isolation, sources, &mut walk, &mut round, owners))?;
        Ok(round)
    }
}

fn reason(problem: MigrateProblem) -> BlockedBy {
    match problem {
        MigrateProblem::Pinned => BlockedBy::Pinned,
        MigrateProblem::Unmovable => BlockedBy::Unmovable,
        MigrateProblem::Failed => BlockedBy::Failed,
        // Gone: whatever it is by now, the next round will see.
        MigrateProblem::Gone | MigrateProblem::Busy => BlockedBy::Busy,
    }
}
