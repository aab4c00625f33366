//! Allocating and freeing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use frameyard::{AllocError, FreeError, Gfp, NodeId, Order, PageCount, Pfn, PfnRange};

use crate::error::fy_error;
use crate::failure::Failure;
use crate::handle::{call, call_for, fail, fy_yard, panicked, place, refuse, usable};
use crate::status::fy_status;
use crate::status::fy_status::{FY_BAD_ARGUMENT, FY_BAD_FLAGS, FY_NO_SUCH_NODE};

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
    if flags.bits() == bits { Ok(flags) } else { Err(unknown_flags(bits)) }
}

#[cold]
#[inline(never)]
fn unknown_flags(bits: u32) -> Failure {
    let unknown = bits & !Gfp::from_bits_truncate(bits).bits();
    Failure::other(FY_BAD_FLAGS, format_args!("flags {bits:#x}: {unknown:#x} does not exist, use FY_GFP_*"))
}

/// An order; one that is too large stays so.
#[inline(always)]
pub(crate) fn order_of(order: u32) -> Order {
    Order(if order > 255 { 255 } else { order as u8 })
}

/// A node.
pub(crate) fn node_of(node: u32) -> Result<NodeId, Failure> {
    let node = u16::try_from(node).map(NodeId);
    node.map_err(|_| Failure::other(FY_NO_SUCH_NODE, format_args!("the node does not exist")))
}

/// A range of frames of the caller.
pub(crate) fn range_of(start: u64, count: u64) -> Result<PfnRange, Failure> {
    if start.checked_add(count).is_none() || count == 0 {
        return Err(Failure::other(
            FY_BAD_ARGUMENT,
            format_args!("{count} frames from {start:#x} are no range of frames"),
        ));
    }
    Ok(PfnRange::new(Pfn(start), PageCount(count)))
}

/// Allocates a block of 2^`order` frames and sets `*frame` to the first one. `fy_free` frees it.
///
/// The block is of the node that the caller runs on, if possible. Its bytes have what the last owner wrote, unless `flags` has
/// `FY_GFP_ZERO`.
///
/// Errors: `FY_OUT_OF_MEMORY`, `FY_BAD_ORDER`, `FY_BAD_FLAGS`, `FY_NO_FRAME_BYTES` (zeroed frames of a phantom yard), `FY_BUSY`,
/// `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`. Nothing is allocated and `*frame` is unchanged then.
///
/// Thread safety: any thread. Cost: usually no lock; at most one acquisition of the zone lock for each batch.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_alloc(
    yard: *const fy_yard,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // Single frames get code of their own, in which the order is a constant.
    // SAFETY: passed on to the caller.
    unsafe {
        if order == 0 {
            alloc_single(yard, order, flags, frame, error)
        } else {
            alloc_larger(yard, order, flags, frame, error)
        }
    }
}

/// [`fy_alloc`] of order 0.
///
/// # Safety
///
/// As for [`fy_alloc`].
#[inline(never)]
unsafe extern "C" fn alloc_single(
    yard: *const fy_yard,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { alloc_order::<true>(yard, (Order::ZERO, order), flags, frame, error) }
}

/// Keeps the signatures of the functions: the compiler would remove the argument that is always 0, and move all arguments behind it.
#[used]
static SINGLE: (
    unsafe extern "C" fn(*const fy_yard, u32, u32, *mut u64, *mut fy_error) -> fy_status,
    unsafe extern "C" fn(*const fy_yard, u64, u32, *mut fy_error) -> fy_status,
) = (alloc_single, free_single);

/// [`fy_alloc`] of another order than 0.
///
/// # Safety
///
/// As for [`fy_alloc`].
#[inline(never)]
unsafe extern "C" fn alloc_larger(
    yard: *const fy_yard,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { alloc_order::<false>(yard, (order_of(order), order), flags, frame, error) }
}

