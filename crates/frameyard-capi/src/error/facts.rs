//! The frame, order, state and node that the core's and the host's errors name.

use frameyard::policy::PolicyError;
use frameyard::validate::ValidateError;
use frameyard::{AllocError, FreeError, Order};
use frameyard_host::HostYardError;

use super::{FY_MESSAGE_BYTES, FY_NO_FRAME, FY_NO_NODE, FY_NO_ORDER, FY_NO_STATE, fy_error, state_number};
use crate::failure::{Failure, lock_status};

/// All that the caller's structure holds, apart from the message.
pub(super) fn of(failure: &Failure) -> fy_error {
    let mut facts = fy_error {
        size: size_of::<fy_error>(),
        status: failure.status() as i32,
        order: FY_NO_ORDER,
        frame: FY_NO_FRAME,
        state: FY_NO_STATE,
        node: FY_NO_NODE,
        process: 0,
        system: 0,
        message: [0; FY_MESSAGE_BYTES],
    };
    match failure {
        Failure::Alloc(error) => alloc_facts(error, &mut facts),
        Failure::Free(error) => free_facts(error, &mut facts),
        Failure::Policy(PolicyError::Lock(error)) => facts.process = lock_status(*error).1,
        Failure::Host(error) => match &**error {
            HostYardError::Lock(error) => facts.process = lock_status(*error).1,
            error => facts.system = system_error(error),
        },
        Failure::Validate(error) => {
            if let ValidateError::Lock(error) = **error {
                facts.process = lock_status(error).1;
            }
        }
        _ => {}
    }
    facts
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

/// The number of the operating system's error at the end of a chain of errors, or 0.
fn system_error(error: &(dyn std::error::Error + 'static)) -> i32 {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<std::io::Error>()?.raw_os_error())
        .unwrap_or(0)
}
