//! The frame, order, state and node that the core's errors name.

use frameyard::devices::DeviceError;
use frameyard::platform::LockError;
use frameyard::{AllocError, FreeError, Order};

use crate::shared::error::{fy_error, state_number};
use crate::shared::status::fy_status::{self, FY_BUSY, FY_DAMAGED, FY_SYSTEM};

pub(crate) fn alloc_facts(error: &AllocError, facts: &mut fy_error) {
    let order = |order: Order| u32::from(order.0);
    match error {
        AllocError::OutOfMemory { order: asked, node, .. } => {
            (facts.order, facts.node) = (order(*asked), u32::from(node.0));
        }
        AllocError::OrderTooLarge { order: asked, .. } => facts.order = order(*asked),
        AllocError::NoSuchNode(node) => facts.node = u32::from(node.0),
        AllocError::NoFrameBytes(pfn) => facts.frame = pfn.0,
        AllocError::NotOneZone(range) | AllocError::NotInitialised(range) | AllocError::NoSuchArea(range) => {
            facts.frame = range.start.0;
        }
        AllocError::InUse { head, order: of, state } => {
            (facts.frame, facts.order, facts.state) = (head.0, order(*of), state_number(*state));
        }
        AllocError::Blocked(blocker) => facts.frame = blocker.frames().start.0,
        AllocError::Lock(error) => facts.process = lock_status(*error).1,
        AllocError::Poisoned { pfn, order: of, .. } => (facts.frame, facts.order) = (pfn.0, order(*of)),
        _ => {}
    }
}

pub(crate) fn free_facts(error: &FreeError, facts: &mut fy_error) {
    use frameyard::alloc::FreeProblem::*;
    (facts.frame, facts.order) = (error.pfn.0, u32::from(error.order.0));
    match error.problem {
        AlreadyFree(state) | NotAllocated(state) | InsideBlock { state, .. } => facts.state = state_number(state),
        OtherOrder { .. } | PartOfBlock { .. } => facts.state = state_number(frameyard::page::FrameState::Allocated),
        Lock(error) => facts.process = lock_status(error).1,
        _ => {}
    }
}

/// Sets the members that an error of a device knows.
pub fn device_facts(error: &DeviceError, facts: &mut fy_error) {
    use DeviceError::*;
    match error {
        Lock(error) => facts.process = lock_status(*error).1,
        Unaligned { range, .. }
        | OutsideDeviceSpace { range, .. }
        | MixedSection { range, .. }
        | NoRoom { range, .. } => {
            facts.frame = range.start.0;
        }
        NoMapMemory(range) | NoMapInDevice(range) => facts.frame = range.start.0,
        IsMemory { memory: taken, .. } | Overlaps { with: taken, .. } => facts.frame = taken.start.0,
        OrderTooLarge { order, .. } => facts.order = u32::from(order.0),
        NoSuchNode(node) => facts.node = u32::from(node.0),
        InUse { first: pfn, .. } | NotDevice(pfn) | BasePages(pfn) | LayoutCannotSplit(pfn) => facts.frame = pfn.0,
        NotHead { pfn, .. } | IsSplit(pfn) | NotSplit(pfn) => facts.frame = pfn.0,
        _ => {}
    }
}

/// The status of a lock's error, and the process that it names, or 0.
#[must_use]
pub fn lock_status(error: LockError) -> (fy_status, u32) {
    match error {
        LockError::LockStuck { holder, .. } => (FY_BUSY, holder),
        LockError::OwnerDied { holder, .. } => (FY_DAMAGED, holder),
        LockError::Corrupt { .. } => (FY_DAMAGED, 0),
        LockError::SequencesNotEnded { .. } => (FY_SYSTEM, 0),
        _ => (FY_DAMAGED, 0),
    }
}
