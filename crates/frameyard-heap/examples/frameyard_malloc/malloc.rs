//! The C library's functions for memory, under their own names.
//!
//! All go to jemalloc, before the yard exists and after. If mimalloc was chosen, new blocks come from its arena, and a block goes back to
//! the heap that it came from.

use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use frameyard_heap::jemalloc::or_purge;
use frameyard_heap::jemalloc::sys;
use frameyard_heap::mimalloc::ArenaHeap;

use crate::mimalloc::{heap, owner};

/// The page size of the machine.
const PAGE: usize = 4096;

/// Null, with an error number.
fn fail(error: c_int) -> *mut c_void {
    // SAFETY: the calling thread's own number.
    unsafe { *libc::__errno_location() = error };
    ptr::null_mut()
}

/// The block at an address, or null with the error number that C promises.
fn address(block: Option<NonNull<u8>>) -> *mut c_void {
    match block {
        Some(block) => block.as_ptr().cast(),
        None => fail(libc::ENOMEM),
    }
}

/// Allocates an aligned block. An alignment that is no power of two is an error.
fn allocate_aligned(heap: &ArenaHeap, size: usize, align: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        return fail(libc::EINVAL);
    }
    address(Layout::from_size_align(size, align).ok().and_then(|layout| heap.allocate(layout)))
}

/// `posix_memalign` without its checks of the arguments.
///
/// # Safety
///
/// The place is writable.
unsafe fn allocate_at(heap: &ArenaHeap, block: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // The function returns its error, and leaves the thread's number alone.
    // SAFETY: the calling thread's own number, which mimalloc may set.
    let error = unsafe { *libc::__errno_location() };
    let made = Layout::from_size_align(size, align).ok().and_then(|layout| heap.allocate(layout));
    // SAFETY: as above. The place is passed on from the caller.
    unsafe {
        *libc::__errno_location() = error;
        match made {
            Some(made) => block.write(made.as_ptr().cast()),
            None => return libc::ENOMEM,
        }
    }
    0
}

// The safety of each function is its C contract, which its caller keeps; each passes its arguments on.

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    if let Some(heap) = heap() {
        return address(heap.allocate_bytes(size));
    }
    // SAFETY: any size.
    or_purge(|| unsafe { sys::malloc(size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    if let Some(heap) = heap() {
        return address(count.checked_mul(size).and_then(|bytes| heap.allocate_zeroed_bytes(bytes)));
    }
    // SAFETY: any sizes.
    or_purge(|| unsafe { sys::calloc(count, size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if heap().is_some() {
        // SAFETY: passed on to the caller.
        return unsafe { realloc_in_arena(block, size) };
    }
    if size == 0 {
        // SAFETY: passed on to the caller. jemalloc frees the block and returns null, so there is no second try.
        return unsafe { sys::realloc(block, 0) };
    }
    // SAFETY: passed on to the caller. The block is as before if jemalloc returns null.
    or_purge(|| unsafe { sys::realloc(block, size) })
}

/// [`realloc`] where new blocks come from mimalloc. As the C library's: size 0 frees the block.
unsafe fn realloc_in_arena(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: passed on to the caller.
    unsafe {
        if block.is_null() {
            return malloc(size);
        }
        if size == 0 {
            free(block);
            return ptr::null_mut();
        }
        if let Some((heap, block)) = owner(block).zip(NonNull::new(block.cast())) {
            return address(heap.resize_bytes(block, size));
        }
        let moved = malloc(size);
        if !moved.is_null() {
            moved.cast::<u8>().copy_from_nonoverlapping(block.cast(), malloc_usable_size(block).min(size));
            free(block);
        }
        moved
    }
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
    unsafe {
        match owner(block).zip(NonNull::new(block.cast())) {
            Some((heap, block)) => heap.free(block),
            None => sys::free(block),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: passed on to the caller.
    unsafe { free(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if let Some(heap) = heap() {
        if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
            return libc::EINVAL;
        }
        // SAFETY: passed on to the caller.
        return unsafe { allocate_at(heap, block, align, size) };
    }
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
    if let Some(heap) = heap() {
        return allocate_aligned(heap, size, align);
    }
    // SAFETY: jemalloc checks the alignment.
    or_purge(|| unsafe { sys::aligned_alloc(align, size) })
}

/// As the C library's: an alignment that is no power of two is rounded up.
#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        // SAFETY: a power of two, and any size.
        Some(align) => unsafe { aligned_alloc(align, size) },
        None => fail(libc::EINVAL),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: any size.
    unsafe { aligned_alloc(PAGE, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.max(1).checked_next_multiple_of(PAGE) {
        // SAFETY: any size.
        Some(size) => unsafe { aligned_alloc(PAGE, size) },
        None => fail(libc::ENOMEM),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: passed on to the caller; null has size 0.
    unsafe {
        match owner(block).zip(NonNull::new(block.cast())) {
            Some((heap, block)) => heap.usable_size(block),
            None => sys::malloc_usable_size(block),
        }
    }
}
