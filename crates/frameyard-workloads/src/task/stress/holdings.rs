//! The blocks that a task holds. Every frame is marked in the shared state from its allocation to its free.

use std::fmt;

use fastrand::Rng;
use frameyard::{AllocError, FreeError, Gfp, Order, PageCount, Pfn, PfnRange};
use frameyard_host::{HostPlatform, HostYard};

use super::shared_state::{Block, Conflict, Holder, SharedState, Tally};

/// A yard, through any view.
pub(crate) type Yard = frameyard::Yard<HostPlatform>;

/// The most frames of a bulk request.
const BULK: usize = 64;
/// The longest range without a fixed place.
const EXACT: u64 = 600;
/// The longest range at a fixed place.
const RANGE: u64 = 64;
/// The largest order that is split into single frames.
const SPLIT: u8 = 4;

/// A request for a single frame that fails while one part in this number of memory is free fails too early.
const EARLY_PART: u64 = 4;

/// A fault of the yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The mark of a frame is wrong.
    Conflict(Conflict),
    /// A request failed for another reason than a lack of memory.
    Alloc(AllocError),
    /// A range failed for another reason than being in use.
    Range(AllocError),
    /// A free failed.
    Free(FreeError),
    /// A held block is not allocated.
    NotAllocated(Block),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::Alloc(error) => write!(f, "a request was refused: {error}"),
            Self::Range(error) => write!(f, "a range was refused: {error}"),
            Self::Free(error) => error.fmt(f),
            Self::NotAllocated(Block { pfn, order, .. }) => {
                write!(f, "the block at {pfn}, {order}, is held, but not allocated in the yard")
            }
        }
    }
}

impl std::error::Error for Fault {}

impl From<Conflict> for Fault {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl From<FreeError> for Fault {
    fn from(error: FreeError) -> Self {
        Self::Free(error)
    }
}

/// The blocks of a task.
pub(crate) struct Holdings<'a> {
    yard: &'a Yard,
    state: &'a SharedState,
    holder: Holder,
    held: Vec<Block>,
    frames: u64,
    /// A frame that was recently allocated or freed.
    recent: Pfn,
    pub(crate) tally: Tally,
}

impl<'a> Holdings<'a> {
    pub(crate) fn new(yard: &'a Yard, state: &'a SharedState, holder: Holder) -> Self {
        let recent = yard.frame_range().start;
        Self { yard, state, holder, held: Vec::new(), frames: 0, recent, tally: Tally::default() }
    }

