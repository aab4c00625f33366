//! Allocating and freeing.

use core::hint::assert_unchecked;
use core::ptr::NonNull;

use frameyard::alloc::{AllocAtOnce, FreeAtOnce, UnfinishedAlloc, UnfinishedFree};
use frameyard::{Gfp, NodeId, Order, PageCount, Pfn, PfnRange};

use crate::error::fy_error;
use crate::fault::Failure;
use crate::handle::{Handle, call, call_for, place, usable};
use crate::status::fy_status;

/// Flags: no flag. Unmovable frames; the request does not wait.
pub const FY_GFP_NOWAIT: u32 = 0;
/// Flag: the frames can be moved (`__GFP_MOVABLE`).
pub const FY_GFP_MOVABLE: u32 = 0x8;
/// Flag: the frames can be dropped (`__GFP_RECLAIMABLE`). Excludes `FY_GFP_MOVABLE`.
pub const FY_GFP_RECLAIMABLE: u32 = 0x10;
/// Flag: may use half of the reserve for urgent requests (`__GFP_HIGH`).
pub const FY_GFP_HIGH: u32 = 0x20;
/// Flag: may wait, and drain the lists of other CPUs (`__GFP_DIRECT_RECLAIM`).
pub const FY_GFP_DIRECT_RECLAIM: u32 = 0x40;
/// Flag: fails rather than tries hard (`__GFP_NORETRY`).
pub const FY_GFP_NORETRY: u32 = 0x80;
/// Flag: zeroes the bytes (`__GFP_ZERO`).
pub const FY_GFP_ZERO: u32 = 0x100;
/// Flag: takes frames of the preferred node only (`__GFP_THISNODE`).
pub const FY_GFP_THISNODE: u32 = 0x400;
/// Flag: a failure is expected and not counted (`__GFP_NOWARN`).
pub const FY_GFP_NOWARN: u32 = 0x800;
/// Flag: fails rather than takes a part of another migration type's pageblock.
pub const FY_GFP_NOFRAGMENT: u32 = 0x1000;
/// Flags for ordinary memory: `FY_GFP_DIRECT_RECLAIM`.
pub const FY_GFP_KERNEL: u32 = 0x40;
/// Flags for callers that must not wait: `FY_GFP_HIGH`.
pub const FY_GFP_ATOMIC: u32 = 0x20;
/// Flags for data of a program (`GFP_HIGHUSER_MOVABLE`), which may come from all zones.
pub const FY_GFP_USER: u32 = 0x4a;

const _: () = {
    assert!(FY_GFP_MOVABLE == Gfp::MOVABLE.bits() && FY_GFP_RECLAIMABLE == Gfp::RECLAIMABLE.bits());
    assert!(FY_GFP_HIGH == Gfp::HIGH.bits() && FY_GFP_DIRECT_RECLAIM == Gfp::DIRECT_RECLAIM.bits());
    assert!(FY_GFP_NORETRY == Gfp::NORETRY.bits() && FY_GFP_ZERO == Gfp::ZERO.bits());
    assert!(FY_GFP_THISNODE == Gfp::THISNODE.bits() && FY_GFP_NOWARN == Gfp::NOWARN.bits());
    assert!(FY_GFP_NOFRAGMENT == Gfp::NOFRAGMENT.bits() && FY_GFP_NOWAIT == Gfp::NOWAIT.bits());
    assert!(FY_GFP_KERNEL == Gfp::KERNEL.bits() && FY_GFP_ATOMIC == Gfp::ATOMIC.bits());
    assert!(FY_GFP_USER == Gfp::HIGHUSER_MOVABLE.bits());
};

/// The flags that a fast path may serve.
const USUAL_FLAGS: u32 = Gfp::from_bits_truncate(u32::MAX).without(Gfp::ZERO).without(Gfp::THISNODE).bits();

/// Consecutive frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct fy_range {
    /// The first frame.
    pub start: u64,
    /// The number of frames.
    pub count: u64,
}

/// The flags with these bits.
#[inline(always)]
pub(crate) fn flags_of(bits: u32) -> Result<Gfp, Failure> {
    let flags = Gfp::from_bits_truncate(bits);
    if flags.bits() == bits { Ok(flags) } else { Err(Failure::Flags(bits)) }
}