/// [`fy_alloc`] with checks that fail in code of their own: it has all registers for the allocation.
///
/// `SINGLE` gives each caller a closure of its own. They would share one otherwise, in which the order is not constant: 57 more
/// instructions for a pair.
///
/// # Safety
///
/// As for [`fy_alloc`].
#[inline(always)]
unsafe fn alloc_order<const SINGLE: bool>(
    yard: *const fy_yard,
    (order, number): (Order, u32),
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    match unsafe { usable(yard) } {
        Some(yard) if flags & !USUAL_FLAGS == 0 && !frame.is_null() => {
            let work = || match yard.alloc(order, Gfp::from_bits_truncate(flags)) {
                Ok(pfn) => {
                    // SAFETY: writable, as the caller says.
                    unsafe { frame.write(pfn.0) };
                    fy_status::FY_OK
                }
                // SAFETY: passed on to the caller.
                Err(failure) => unsafe { fail_alloc(yard, error, &failure) },
            };
            // SAFETY: passed on to the caller.
            catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| unsafe { panicked(yard, error, payload) })
        }
        // SAFETY: passed on to the caller.
        _ => unsafe { alloc_unusual(yard, number, flags, frame, error) },
    }
}

/// [`fy_alloc`] with flags that take a slow path anyway, or with bad arguments.
///
/// # Safety
///
/// As for [`fy_alloc`].
#[cold]
#[inline(never)]
unsafe extern "C" fn alloc_unusual(
    yard: *const fy_yard,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| Ok(yard.alloc(order_of(order), flags_of(flags)?)?.0);
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (frame, "frame"), error, work) }
}

/// Reports an allocation that failed.
///
/// # Safety
///
/// As for [`fail`].
#[cold]
#[inline(never)]
unsafe fn fail_alloc(yard: &fy_yard, error: *mut fy_error, failure: &AllocError) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { fail(yard, error, &(*failure).into()) }
}

/// Reports a free that failed.
///
/// # Safety
///
/// As for [`fail`].
#[cold]
#[inline(never)]
unsafe fn fail_free(yard: &fy_yard, error: *mut fy_error, failure: &FreeError) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { fail(yard, error, &(*failure).into()) }
}

/// Frees a block of 2^`order` frames that begins at `frame`.
///
/// Errors: `FY_ALREADY_FREE`, `FY_WRONG_ORDER`, `FY_NOT_ALLOCATED`, `FY_BAD_FRAME`, `FY_BUSY`, `FY_DAMAGED`, `FY_NULL_POINTER`,
/// `FY_PANICKED`. A bad free changes nothing. A frame that another part of the program has allocated in the meantime is that part's: no
/// check finds such a free.
///
/// Thread safety: any thread, not only the one that allocated. Cost: as `fy_alloc`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_free(yard: *const fy_yard, frame: u64, order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { if order == 0 { free_single(yard, frame, order, error) } else { free_larger(yard, frame, order, error) } }
}

/// [`fy_free`] of order 0.
///
/// # Safety
///
/// As for [`fy_free`].
#[inline(never)]
unsafe extern "C" fn free_single(yard: *const fy_yard, frame: u64, _order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { free_order::<true>(yard, frame, Order::ZERO, error) }
}

/// [`fy_free`] of another order than 0.
///
/// # Safety
///
/// As for [`fy_free`].
#[inline(never)]
unsafe extern "C" fn free_larger(yard: *const fy_yard, frame: u64, order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { free_order::<false>(yard, frame, order_of(order), error) }
}

/// [`fy_free`] with checks that fail in code of their own. `SINGLE`: see [`alloc_order`].
///
/// # Safety
///
/// As for [`fy_free`].
#[inline(always)]
unsafe fn free_order<const SINGLE: bool>(
    yard: *const fy_yard,
    frame: u64,
    order: Order,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    let Some(yard) = (unsafe { usable(yard) }) else { return unsafe { refuse(yard, error) } };
    let work = || match yard.free(Pfn(frame), order) {
        Ok(()) => fy_status::FY_OK,
        // SAFETY: passed on to the caller.
        Err(failure) => unsafe { fail_free(yard, error, &failure) },
    };
    // SAFETY: passed on to the caller.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| unsafe { panicked(yard, error, payload) })
}