    /// Number of held frames.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    fn hold(&mut self, pfn: Pfn, order: Order) -> Result<(), Fault> {
        let block = Block { pfn, order, holder: self.holder };
        self.state.claim(block)?;
        self.held.push(block);
        self.frames += order.pages().0;
        self.tally.allocations += 1;
        Ok(())
    }

    /// Holds a range as the blocks that it consists of.
    fn hold_range(&mut self, mut range: PfnRange) -> Result<(), Fault> {
        while let Some(order) = range.first_block(self.yard.geometry().max_order()) {
            self.hold(range.start, order)?;
            range.start = range.start + order.pages();
        }
        Ok(())
    }

    /// Counts a lack of memory. Any other error is a fault.
    fn refused<T>(&mut self, error: AllocError) -> Result<Option<T>, Fault> {
        let AllocError::OutOfMemory { order, gfp, .. } = error else { return Err(Fault::Alloc(error)) };
        self.tally.out_of_memory += 1;
        // Any frame would have served the request, and it could have drained the lists of other CPUs.
        let takes_any = order == Order::ZERO && (gfp | Gfp::NOWARN) == (Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN);
        if takes_any && self.yard.stats().free_pages().0 > self.yard.stats().managed_pages().0 / EARLY_PART {
            self.tally.out_of_memory_early += 1;
        }
        Ok(None)
    }

    /// Allocates a block. `None` if there is no memory.
    pub(crate) fn alloc(&mut self, order: Order, gfp: Gfp) -> Result<Option<()>, Fault> {
        match self.yard.alloc(order, gfp) {
            Ok(pfn) => {
                self.recent = pfn;
                self.hold(pfn, order).map(Some)
            }
            Err(error) => self.refused(error),
        }
    }

    /// Allocates single frames in bulk.
    pub(crate) fn bulk(&mut self, random: &mut Rng, gfp: Gfp) -> Result<Option<()>, Fault> {
        let mut frames = [Pfn(0); BULK];
        let wanted = random.usize(1..=BULK);
        match self.yard.alloc_bulk(gfp, &mut frames[..wanted]) {
            Ok(got) => frames[..got].iter().try_for_each(|pfn| self.hold(*pfn, Order::ZERO)).map(Some),
            Err(error) => self.refused(error),
        }
    }

    /// Allocates a block, splits it, and holds its frames one by one.
    pub(crate) fn split(&mut self, random: &mut Rng, gfp: Gfp) -> Result<Option<()>, Fault> {
        let order = Order(random.u8(1..=SPLIT));
        let pfn = match self.yard.alloc(order, gfp) {
            Ok(pfn) => pfn,
            Err(error) => return self.refused(error),
        };
        self.yard.split(pfn, order)?;
        (0..order.pages().0).try_for_each(|offset| self.hold(pfn + PageCount(offset), Order::ZERO)).map(Some)
    }

    /// Allocates a range of any length.
    pub(crate) fn exact(&mut self, random: &mut Rng, gfp: Gfp) -> Result<Option<()>, Fault> {
        match self.yard.request(PageCount(random.u64(1..=EXACT)), gfp).range() {
            Ok(range) => {
                self.tally.exact += 1;
                self.hold_range(range).map(Some)
            }
            Err(error) => self.refused(error),
        }
    }

    /// Requests a given range near a recently used frame.
    pub(crate) fn range(&mut self, random: &mut Rng, gfp: Gfp) -> Result<Option<()>, Fault> {
        let start = Pfn((self.recent.0 ^ random.u64(..1024)).max(self.yard.frame_range().start.0));
        let range = PfnRange::new(start, PageCount(random.u64(1..=RANGE)));
        match self.yard.request(range, gfp).range() {
            Ok(range) => {
                self.tally.ranges += 1;
                self.hold_range(range).map(Some)
            }
            Err(AllocError::InUse { .. } | AllocError::NotOneZone(_)) => {
                self.tally.ranges_refused += 1;
                Ok(None)
            }
            Err(error) => Err(Fault::Range(error)),
        }
    }

    /// Removes one of the blocks: a random one in three of four cases, else the latest.
    fn take(&mut self, random: &mut Rng) -> Option<Block> {
        if self.held.is_empty() {
            return None;
        }
        let block = match random.u8(..4) {
            0 => self.held.pop()?,
            _ => self.held.swap_remove(random.usize(..self.held.len())),
        };
        self.frames -= block.order.pages().0;
        Some(block)
    }

    fn free(&mut self, block: Block) -> Result<(), Fault> {
        self.state.release(block)?;
        self.yard.free(block.pfn, block.order)?;
        self.recent = block.pfn;
        self.tally.frees += 1;
        self.tally.freed_for_others += u64::from(block.holder != self.holder);
        Ok(())
    }

    /// Frees a block.
    pub(crate) fn free_one(&mut self, random: &mut Rng) -> Result<(), Fault> {
        self.take(random).map_or(Ok(()), |block| self.free(block))
    }

    /// Leaves a block in a slot for another task, and frees the block that was there.
    pub(crate) fn hand_over(&mut self, random: &mut Rng) -> Result<(), Fault> {
        let Some(block) = self.take(random) else { return Ok(()) };
        let taken = self.state.swap_slot(random.usize(..), block);
        taken.map_or(Ok(()), |block| self.free(block))
    }

    /// Frees all blocks.
    pub(crate) fn free_all(&mut self) -> Result<(), Fault> {
        while let Some(block) = self.held.pop() {
            self.frames -= block.order.pages().0;
            self.free(block)?;
        }
        Ok(())
    }

    /// Checks all held blocks against the shared state and the yard.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        for block in &self.held {
            self.state.check(*block)?;
            if !self.yard.stats().is_allocated(block.pfn, block.order) {
                return Err(Fault::NotAllocated(*block));
            }
        }
        Ok(())
    }
}

/// Frees a range that [`claim_range`] has marked.
pub(crate) fn free_range(yard: &HostYard, state: &SharedState, range: PfnRange) -> Result<(), Fault> {
    blocks(yard, range).try_for_each(|block| state.release(block))?;
    Ok(yard.free_range(range)?)
}

/// Marks a range that the controller has allocated.
pub(crate) fn claim_range(yard: &HostYard, state: &SharedState, range: PfnRange) -> Result<(), Fault> {
    Ok(blocks(yard, range).try_for_each(|block| state.claim(block))?)
}

fn blocks(yard: &HostYard, mut range: PfnRange) -> impl Iterator<Item = Block> {
    let max = yard.geometry().max_order();
    std::iter::from_fn(move || {
        let order = range.first_block(max)?;
        let block = Block { pfn: range.start, order, holder: Holder::CONTROLLER };
        range.start = range.start + order.pages();
        Some(block)
    })
}
