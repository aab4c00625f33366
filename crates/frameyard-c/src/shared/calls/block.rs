//! Allocating and freeing a block: the calls that programs make most often.
//!
//! The fast path does what the core can do at once, in a restartable sequence of the caller's CPU or under the lock of its lists.
//! It saves few registers and makes no call that could panic. Functions of their own do the rest, and report bad arguments.

use core::hint::assert_unchecked;
use core::ptr;

use frameyard::alloc::{AllocAtOnce, FreeAtOnce, UnfinishedAlloc, UnfinishedFree};
use frameyard::{Gfp, Order, Pfn, Platform};

use super::alloc::{LARGEST_ORDER, flags_of, order_of};
use crate::shared::error::fy_error;
use crate::shared::handle::{Handle, call, call_for};
use crate::shared::status::fy_status;

/// The flags that a fast path may serve.
const USUAL_FLAGS: u32 = Gfp::from_bits_truncate(u32::MAX).without(Gfp::ZERO).without(Gfp::THISNODE).bits();

/// The order of a block of more than one frame: code for it has no case for single frames.
///
/// # Safety
///
/// `order` is at most [`LARGEST_ORDER`], and not 0.
#[inline(always)]
unsafe fn larger(order: u32) -> Order {
    let order = Order(order as u8);
    // SAFETY: passed on to the caller.
    unsafe { assert_unchecked(order != Order::ZERO) };
    order
}

/// `fy_alloc`.
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
            match yard.as_ref() {
                Some(handle) if has_sequences(handle) => alloc_in_sequence(handle, Order::ZERO, flags, frame, error),
                Some(_) => alloc_single_locked(yard, flags, frame, error),
                None => alloc_rest(yard, order, flags, frame, error),
            }
        } else {
            match yard.as_ref() {
                Some(handle) if has_sequences(handle) => alloc_larger(yard, order, flags, frame, error),
                Some(_) => alloc_larger_locked(yard, order, flags, frame, error),
                None => alloc_rest(yard, order, flags, frame, error),
            }
        }
    }
}

/// Whether CPUs use their lists in sequences. The answer is always the same.
///
/// A call tests the order first, then this: without sequences, one function for single frames and one for blocks do all that is to do. They
/// save registers, which the fast path in a sequence does not need.
#[inline(always)]
fn has_sequences<Y: Handle>(handle: &Y) -> bool {
    handle.yard().platform().has_sequences()
}

/// [`alloc`] of another order than 0, where CPUs use their lists in sequences.
///
/// # Safety
///
/// As for [`alloc`]; and `yard` is not null, and has sequences. `order` is not 0.
#[inline(never)]
unsafe extern "C" fn alloc_larger<Y: Handle>(
    yard: *const Y,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        if order > LARGEST_ORDER {
            return alloc_rest(yard, order, flags, frame, error);
        }
        let handle = &*yard;
        assert_unchecked(has_sequences(handle));
        alloc_in_sequence(handle, larger(order), flags, frame, error)
    }
}

