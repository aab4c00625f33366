//! The frame, order, state and node that the core's errors name.

use frameyard::policy::PolicyError;
use frameyard::validate::ValidateError;
use frameyard::{AllocError, FreeError, Order};

use crate::error::{fy_error, state_number};
use crate::fault::{Failure, lock_status};

/// Sets the members that a failure knows.
pub(crate) fn tell(failure: &Failure, facts: &mut fy_error) {
    match failure {
        Failure::Alloc(error) => alloc_facts(error, facts),
        Failure::Free(error) => free_facts(error, facts),
        Failure::Policy(PolicyError::Lock(error)) | Failure::Validate(ValidateError::Lock(error)) => {
            facts.process = lock_status(*error).1;
        }
        Failure::NoFrame(pfn) | Failure::NoBytes(pfn) => facts.frame = pfn.0,
        Failure::Node(node) => facts.node = *node,
        _ => {}
    }
}

fn alloc_facts(error: &AllocError, facts: &mut fy_error) {
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

fn free_facts(error: &FreeError, facts: &mut fy_error) {
    use frameyard::alloc::FreeProblem::*;
    (facts.frame, facts.order) = (error.pfn.0, u32::from(error.order.0));
    match error.problem {
        AlreadyFree(state) | NotAllocated(state) | InsideBlock { state, .. } => facts.state = state_number(state),
        OtherOrder { .. } | PartOfBlock { .. } => facts.state = state_number(frameyard::page::FrameState::Allocated),
        Lock(error) => facts.process = lock_status(error).1,
        _ => {}
    }
}