/// The largest order that the core's type holds. No yard has blocks of it.
const LARGEST_ORDER: u32 = 255;

/// An order; one that is too large stays so.
#[inline(always)]
pub(crate) fn order_of(order: u32) -> Order {
    Order(order.min(LARGEST_ORDER) as u8)
}

/// A node.
pub(crate) fn node_of(node: u32) -> Result<NodeId, Failure> {
    u16::try_from(node).map(NodeId).map_err(|_| Failure::Node(node))
}

/// A range of frames of the caller.
pub(crate) fn range_of(start: u64, count: u64) -> Result<PfnRange, Failure> {
    if start.checked_add(count).is_none() || count == 0 {
        return Err(Failure::Range(start, count));
    }
    Ok(PfnRange::new(Pfn(start), PageCount(count)))
}

/// `fy_alloc`. What [`Yard::alloc_at_once`](frameyard::Yard::alloc_at_once) leaves goes to code of its own, bad arguments included: the rest saves no registers, and
/// makes no call that could panic.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn alloc<Y: Handle>(
    yard: *const Y,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // Single frames get code of their own, in which the order is a constant.
    // SAFETY: passed on to the caller.
    unsafe {
        if order == 0 {
            alloc_order(yard, (Order::ZERO, 0), flags, frame, error)
        } else {
            alloc_larger(yard, order, flags, frame, error)
        }
    }
}

/// [`alloc`] of another order than 0.
///
/// # Safety
///
/// As for [`alloc`]; and `order` is not 0.
#[inline(never)]
unsafe extern "C" fn alloc_larger<Y: Handle>(
    yard: *const Y,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller. `alloc` calls this for another order than 0.
    unsafe {
        assert_unchecked(order != 0);
        if order > LARGEST_ORDER {
            return alloc_rest(yard, order, flags, frame, error);
        }
        alloc_order(yard, (Order(order as u8), order), flags, frame, error)
    }
}

/// # Safety
///
/// As for [`alloc`].
#[inline(always)]
unsafe fn alloc_order<Y: Handle>(
    yard: *const Y,
    (order, number): (Order, u32),
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    if let Some(handle) = unsafe { usable(yard) }
        && flags & !USUAL_FLAGS == 0
        && !frame.is_null()
    {
        match handle.yard().alloc_at_once(order, Gfp::from_bits_truncate(flags)) {
            AllocAtOnce::Done(pfn) => {
                // SAFETY: writable, as the caller says.
                unsafe { frame.write(pfn.0) };
                return fy_status::FY_OK;
            }
            AllocAtOnce::Nothing => {}
            // SAFETY: passed on to the caller.
            AllocAtOnce::Unfinished(alloc) => return unsafe { finish_alloc(yard, alloc, frame, error) },
        }
    }
    // SAFETY: passed on to the caller.
    unsafe { alloc_rest(yard, number, flags, frame, error) }
}

/// Allocates a block that has left its list, far from most memory.
///
/// # Safety
///
/// As for [`alloc`].
#[cold]
#[inline(never)]
unsafe fn finish_alloc<Y: Handle>(
    yard: *const Y,
    alloc: UnfinishedAlloc<'_, Y::Platform>,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (frame, "frame"), error, |_| Ok(alloc.finish()?.0)) }
}

/// [`alloc`] where the caller's list is empty, with flags that need more, or with bad arguments.
///
/// # Safety
///
/// As for [`alloc`].
#[cold]
#[inline(never)]
unsafe extern "C" fn alloc_rest<Y: Handle>(
    yard: *const Y,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| Ok(yard.yard().alloc(order_of(order), flags_of(flags)?)?.0);
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (frame, "frame"), error, work) }
}

/// `fy_free`. As in [`alloc`], the rest goes to code of its own.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn free<Y: Handle>(yard: *const Y, frame: u64, order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        if order == 0 {
            free_order(yard, frame, (Order::ZERO, 0), error)
        } else {
            free_larger(yard, frame, order, error)
        }
    }
}

/// [`free()`] of another order than 0.
///
/// # Safety
///
/// As for [`free()`]; and `order` is not 0.
#[inline(never)]
unsafe extern "C" fn free_larger<Y: Handle>(yard: *const Y, frame: u64, order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller. `free` calls this for another order than 0.
    unsafe {
        assert_unchecked(order != 0);
        if order > LARGEST_ORDER {
            return free_rest(yard, frame, order, error);
        }
        free_order(yard, frame, (Order(order as u8), order), error)
    }
}