/// As `fy_alloc`, from a node if possible, or from that node only if `flags` has `FY_GFP_THISNODE`.
///
/// Errors: as `fy_alloc`, and `FY_NO_SUCH_NODE`. Thread safety: any thread. Cost: takes a lock of the CPU's lists.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_alloc_on(
    yard: *const fy_yard,
    node: u32,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| Ok(yard.request(order_of(order), flags_of(flags)?).node(node_of(node)?).frame()?.0);
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (frame, "frame"), error, work) }
}

/// Allocates exactly `count` consecutive frames and sets `*frame` to the first one. `fy_free_range` frees them, at once or in parts.
///
/// `count` is at most that of the largest block; `fy_alloc_request` with an alignment has no such limit. After the kernel's
/// `alloc_pages_exact`.
///
/// Errors: as `fy_alloc`, and `FY_BAD_ARGUMENT` for no frame. Thread safety: any thread. Cost: a block's, and a free for the rest.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_alloc_exact(
    yard: *const fy_yard,
    count: u64,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| Ok(yard.request_pages(PageCount(count), flags_of(flags)?).range()?.start.0);
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (frame, "frame"), error, work) }
}

/// Frees all blocks of a range of frames. No block may reach out of it.
///
/// Errors: as `fy_free`, and `FY_BAD_ARGUMENT` for an impossible range. Thread safety: any thread. Cost: that of `fy_free` for each
/// block.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_free_range(
    yard: *const fy_yard,
    start: u64,
    count: u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.free_range(range_of(start, count)?)?)) }
}

/// Allocates up to `count` single frames into `frames` and sets `*allocated` to their number, which is less than `count` when memory
/// runs out. `fy_free` or `fy_free_bulk` frees them.
///
/// Errors: as `fy_alloc`, if not a single frame was allocated. `*allocated` is 0 then. `count` 0 is no error.
///
/// Thread safety: any thread. Cost: one acquisition of the lock of the CPU's lists for each batch.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_alloc_bulk(
    yard: *const fy_yard,
    flags: u32,
    frames: *mut u64,
    count: usize,
    allocated: *mut usize,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| {
        let allocated = place(allocated, "allocated")?;
        // SAFETY: writable, as the caller says.
        unsafe { allocated.write(0) };
        let frames = array(frames, count)?;
        let flags = flags_of(flags)?;
        // SAFETY: the caller says that `count` numbers can be written there. They get values first. `Pfn` is a number
        // (checked below).
        let slots = unsafe {
            frames.write_bytes(0, count);
            std::slice::from_raw_parts_mut(frames.as_ptr(), count)
        };
        let done = yard.alloc_bulk(flags, slots)?;
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
        return Err(Failure::other(FY_BAD_ARGUMENT, format_args!("no array has {count} frames")));
    }
    Ok(frames.cast())
}

const _: () = assert!(size_of::<Pfn>() == size_of::<u64>() && align_of::<Pfn>() == align_of::<u64>());

/// Frees single frames.
///
/// Errors: as `fy_free`; the error names the first frame that was not freed. All other frames are freed.
///
/// Thread safety: any thread; no other thread may write to `frames` meanwhile. Cost: as `fy_alloc_bulk`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_free_bulk(
    yard: *const fy_yard,
    frames: *const u64,
    count: usize,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| {
        let frames = array(frames.cast_mut(), count)?;
        // SAFETY: the caller says that `count` numbers can be read there.
        let frames = unsafe { std::slice::from_raw_parts(frames.as_ptr().cast_const(), count) };
        Ok(yard.free_bulk(frames)?)
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// Splits an allocated block of 2^`order` frames into single frames, which are freed one by one (the kernel's `split_page`).
///
/// Errors: as `fy_free`; nothing has changed then. Thread safety: any thread, while no other frees the block. Cost: writes to the page
/// structure of each frame.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_split(yard: *const fy_yard, frame: u64, order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.split(Pfn(frame), order_of(order))?)) }
}
