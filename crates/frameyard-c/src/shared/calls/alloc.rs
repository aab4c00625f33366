//! Allocating from a node, many frames in one call, and any number of consecutive frames; splitting and joining. `block` has the common calls.

use core::ptr::NonNull;

use frameyard::{Gfp, NodeId, Order, PageCount, Pfn, PfnRange};

use crate::shared::error::fy_error;
use crate::shared::fault::Failure;
use crate::shared::handle::{Handle, call, call_for, place};
use crate::shared::status::fy_status;

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
pub(crate) const LARGEST_ORDER: u32 = 255;

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
///
/// # Errors
///
/// [`Failure::Range`] for no frames, and for frames behind the last number.
pub fn range_of(start: u64, count: u64) -> Result<PfnRange, Failure> {
    if start.checked_add(count).is_none() || count == 0 {
        return Err(Failure::Range(start, count));
    }
    Ok(PfnRange::new(Pfn(start), PageCount(count)))
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
    let work = |yard: &Y| Ok(yard.yard().request(PageCount(count), flags_of(flags)?).range()?.start.0);
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

/// `fy_split_at`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn split_at<Y: Handle>(yard: *const Y, frame: u64, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.yard().split_at(Pfn(frame))?)) }
}

/// `fy_join`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn join<Y: Handle>(yard: *const Y, frame: u64, order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.yard().join(Pfn(frame), order_of(order))?)) }
}
