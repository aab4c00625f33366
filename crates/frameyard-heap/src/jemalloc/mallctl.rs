//! Values of jemalloc's that have names (`mallctl`), and the options that it starts with.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use tikv_jemalloc_sys as sys;

/// A string in a static.
#[repr(transparent)]
struct Options(*const c_char);

// SAFETY: the string is constant.
unsafe impl Sync for Options {}

/// jemalloc reads its options here.
///
/// - `retain:false`: extents that are no longer used return to the yard, and new ones have the size that is needed.
/// - `narenas_ratio:1`: an arena for each CPU. All arenas exist from the start, and each takes 2 MiB of the yard.
/// - `oversize_threshold:0`: no arena for large extents alone, which would be created late and without hooks.
/// - `cache_oblivious:false`: an allocation of whole huge pages is an extent of whole huge pages.
#[unsafe(export_name = "_rjem_malloc_conf")]
static OPTIONS: Options = Options(c"retain:false,narenas_ratio:1,oversize_threshold:0,cache_oblivious:false".as_ptr());

/// Reads a value of jemalloc's, whose type `T` must be.
pub(crate) fn read<T: Copy + Default>(name: &CStr) -> Option<T> {
    // The string of options is linked in together with this function.
    std::hint::black_box(&OPTIONS);
    let mut value = T::default();
    let mut size = size_of::<T>();
    // SAFETY: jemalloc writes a value of that size, or nothing and fails if its size is another.
    let status =
        unsafe { sys::mallctl(name.as_ptr(), (&raw mut value).cast::<c_void>(), &raw mut size, ptr::null_mut(), 0) };
    (status == 0).then_some(value)
}

/// Writes a value of jemalloc's. An error is the number that jemalloc returns.
///
/// # Safety
///
/// The value is what jemalloc requires for that name.
pub(crate) unsafe fn write<T>(name: &CStr, mut value: T) -> Result<(), i32> {
    // SAFETY: jemalloc reads a value of that size, or nothing and fails if its size is another. The rest is passed on.
    let status = unsafe {
        let value = (&raw mut value).cast::<c_void>();
        sys::mallctl(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), value, size_of::<T>())
    };
    if status == 0 { Ok(()) } else { Err(status) }
}

/// Creates an arena with hooks, and returns its number.
///
/// # Safety
///
/// The hooks live as long as the process, and have the layout of jemalloc's.
pub(crate) unsafe fn create_arena(mut hooks: *const c_void) -> Result<u32, i32> {
    let (mut arena, mut size) = (0_u32, size_of::<u32>());
    // SAFETY: passed on to the caller; jemalloc writes a number of that size.
    let status = unsafe {
        let (result, value) = ((&raw mut arena).cast::<c_void>(), (&raw mut hooks).cast::<c_void>());
        sys::mallctl(c"arenas.create".as_ptr(), result, &raw mut size, value, size_of_val(&hooks))
    };
    if status == 0 { Ok(arena) } else { Err(status) }
}
