//! Errors of allocations and frees. Each variant names the frame that it is about, and the frame's state.

use core::fmt;

use super::blocker::Blocker;
use crate::gfp::Gfp;
use crate::page::FrameState;
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange, ZoneId};

/// Why a request allocated nothing.
///
/// A request that fails has changed nothing, except that blocks may have moved to other frames, and damaged blocks are
/// taken out of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AllocError {
    /// No zone that may serve the request has a large enough block above its watermark.
    OutOfMemory {
        /// The requested order.
        order: Order,
        /// The flags.
        gfp: Gfp,
        /// The preferred node.
        node: NodeId,
        /// The zone that the request tried first.
        zone: ZoneShortage,
    },
    /// An order above the yard's maximum.
    OrderTooLarge {
        /// The requested order.
        order: Order,
        /// The largest order.
        max: Order,
    },
    /// More frames than a maximum-order block. An [aligned](super::AllocRequest::aligned) request has no such limit.
    CountTooLarge {
        /// The requested count.
        count: PageCount,
        /// The frames of a maximum-order block.
        max: PageCount,
    },
    /// A request for no frame.
    Empty,
    /// MOVABLE together with RECLAIMABLE.
    BadFlags(Gfp),
    /// Two parts of the request that exclude each other.
    Conflict(RequestOption, RequestOption),
    /// No such node.
    NoSuchNode(NodeId),
    /// The yard has no contiguous memory area with these bounds.
    NoSuchArea(PfnRange),
    /// The request asks for zeroed frames, but this platform does not map the frame's bytes.
    NoFrameBytes(Pfn),
    /// The range, or one of its pageblocks, is not memory of a single zone.
    NotOneZone(PfnRange),
    /// The page structures of some frames of the range could not be initialised: the platform has no memory for them, or
    /// another CPU began and did not finish.
    NotInitialised(PfnRange),
    /// A block of the range is not free, and the request names no owners that could move it.
    InUse {
        /// Head of the block in the way.
        head: Pfn,
        /// Its order.
        order: Order,
        /// Its state.
        state: FrameState,
    },
    /// This block could not be moved away. A search reports the block at the last place it tried.
    Blocked(Blocker),
    /// No memory that the request may use is long enough.
    NoPlace {
        /// The requested count.
        count: PageCount,
        /// The requested alignment.
        align: Order,
    },
    /// An operation in this zone did not finish within the bound that a request waits. Try again.
    Stalled(ZoneId),
    /// A frame was written to while it was free. Its block is out of use now, and so is every other damaged block of the
    /// range.
    Poisoned {
        /// The first such frame.
        pfn: Pfn,
        /// Its block.
        block: Pfn,
        /// The block's order.
        order: Order,
    },
}

/// A part of an [`AllocRequest`](super::AllocRequest) that another part can exclude.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum RequestOption {
    /// The frames of a given range.
    Range,
    /// A preferred or exact node.
    Node,
    /// An alignment.
    Alignment,
    /// A contiguous memory area.
    Area,
}

impl RequestOption {
    const fn phrase(self) -> &'static str {
        match self {
            Self::Range => "a range of frames",
            Self::Node => "a node",
            Self::Alignment => "an alignment",
            Self::Area => "a contiguous memory area",
        }
    }
}

/// What a request that ran out of memory found in the zone that it tried first. The values are recent, not exact.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ZoneShortage {
    /// The zone.
    pub id: ZoneId,
    /// Its free frames.
    pub free: PageCount,
    /// The largest order that has a free block.
    pub largest: Option<Order>,
    /// The logarithm of the page size, for printing.
    pub page_shift: u8,
}

impl fmt::Display for ZoneShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {} has {} free pages", self.id.kind(), self.free.0)?;
        match self.largest {
            Some(largest) => write!(f, ", largest free block order {}", largest.0),
            None => Ok(()),
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { order, gfp, node, zone } => {
                let (size, unit) = binary_size(u32::from(order.0) + u32::from(zone.page_shift));
                write!(f, "out of memory: {order} ({size} {unit}), {gfp}, {node}: {zone}")?;
                // A block is there, so the request would have taken the zone below the watermark that its flags allow.
                if zone.largest >= Some(*order) { write!(f, ", below the min watermark for {order}") } else { Ok(()) }
            }
            Self::OrderTooLarge { order, max } => write!(f, "{order} is above the maximum, {max}"),
            Self::CountTooLarge { count, max } => {
                write!(f, "{count} do not fit in a maximum-order block of {max}: request them with an alignment")
            }
            Self::Empty => f.write_str("the request is empty: it must have at least one frame"),
            Self::BadFlags(gfp) => write!(f, "flags {gfp}: MOVABLE and RECLAIMABLE exclude each other"),
            Self::Conflict(one, other) => write!(f, "a request has {} or {}, not both", one.phrase(), other.phrase()),
            Self::NoSuchNode(node) => write!(f, "{node} does not exist"),
            Self::NoSuchArea(range) => write!(f, "{range} is no contiguous memory area of this yard"),
            Self::NoFrameBytes(pfn) => write!(f, "{pfn} cannot be zeroed: the platform does not map its bytes"),
            Self::NotOneZone(range) => write!(f, "{range} is not memory of a single zone"),
            Self::NotInitialised(range) => write!(f, "the page structures of {range} could not be initialised"),
            Self::InUse { head, order, state } => write!(f, "the block at {head}, {order}, is {state}"),
            Self::Blocked(blocker) => fmt::Display::fmt(blocker, f),
            Self::NoPlace { count, align } => {
                write!(f, "{count}, aligned to {align}: no memory that the request may use is long enough")
            }
            Self::Stalled(zone) => write!(f, "an operation in {zone} did not finish in time: try again"),
            Self::Poisoned { pfn, block, order } => {
                write!(f, "{pfn} was written to while it was free; its block ({block}, {order}) is out of use now")
            }
        }
    }
}

impl core::error::Error for AllocError {}

/// 2^`shift` bytes as a number and its unit.
const fn binary_size(shift: u32) -> (u64, &'static str) {
    const UNITS: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = shift / 10;
    if unit as usize >= UNITS.len() { (u64::MAX, "bytes") } else { (1 << (shift % 10), UNITS[unit as usize]) }
}

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
