//! The C library's functions for memory, under their own names.
//!
//! All go to jemalloc, before the yard exists and after. Thus memory is freed where it was allocated, whenever that was.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use frameyard_jemalloc::jemalloc as sys;
use frameyard_jemalloc::or_purge;

/// The page size of the machine.
const PAGE: usize = 4096;

fn fail(error: c_int) -> *mut c_void {
    // SAFETY: the calling thread's own number.
    unsafe { *libc::__errno_location() = error };
    ptr::null_mut()
}

// The safety of each function is its C contract, which its caller keeps; each passes its arguments on.

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: any size.
    or_purge(|| unsafe { sys::malloc(size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: any sizes.
    or_purge(|| unsafe { sys::calloc(count, size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if size == 0 {
        // SAFETY: passed on to the caller. jemalloc frees the block and returns null, so there is no second try.
        return unsafe { sys::realloc(block, 0) };
    }
    // SAFETY: passed on to the caller. The block is as before if jemalloc returns null.
    or_purge(|| unsafe { sys::realloc(block, size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: passed on to the caller.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => fail(libc::ENOMEM),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: passed on to the caller.
    unsafe { sys::free(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: passed on to the caller.
    unsafe { sys::free(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, align: usize, size: usize) -> c_int {
    let status = Cell::new(0);
    or_purge(|| {
        // SAFETY: passed on to the caller.
        status.set(unsafe { sys::posix_memalign(block, align, size) });
        // A second try would not help against a wrong alignment.
        if status.get() == libc::ENOMEM { ptr::null_mut() } else { block }
    });
    status.get()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: jemalloc checks the alignment.
    or_purge(|| unsafe { sys::aligned_alloc(align, size) })
}

/// As the C library's: an alignment that is no power of two is rounded up.
#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        // SAFETY: any size.
        Some(align) => or_purge(|| unsafe { sys::aligned_alloc(align, size) }),
        None => fail(libc::EINVAL),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: any size.
    or_purge(|| unsafe { sys::aligned_alloc(PAGE, size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.max(1).checked_next_multiple_of(PAGE) {
        // SAFETY: any size.
        Some(size) => or_purge(|| unsafe { sys::aligned_alloc(PAGE, size) }),
        None => fail(libc::ENOMEM),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: passed on to the caller; null has size 0.
    unsafe { sys::malloc_usable_size(block) }
}
