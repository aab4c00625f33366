//! [`fy_request`]: an allocation with more to say than order and flags.

use core::ffi::c_void;

use frameyard::owners::{Owners, ReclaimRequest, Reclaimer};
use frameyard::{Order, PageCount};

use super::alloc::{flags_of, fy_range, node_of, order_of, range_of};
use crate::shared::error::{FY_NO_NODE, FY_NO_ORDER, fy_error};
use crate::shared::fault::Failure;
use crate::shared::handle::{Handle, call_for};
use crate::shared::sized::{self, SizedStruct};
use crate::shared::status::fy_status;
use crate::shared::status::fy_status::FY_BAD_ARGUMENT;

/// What a request asks a reclaim hook for. The library fills it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_reclaim {
    /// The size of the structure.
    pub size: usize,
    /// The node that the request prefers.
    pub node: u32,
    /// The order of the requested block.
    pub order: u32,
    /// The number of frames to free, if possible.
    pub wanted: u64,
}

/// A function that frees frames of the yard for a request that would fail, and returns their number, or 0 if there is nothing left to
/// free.
///
/// The thread that makes the request calls it, with no lock of the yard held. It may free frames of the yard, and must not allocate
/// some with a reclaim hook. It must return: no `longjmp`, no C++ exception.
pub type fy_reclaim_fn = Option<unsafe extern "C" fn(context: *mut c_void, wanted: *const fy_reclaim) -> u64>;

/// A request. `fy_request_default()` sets `size`, and `order`, `align` and `node` to none.
///
/// It names a block (`order`), a number of frames (`count`), or certain frames (`start` and `count` with `exact_place` 1).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_request {
    /// `sizeof(fy_request)`.
    pub size: usize,
    /// Of `FY_GFP_*`.
    pub flags: u32,
    /// The order of a block, or `FY_NO_ORDER`.
    pub order: u32,
    /// The number of frames, if there is no order.
    pub count: u64,
    /// The first frame, if `exact_place` is 1.
    pub start: u64,
    /// 1: exactly the frames from `start` on, all of which must be free. Else 0.
    pub exact_place: u32,
    /// The order that the first frame is aligned to, or `FY_NO_ORDER`. Such a request searches memory in the order of addresses, and
    /// may be longer than the largest block.
    pub align: u32,
    /// The preferred node, or `FY_NO_NODE`.
    pub node: u32,
    /// Leave it 0.
    pub reserved: u32,
    /// Frees frames for a request that would fail and has `FY_GFP_DIRECT_RECLAIM`. May be null.
    pub reclaim: fy_reclaim_fn,
    /// Passed to `reclaim`.
    pub context: *mut c_void,
}

// SAFETY: numbers and pointers, the size first; all of them may be zero.
unsafe impl SizedStruct for fy_request {
    const NAME: &'static str = "fy_request";
}

/// The caller's hook.
struct Hook {
    function: unsafe extern "C" fn(*mut c_void, *const fy_reclaim) -> u64,
    context: *mut c_void,
}

// SAFETY: a request calls its hook on its own thread, where the hook is made and dropped.
unsafe impl Sync for Hook {}

impl Reclaimer for Hook {
    fn reclaim(&self, request: ReclaimRequest) -> PageCount {
        let wanted = fy_reclaim {
            size: size_of::<fy_reclaim>(),
            node: u32::from(request.node.0),
            order: u32::from(request.order.0),
            wanted: request.wanted.0,
        };
        // SAFETY: the caller of the request gives the function for this context.
        PageCount(unsafe { (self.function)(self.context, &raw const wanted) })
    }
}

/// `fy_alloc_request`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn alloc_request<Y: Handle>(
    yard: *const Y,
    request: *const fy_request,
    range: *mut fy_range,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    let work = |yard: &Y| carry_out(yard, &unsafe { sized::read(request)? });
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (range, "range"), error, work) }
}

fn carry_out<Y: Handle>(handle: &Y, request: &fy_request) -> Result<fy_range, Failure> {
    let yard = handle.yard();
    let given = |number: u32| (number != FY_NO_ORDER).then(|| order_of(number));
    let flags = flags_of(request.flags)?;
    let mut asked = match (given(request.order), request.count, request.exact_place) {
        (Some(order), 0, 0) => yard.request(order, flags),
        (None, count, 0) => yard.request(PageCount(count), flags),
        (None, count, 1) => yard.request(range_of(request.start, count)?, flags),
        _ => {
            let text = "a request has an order, a count, or a start and a count with exact_place 1";
            return Err(Failure::Other(FY_BAD_ARGUMENT, text));
        }
    };
    if let Some(align) = given(request.align) {
        if align > Order(63) {
            return Err(Failure::Align(align));
        }
        asked = asked.aligned(align);
    }
    if request.node != FY_NO_NODE {
        asked = asked.node(node_of(request.node)?);
    }
    let frames = handle.with_owners(|owners| match (owners, request.reclaim) {
        (None, None) => asked.range(),
        (Some(owners), None) => asked.owners(owners).range(),
        (owners, Some(function)) => {
            let hook = Hook { function, context: request.context };
            asked.owners(&owners.copied().unwrap_or(Owners::NONE).with_reclaimer(&hook)).range()
        }
    })?;
    Ok(fy_range { start: frames.start.0, count: frames.count().0 })
}