/// # Safety
///
/// As for [`free()`].
#[inline(always)]
unsafe fn free_order<Y: Handle>(
    yard: *const Y,
    frame: u64,
    (order, number): (Order, u32),
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    if let Some(handle) = unsafe { usable(yard) } {
        match handle.yard().free_at_once(Pfn(frame), order) {
            FreeAtOnce::Done => return fy_status::FY_OK,
            FreeAtOnce::Nothing => {}
            // SAFETY: passed on to the caller.
            FreeAtOnce::Unfinished(free) => return unsafe { finish_free(yard, free, error) },
        }
    }
    // SAFETY: passed on to the caller.
    unsafe { free_rest(yard, frame, number, error) }
}

/// Frees a block whose list is full.
///
/// # Safety
///
/// As for [`free()`].
#[cold]
#[inline(never)]
unsafe fn finish_free<Y: Handle>(
    yard: *const Y,
    free: UnfinishedFree<'_, Y::Platform>,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |_| Ok(free.finish()?)) }
}

/// [`free()`] of a block that is not allocated as the caller says, or lies far from most memory, or with a bad handle.
///
/// # Safety
///
/// As for [`free()`].
#[cold]
#[inline(never)]
unsafe extern "C" fn free_rest<Y: Handle>(yard: *const Y, frame: u64, order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.yard().free(Pfn(frame), order_of(order))?)) }
}

/// `fy_alloc_on`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn alloc_on<Y: Handle>(
    yard: *const Y,
    node: u32,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| Ok(yard.yard().request(order_of(order), flags_of(flags)?).node(node_of(node)?).frame()?.0);
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (frame, "frame"), error, work) }
}

/// `fy_alloc_exact`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn alloc_exact<Y: Handle>(
    yard: *const Y,
    count: u64,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| Ok(yard.yard().request_pages(PageCount(count), flags_of(flags)?).range()?.start.0);
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (frame, "frame"), error, work) }
}

/// `fy_free_range`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn free_range<Y: Handle>(yard: *const Y, start: u64, count: u64, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.yard().free_range(range_of(start, count)?)?)) }
}

/// `fy_alloc_bulk`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn alloc_bulk<Y: Handle>(
    yard: *const Y,
    flags: u32,
    frames: *mut u64,
    count: usize,
    allocated: *mut usize,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| {
        let allocated = place(allocated, "allocated")?;
        // SAFETY: writable, as the caller says.
        unsafe { allocated.write(0) };
        let frames = array(frames, count)?;
        let flags = flags_of(flags)?;
        // SAFETY: the caller says that `count` numbers can be written there. They get values first. `Pfn` is a number
        // (checked below).
        let slots = unsafe {
            frames.write_bytes(0, count);
            core::slice::from_raw_parts_mut(frames.as_ptr(), count)
        };
        let done = yard.yard().alloc_bulk(flags, slots)?;
        // SAFETY: as above.
        unsafe { allocated.write(done) };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// The frames of the caller's array.
///
/// # Errors
///
/// [`Failure::Null`], and `FY_BAD_ARGUMENT` for more frames than an array can have.
fn array(frames: *mut u64, count: usize) -> Result<NonNull<Pfn>, Failure> {
    let frames = place(frames, "frames")?;
    if count > isize::MAX as usize / size_of::<Pfn>() {
        return Err(Failure::Array(count));
    }
    Ok(frames.cast())
}

const _: () = assert!(size_of::<Pfn>() == size_of::<u64>() && align_of::<Pfn>() == align_of::<u64>());

/// `fy_free_bulk`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn free_bulk<Y: Handle>(
    yard: *const Y,
    frames: *const u64,
    count: usize,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| {
        let frames = array(frames.cast_mut(), count)?;
        // SAFETY: the caller says that `count` numbers can be read there.
        let frames = unsafe { core::slice::from_raw_parts(frames.as_ptr().cast_const(), count) };
        Ok(yard.yard().free_bulk(frames)?)
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// `fy_split`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn split<Y: Handle>(yard: *const Y, frame: u64, order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.yard().split(Pfn(frame), order_of(order))?)) }
}
