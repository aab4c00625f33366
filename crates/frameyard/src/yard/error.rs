//! Errors of allocations and frees. A variant that concerns a frame names it and its state.

use core::fmt;

use crate::gfp::Gfp;
use crate::page::FrameState;
use crate::platform::LockError;
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange, ZoneId, errors};
use crate::yard::blocker::Blocker;

errors! {
    /// Why a request allocated nothing.
    ///
    /// A request that fails has changed nothing, except that blocks may have moved to other frames, and damaged blocks
    /// are taken out of use.
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
        } = "out of memory: {order} ({}), {gfp}, {node}: {}" (zone.size_of(*order), zone.lacking(*order)),
        /// An order above the yard's maximum.
        OrderTooLarge {
            /// The requested order.
            order: Order,
            /// The largest order.
            max: Order,
        } = "{order} is above the maximum, {max}",
        /// More frames than a maximum-order block. An [aligned](crate::request::AllocRequest::aligned) request has no such limit.
        CountTooLarge {
            /// The requested count.
            count: PageCount,
            /// The frames of a maximum-order block.
            max: PageCount,
        } = "{count} do not fit in a maximum-order block of {max}: request them with an alignment",
        /// A request for no frame.
        Empty = "the request is empty: it must have at least one frame",
        /// MOVABLE together with RECLAIMABLE.
        BadFlags(gfp: Gfp) = "flags {gfp}: MOVABLE and RECLAIMABLE exclude each other",
        /// Two parts of the request that exclude each other.
        Conflict(one: RequestOption, other: RequestOption) =
            "a request has {} or {}, not both" (one.phrase(), other.phrase()),
        /// No such node.
        NoSuchNode(node: NodeId) = "{node} does not exist",
        /// The yard has no contiguous memory area with these bounds.
        NoSuchArea(range: PfnRange) = "{range} is no contiguous memory area of this yard",
        /// The request asks for zeroed frames, but this platform does not map the frame's bytes.
        NoFrameBytes(pfn: Pfn) = "{pfn} cannot be zeroed: the platform does not map its bytes",
        /// The range, or one of its pageblocks, is not memory of a single zone.
        NotOneZone(range: PfnRange) = "{range} is not memory of a single zone",
        /// The page structures of some frames of the range could not be initialised: the platform has no memory for them,
        /// or another CPU began and did not finish.
        NotInitialised(range: PfnRange) = "the page structures of {range} could not be initialised",
        /// A block of the range is not free, and the request names no owners that could move it.
        InUse {
            /// Head of the block in the way.
            head: Pfn,
            /// Its order.
            order: Order,
            /// Its state.
            state: FrameState,
        } = "the block at {head}, {order}, is {state}",
        /// This block could not be moved away. A search reports the block at the last place it tried.
        Blocked(blocker: Blocker) = "{blocker}",
        /// No memory that the request may use is long enough.
        NoPlace {
            /// The requested count.
            count: PageCount,
            /// The requested alignment.
            align: Order,
        } = "{count}, aligned to {align}: no memory that the request may use is long enough",
        /// Another process holds a lock and does not release it, or has damaged the yard.
        Lock(error: LockError) = "{error}",
        /// An operation in this zone did not finish within the bound that a request waits. Try again.
        Stalled(zone: ZoneId) = "an operation in {zone} did not finish in time: try again",
        /// Bad frees took what was allocated before the call had it, each time.
        Taken = "other code has freed the frames each time, before the call had them",
        /// A frame was written to while it was free. Its block is out of use now, and so is every other damaged block of
        /// the range.
        Poisoned {
            /// The first such frame.
            pfn: Pfn,
            /// Its block.
            block: Pfn,
            /// The block's order.
            order: Order,
        } = "{pfn} was written to while it was free; its block ({block}, {order}) is out of use now",
    }
}

/// An option of an [`AllocRequest`](crate::request::AllocRequest) that cannot be combined with every other option.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum RequestOption {
    /// A given range of frames.
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

/// What a request that ran out of memory found in the zone that it tried first. The values are recent but not exact.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ZoneShortage {
    /// The zone.
    pub id: ZoneId,
    /// Its free frames.
    pub free: PageCount,
    /// The largest order of which it has a free block.
    pub largest: Option<Order>,
    /// The logarithm of the page size, for printing.
    pub page_shift: u8,
}

impl ZoneShortage {
    /// The size of a block, for printing.
    fn size_of(self, order: Order) -> impl fmt::Display {
        const UNITS: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let shift = usize::from(order.0) + usize::from(self.page_shift);
        Shown(move |f: &mut fmt::Formatter<'_>| match UNITS.get(shift / 10) {
            Some(unit) => write!(f, "{} {unit}", 1 << (shift % 10)),
            None => write!(f, "2^{shift} bytes"),
        })
    }

    /// What the zone lacks for a request of that order.
    fn lacking(self, order: Order) -> impl fmt::Display {
        Shown(move |f: &mut fmt::Formatter<'_>| {
            fmt::Display::fmt(&self, f)?;
            // A block is there, so the request would have taken the zone below the watermark that its flags allow.
            if self.largest >= Some(order) { write!(f, ", below the min watermark for {order}") } else { Ok(()) }
        })
    }
}

/// Displays what a function writes.
struct Shown<F>(F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Shown<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0(f)
    }
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

/// Why a block was not freed. Nothing has changed, except that after [`FreeProblem::Lock`] the block may be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeError {
    /// The frame that was to be freed.
    pub pfn: Pfn,
    /// The order that the caller named.
    pub order: Order,
    /// What is wrong with it.
    pub problem: FreeProblem,
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot free {}, {}: {}", self.pfn, self.order, self.problem)
    }
}

impl core::error::Error for FreeError {}

errors! {
    /// What is wrong with a free.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum FreeProblem {
        /// The frame is not in the memory map.
        OutOfRange = "it is outside the memory map",
        /// No block covers the frame: it lies in a hole.
        Hole = "there is no memory there",
        /// A block of that order cannot begin at this frame.
        Misaligned = "no block of that order begins there",
        /// The frame is free already: on a free list, on a per-CPU list, or in transit to one.
        AlreadyFree(state: FrameState) = "it is free already ({state})",
        /// The frame is inside a larger block.
        InsideBlock {
            /// Head of that block.
            head: Pfn,
            /// Its order.
            order: Order,
            /// What it is.
            state: FrameState,
        } = "it is inside the {state} block at {head}, {order}",
        /// The block was allocated with another order.
        OtherOrder {
            /// That order.
            allocated: Order,
        } = "it was allocated as {allocated}",
        /// The frame is in a state in which it cannot be freed.
        NotAllocated(state: FrameState) = "it is {state}",
        /// Another process holds a lock and does not release it, or has damaged the yard. The block may be lost.
        Lock(error: LockError) = "{error}",
        /// A block that is to be joined reaches beyond the end of the frames.
        PartOfBlock {
            /// The block's order.
            order: Order,
        } = "its block ({order}) reaches beyond the range",
        /// The frames of a block to be joined are not memory of one zone without a hole.
        NotOneZone = "its frames are not memory of one zone without a hole",
        /// There are no such blocks of that order.
        OrderTooLarge {
            /// The largest order of such blocks.
            max: Order,
        } = "such blocks have at most {max}",
    }
}
