//! Limits of memory and of allocations.

use frameyard_units::{ByteSize, PhysAddr};

use crate::memblock::state::{memblock, phys_addr_t};
use crate::memblock::view::edit;

/// Trims each memory region to whole multiples of `align`, a power of two, and drops regions without one. Reservations stay.
///
/// `memory.total_size` is correct afterwards. (In Linux it still counts what was cut off.)
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_trim_memory(align: phys_addr_t) {
    // SAFETY: the caller's promise. `edit` reports a failure.
    let _ = unsafe { edit("memblock_trim_memory", |map| Ok(map.trim(ByteSize(align))?)) };
}

/// Drops all memory outside a range, except no-map memory, and all reservations outside it.
///
/// Does nothing for an empty range and without memory. Refuses if an array into which a list has grown is outside the range. (Linux
/// does not check.)
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_cap_memory_range(base: phys_addr_t, size: phys_addr_t) {
    // SAFETY: the caller's promise. `edit` reports a failure.
    let _ = unsafe { edit("memblock_cap_memory_range", |map| Ok(map.cap(PhysAddr(base), ByteSize(size))?)) };
}

/// Keeps the lowest `memory_limit` bytes of memory and drops all memory and reservations above.
///
/// Does nothing if the limit is 0 or exceeds the amount of memory. Refuses as `memblock_cap_memory_range` does.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_enforce_memory_limit(memory_limit: phys_addr_t) {
    // SAFETY: the caller's promise. `edit` reports a failure.
    let _ =
        unsafe { edit("memblock_enforce_memory_limit", |map| Ok(map.enforce_memory_limit(ByteSize(memory_limit))?)) };
}

/// Keeps the lowest `limit` bytes of memory, and the no-map memory above them. Otherwise as `memblock_enforce_memory_limit`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_mem_limit_remove_map(limit: phys_addr_t) {
    // SAFETY: the caller's promise. `edit` reports a failure.
    let _ = unsafe { edit("memblock_mem_limit_remove_map", |map| Ok(map.mem_limit_remove_map(ByteSize(limit))?)) };
}

/// Sets `memblock.current_limit`, the end of the memory from which allocations without a maximum come.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_set_current_limit(limit: phys_addr_t) {
    // SAFETY: one thread at a time.
    unsafe { (&raw mut memblock.current_limit).write(limit) };
}

/// Returns `memblock.current_limit`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_get_current_limit() -> phys_addr_t {
    // SAFETY: one thread at a time.
    unsafe { (&raw const memblock.current_limit).read() }
}
