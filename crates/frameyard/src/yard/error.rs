//! What can go wrong with a request: each variant names the frame and its state.

use core::fmt;

use crate::gfp::Gfp;
use crate::page::FrameState;
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange};

/// Why nothing was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AllocError {
    /// No zone that may serve the request has a block above its watermark, or large enough.
    OutOfMemory {
        /// The order asked for.
        order: Order,
        /// The flags.
        gfp: Gfp,
        /// The node preferred.
        node: NodeId,
    },
    /// An order above the yard's maximum.
    OrderTooLarge {
        /// The order asked for.
        order: Order,
        /// The largest that can be.
        max: Order,
    },
    /// A size of no frames, or of more than a maximum-order block.
    BadSize {
        /// The size asked for.
        count: PageCount,
        /// The largest that can be.
        max: PageCount,
    },
    /// MOVABLE together with RECLAIMABLE.
    BadFlags(Gfp),
    /// No such node.
    NoSuchNode(NodeId),
    /// ZERO was asked for, but the frames have no memory behind them.
    NoFrameBytes(Pfn),
    /// A frame was written to while it was free. Its block is put aside; nothing was allocated.
    Poisoned {
        /// The frame.
        pfn: Pfn,
        /// Its block.
        block: Pfn,
        /// The block's order.
        order: Order,
    },
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { order, gfp, node } => write!(f, "out of memory: {order}, {gfp}, from {node}"),
            Self::OrderTooLarge { order, max } => write!(f, "{order} is above the maximum, {max}"),
            Self::BadSize { count, max } => write!(f, "{count}: an allocation has 1 to {max}"),
            Self::BadFlags(gfp) => write!(f, "flags {gfp}: MOVABLE and RECLAIMABLE exclude each other"),
            Self::NoSuchNode(node) => write!(f, "{node} does not exist"),
            Self::NoFrameBytes(pfn) => write!(f, "{pfn} has no memory behind it that could be zeroed"),
            Self::Poisoned { pfn, block, order } => {
                write!(f, "{pfn} was written to while it was free; its block ({block}, {order}) is put aside")
            }
        }
    }
}

impl core::error::Error for AllocError {}

/// Why a block was not freed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeError {
    /// The frame that was to be freed.
    pub pfn: Pfn,
    /// As a block of that order.
    pub order: Order,
    /// What is wrong with it.
    pub problem: FreeProblem,
}

/// What is wrong with a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FreeProblem {
    /// The frame is not in the memory map.
    OutOfRange,
    /// No block covers the frame: it lies in a hole.
    Hole,
    /// A block of that order cannot begin at this frame.
    Misaligned,
    /// The frame is free already: on a free list, on a per-CPU list, or on its way there.
    AlreadyFree(FrameState),
    /// The frame is inside a larger block.
    InsideBlock {
        /// Head of that block.
        head: Pfn,
        /// Its order.
        order: Order,
        /// What it is.
        state: FrameState,
    },
    /// The block was allocated with another order.
    OtherOrder {
        /// That order.
        allocated: Order,
    },
    /// The frame is in a state in which it cannot be freed.
    NotAllocated(FrameState),
    /// A block of the range reaches beyond the range's end.
    PartOfBlock {
        /// The block's order.
        order: Order,
    },
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pfn, order, problem } = self;
        write!(f, "cannot free {pfn}, {order}: ")?;
        match problem {
            FreeProblem::OutOfRange => f.write_str("it is outside the memory map"),
            FreeProblem::Hole => f.write_str("there is no memory there"),
            FreeProblem::Misaligned => f.write_str("no block of that order begins there"),
            FreeProblem::AlreadyFree(state) => write!(f, "it is free already ({state})"),
            FreeProblem::InsideBlock { head, order, state } => {
                write!(f, "it is inside the {state} block at {head}, {order}")
            }
            FreeProblem::OtherOrder { allocated } => write!(f, "it was allocated as {allocated}"),
            FreeProblem::NotAllocated(state) => write!(f, "it is {state}"),
            FreeProblem::PartOfBlock { order } => write!(f, "its block ({order}) reaches beyond the range"),
        }
    }
}

impl core::error::Error for FreeError {}

/// Why a range was not allocated. Nothing has changed, unless damaged frames were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RangeError {
    /// The range is empty.
    Empty,
    /// The range is not memory of one zone.
    NotOneZone(PfnRange),
    /// There is no memory for the page structures of some frames of the range, or whoever initialises them has come to
    /// a halt.
    NotInitialised(PfnRange),
    /// A block of the range is not free.
    InUse {
        /// Head of the block in the way.
        head: Pfn,
        /// Its order.
        order: Order,
        /// What it is.
        state: FrameState,
    },
    /// MOVABLE together with RECLAIMABLE.
    BadFlags(Gfp),
    /// ZERO was asked for, but the frames have no memory behind them.
    NoFrameBytes(Pfn),
    /// A frame was written to while it was free. Its block is put aside, as is every other damaged block of the range.
    Poisoned {
        /// The first such frame.
        pfn: Pfn,
        /// Its block.
        block: Pfn,
        /// The block's order.
        order: Order,
    },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the range is empty"),
            Self::NotOneZone(range) => write!(f, "{range} is not memory of one zone"),
            Self::NotInitialised(range) => write!(f, "the page structures of {range} could not be initialised"),
            Self::InUse { head, order, state } => write!(f, "the block at {head}, {order}, is {state}"),
            Self::BadFlags(gfp) => write!(f, "flags {gfp}: MOVABLE and RECLAIMABLE exclude each other"),
            Self::NoFrameBytes(pfn) => write!(f, "{pfn} has no memory behind it that could be zeroed"),
            Self::Poisoned { pfn, block, order } => {
                write!(f, "{pfn} was written to while it was free; its block ({block}, {order}) is put aside")
            }
        }
    }
}

impl core::error::Error for RangeError {}
