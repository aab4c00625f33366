//! [`Blocker`]: the block that kept a contiguous range from being allocated, and why it stays.

use core::fmt;

use crate::owners::{Block, OwnerKind};
use crate::page::FrameState;
use crate::units::{Order, Pfn, PfnRange, named};

/// Why a block could not be moved out of a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BlockedBy {
    /// It has users that its owner cannot find, and they did not go away while the request waited.
    Pinned,
    /// It cannot be moved: it has no owner that could be asked, or the owner refuses.
    Unmovable,
    /// It was never given to the allocator.
    Reserved,
    /// It is in a contiguous memory area. Only requests with [`from_area`](crate::AllocRequest::from_area) take such
    /// frames.
    Area,
    /// There is no memory at this frame.
    Hole,
    /// It was taken [offline](crate::Yard::offline).
    Offline,
    /// It belongs to a device.
    Device,
    /// Another CPU was working on it for as long as the request waited, or has isolated the same pageblock.
    Busy,
    /// There was no free memory to move it to.
    OutOfMemory,
    /// Its owner failed to move it every time that it was asked.
    Failed,
}

named!(
    BlockedBy: Pinned => "pinned", Unmovable => "unmovable", Reserved => "reserved", Area => "area", Hole => "hole", Offline => "offline", Device => "device", Busy => "busy",
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
            Self::Device => "device memory, which is not for allocation",
            Self::Hole => "in a hole: there is no memory",
            Self::Offline => "offline: it can be used when it is brought back",
            Self::Busy => "busy: another CPU works on it",
            Self::OutOfMemory => "in use, and there is no memory to move it to",
            Self::Failed => "in use, and its owner failed to move it",
        }
    }
}

/// A block that kept a range from being allocated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Blocker {
    /// Its first frame. In a hole, or if no block covers the frame, the frame itself.
    pub pfn: Pfn,
    /// Its order.
    pub order: Order,
    /// Its state when the request read it.
    pub state: FrameState,
    /// The kind of its owner, if its users are counted.
    pub owner: OwnerKind,
    /// Why it could not be moved.
    pub why: BlockedBy,
}

impl Blocker {
    /// A block that no owner counts the users of.
    pub(crate) const fn new(block: Block, state: FrameState, why: BlockedBy) -> Self {
        Self { pfn: block.pfn, order: block.order, state, owner: OwnerKind::NONE, why }
    }

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
