//! Why a contiguous range was not allocated, and which frame was in the way.

use core::fmt;

use crate::gfp::Gfp;
use crate::owners::OwnerKind;
use crate::page::FrameState;
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange, ZoneId, named};

/// Why a block could not be moved out of a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BlockedBy {
    /// It has users that nobody can find, and they stayed for as long as was waited.
    Pinned,
    /// It cannot be moved: it has no owner that could be asked, or the owner says so.
    Unmovable,
    /// It was never given to the allocator.
    Reserved,
    /// It lies in a contiguous memory area, which gives frames out itself ([`Yard::cma_alloc`](crate::Yard::cma_alloc)).
    Area,
    /// There is no memory.
    Hole,
    /// It is a device's.
    Device,
    /// Somebody else was at work on it for as long as was waited, or is isolating the same pageblock.
    Busy,
    /// There was no memory to move it to.
    OutOfMemory,
    /// Its owner failed to move it, each time it was asked.
    Failed,
}

named!(
    BlockedBy: Pinned => "pinned", Unmovable => "unmovable", Reserved => "reserved", Area => "area", Hole => "hole", Device => "device", Busy => "busy",
    OutOfMemory => "out-of-memory", Failed => "failed"
);

impl BlockedBy {
    /// What a message says of the block.
    const fn phrase(self) -> &'static str {
        match self {
            Self::Pinned => "pinned: it can be moved when its pins are gone",
            Self::Unmovable => "unmovable: it would have to be freed",
            Self::Reserved => "reserved",
            Self::Area => "in a contiguous memory area",
            Self::Device => "a device's: it is not for allocation",
            Self::Hole => "in a hole: there is no memory",
            Self::Busy => "busy: somebody else is at work on it",
            Self::OutOfMemory => "in use, and there is no memory to move it to",
            Self::Failed => "in use, and its owner failed to move it",
        }
    }
}

/// A block that kept a range from being allocated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Blocker {
    /// Its first frame; the frame itself in a hole, or where no block covers it.
    pub pfn: Pfn,
    /// Its order.
    pub order: Order,
    /// What it was when it was looked at.
    pub state: FrameState,
    /// Who owns it, where its users are counted.
    pub owner: OwnerKind,
    /// Why it stays.
    pub why: BlockedBy,
}

impl Blocker {
    /// The frames of the block.
    #[must_use]
    pub fn frames(self) -> PfnRange {
        PfnRange::new(self.pfn, self.order.pages())
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pfn, order, state, owner, why } = self;
        write!(f, "the block at {pfn} ({order}, {state}")?;
        if *owner != OwnerKind::NONE {
            write!(f, ", {owner}")?;
        }
        write!(f, ") is {}", why.phrase())
    }
}

/// Why no contiguous range was allocated. Pageblock types, free lists and counts are as before; blocks that were moved
/// on the way stay where they are now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ContigError {
    /// The range is empty.
    Empty,
    /// The range, or one of its pageblocks, lies in several zones.
    NotOneZone(PfnRange),
    /// MOVABLE together with RECLAIMABLE.
    BadFlags(Gfp),
    /// There is no memory for the page structures of some frames of the range, or whoever initialises them has come to
    /// a halt.
    NotInitialised(PfnRange),
    /// ZERO was asked for, but the frames have no memory behind them.
    NoFrameBytes(Pfn),
    /// No such node.
    NoSuchNode(NodeId),
    /// A frame was written to while it was free. Its block is put aside, as is every other damaged block of the range.
    Poisoned {
        /// The first such frame.
        pfn: Pfn,
        /// Its block.
        block: Pfn,
        /// The block's order.
        order: Order,
    },
    /// Somebody in the zone did not finish in time what has to be waited for: try again.
    Stalled(ZoneId),
    /// This block could not be moved away. Where many places were tried: the last one.
    Blocked(Blocker),
    /// No memory that the request may use is long enough.
    NoPlace {
        /// How many frames were asked for.
        count: PageCount,
        /// Aligned to so many.
        align: Order,
    },
    /// There is no contiguous memory area that begins and ends so.
    NoSuchArea(PfnRange),
}

impl fmt::Display for ContigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the range is empty: it must have a frame"),
            Self::NotOneZone(range) => write!(f, "{range}, in whole pageblocks, is not memory of one zone alone"),
            Self::BadFlags(gfp) => write!(f, "flags {gfp}: MOVABLE and RECLAIMABLE exclude each other"),
            Self::NotInitialised(range) => write!(f, "the page structures of {range} could not be initialised"),
            Self::NoFrameBytes(pfn) => write!(f, "{pfn} has no memory behind it that could be zeroed"),
            Self::NoSuchNode(node) => write!(f, "{node} does not exist"),
            Self::Poisoned { pfn, block, order } => {
                write!(f, "{pfn} was written to while it was free; its block ({block}, {order}) is put aside")
            }
            Self::Stalled(zone) => write!(f, "somebody in {zone} has not finished what must be waited for: try again"),
            Self::Blocked(blocker) => fmt::Display::fmt(blocker, f),
            Self::NoPlace { count, align } => {
                write!(f, "{count}, aligned to {align}: no memory that may be used is as long")
            }
            Self::NoSuchArea(range) => write!(f, "{range} is no contiguous memory area of this yard"),
        }
    }
}

impl core::error::Error for ContigError {}