/// [`alloc`] where CPUs use their lists in sequences.
///
/// # Safety
///
/// As for [`alloc`].
#[inline(always)]
unsafe fn alloc_in_sequence<Y: Handle>(
    handle: &Y,
    order: Order,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let yard = ptr::from_ref(handle);
    if flags & !USUAL_FLAGS == 0 && handle.is_usable() && !frame.is_null() {
        match handle.yard().at_once().alloc(order, Gfp::from_bits_truncate(flags)) {
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
    unsafe { alloc_rest(yard, u32::from(order.0), flags, frame, error) }
}

/// Allocates a block that has left its list, outside the largest run of memory.
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

/// [`alloc_in_sequence`] where CPUs lock their lists.
///
/// # Safety
///
/// As for [`alloc`]; and `yard` is not null, and has no sequences.
#[inline(always)]
unsafe fn alloc_locked<Y: Handle>(
    yard: *const Y,
    order: Order,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        let handle = &*yard;
        assert_unchecked(!has_sequences(handle));
        if handle.is_usable() && flags & !USUAL_FLAGS == 0 && !frame.is_null() {
            match handle.yard().at_once().alloc_locked(order, Gfp::from_bits_truncate(flags)) {
                AllocAtOnce::Done(pfn) => {
                    frame.write(pfn.0);
                    return fy_status::FY_OK;
                }
                AllocAtOnce::Nothing => {}
                AllocAtOnce::Unfinished(alloc) => return finish_alloc(yard, alloc, frame, error),
            }
        }
        alloc_rest(yard, u32::from(order.0), flags, frame, error)
    }
}

/// [`alloc_locked`] of single frames.
///
/// # Safety
///
/// As there.
#[inline(never)]
unsafe extern "C" fn alloc_single_locked<Y: Handle>(
    yard: *const Y,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { alloc_locked(yard, Order::ZERO, flags, frame, error) }
}

/// [`alloc_locked`] of blocks.
///
/// # Safety
///
/// As there; and `order` is not 0.
#[inline(never)]
unsafe extern "C" fn alloc_larger_locked<Y: Handle>(
    yard: *const Y,
    order: u32,
    flags: u32,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        if order > LARGEST_ORDER {
            return alloc_rest(yard, order, flags, frame, error);
        }
        alloc_locked(yard, larger(order), flags, frame, error)
    }
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

/// `fy_free`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn free<Y: Handle>(yard: *const Y, frame: u64, order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        let Some(handle) = yard.as_ref() else { return free_rest(yard, frame, order, error) };
        match (has_sequences(handle), order) {
            (true, 0) => free_in_sequence(handle, frame, Order::ZERO, error),
            (true, _) => free_larger(yard, frame, order, error),
            (false, 0) => free_single_locked(yard, frame, error),
            (false, _) => free_larger_locked(yard, frame, order, error),
        }
    }
}

/// [`free()`] of another order than 0, where CPUs use their lists in sequences.
///
/// # Safety
///
/// As for [`free()`]; and `yard` is not null, and has sequences. `order` is not 0.
#[inline(never)]
unsafe extern "C" fn free_larger<Y: Handle>(yard: *const Y, frame: u64, order: u32, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        if order > LARGEST_ORDER {
            return free_rest(yard, frame, order, error);
        }
        let handle = &*yard;
        assert_unchecked(has_sequences(handle));
        free_in_sequence(handle, frame, larger(order), error)
    }
}

/// [`free()`] where CPUs use their lists in sequences.
///
/// # Safety
///
/// As for [`free()`].
#[inline(always)]
unsafe fn free_in_sequence<Y: Handle>(handle: &Y, frame: u64, order: Order, error: *mut fy_error) -> fy_status {
    let yard = ptr::from_ref(handle);
    if handle.is_usable() {
        match handle.yard().at_once().free(Pfn(frame), order) {
            FreeAtOnce::Done => return fy_status::FY_OK,
            FreeAtOnce::Nothing => {}
            // SAFETY: passed on to the caller.
            FreeAtOnce::Unfinished(free) => return unsafe { finish_free(yard, free, error) },
        }
    }
    // SAFETY: passed on to the caller.
    unsafe { free_rest(yard, frame, u32::from(order.0), error) }
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

/// [`free_in_sequence`] where CPUs lock their lists.
///
/// # Safety
///
/// As for [`free()`]; and `yard` is not null, and has no sequences.
#[inline(always)]
unsafe fn free_locked<Y: Handle>(yard: *const Y, frame: u64, order: Order, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        let handle = &*yard;
        assert_unchecked(!has_sequences(handle));
        if handle.is_usable() {
            match handle.yard().at_once().free_locked(Pfn(frame), order) {
                FreeAtOnce::Done => return fy_status::FY_OK,
                FreeAtOnce::Nothing => {}
                FreeAtOnce::Unfinished(free) => return finish_free(yard, free, error),
            }
        }
        free_rest(yard, frame, u32::from(order.0), error)
    }
}

/// [`free_locked`] of single frames.
///
/// # Safety
///
/// As there.
#[inline(never)]
unsafe extern "C" fn free_single_locked<Y: Handle>(yard: *const Y, frame: u64, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { free_locked(yard, frame, Order::ZERO, error) }
}

/// [`free_locked`] of blocks.
///
/// # Safety
///
/// As there; and `order` is not 0.
#[inline(never)]
unsafe extern "C" fn free_larger_locked<Y: Handle>(
    yard: *const Y,
    frame: u64,
    order: u32,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        if order > LARGEST_ORDER {
            return free_rest(yard, frame, order, error);
        }
        free_locked(yard, frame, larger(order), error)
    }
}

/// [`free()`] of a block that is not allocated as the caller says, or lies outside the largest run of memory, or with a bad handle.
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
