//! Edits of the lists.

use core::ffi::{c_int, c_uint};

use frameyard_memblock::{MemblockError, RegionFlags, RegionNode};
use frameyard_units::{ByteSize, PhysAddr};

use crate::memblock::environment::frameyard_memblock;
use crate::memblock::failure::Failure;
use crate::memblock::state::{HIDDEN, memblock_type, phys_addr_t};
use crate::memblock::view::{Map, edit, list_at, status};

/// A change of one range.
///
/// # Safety
///
/// Those of the crate.
unsafe fn change(
    function: &str,
    base: phys_addr_t,
    size: phys_addr_t,
    operation: impl FnOnce(&mut Map, PhysAddr, ByteSize) -> Result<(), MemblockError>,
) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { edit(function, |map| Ok(operation(map, PhysAddr(base), ByteSize(size))?)) })
}

/// Allows full lists to double into memory that the map considers free. Call it when all memory in use is reserved.
///
/// Before this call, an operation that needs a slot of a full list returns `-ENOMEM`. (Linux panics.)
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_allow_resize() {
    // SAFETY: one thread at a time.
    unsafe { (&raw mut HIDDEN.can_resize).write(true) };
}

/// Adds memory of no known node. Returns 0 or a negative error number.
///
/// If the range overlaps memory, only the gaps are filled: existing regions keep their node and flags. A range that extends past the
/// end of the address space is cut off there; an empty range changes nothing. Cost: linear in the list.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_add(base: phys_addr_t, size: phys_addr_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change("memblock_add", base, size, Map::add) }
}

/// Adds memory of a node, with flags. Otherwise as `memblock_add`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_add_node(base: phys_addr_t, size: phys_addr_t, nid: c_int, flags: c_uint) -> c_int {
    let flags = RegionFlags::from_bits(flags);
    // SAFETY: the caller's promise.
    unsafe {
        change("memblock_add_node", base, size, |map, base, size| map.add_node(base, size, RegionNode(nid), flags))
    }
}

/// Removes memory; its reservations stay. Returns 0 or a negative error number.
///
/// Parts of the range that are not memory stay as they are.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_remove(base: phys_addr_t, size: phys_addr_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change("memblock_remove", base, size, Map::remove) }
}

/// Marks a range as in use. Returns 0 or a negative error number.
///
/// The range need not be memory, and parts of it may be reserved already.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_reserve(base: phys_addr_t, size: phys_addr_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change("memblock_reserve", base, size, Map::reserve) }
}

/// Drops the reservation of a range, regardless of the call that made it. Returns 0 or a negative error number.
///
/// Parts that are not reserved stay free. `-EBUSY`: the range holds an array into which a list has grown. (Linux does not check.)
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_phys_free(base: phys_addr_t, size: phys_addr_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change("memblock_phys_free", base, size, Map::phys_free) }
}

/// Marks memory that may be unplugged (`MEMBLOCK_HOTPLUG`). Returns 0 or a negative error number.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_mark_hotplug(base: phys_addr_t, size: phys_addr_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change("memblock_mark_hotplug", base, size, Map::mark_hotplug) }
}

/// Undoes `memblock_mark_hotplug`. Returns 0 or a negative error number.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_clear_hotplug(base: phys_addr_t, size: phys_addr_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change("memblock_clear_hotplug", base, size, Map::clear_hotplug) }
}

/// Marks mirrored memory (`MEMBLOCK_MIRROR`), which allocations prefer from now on. Returns 0 or a negative error number.
///
/// Does nothing unless `frameyard_memblock.mirrored_kernelcore` is set.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_mark_mirror(base: phys_addr_t, size: phys_addr_t) -> c_int {
    // SAFETY: one thread at a time. A byte that C wrote to a `bool` is read as a number.
    if unsafe { (&raw const frameyard_memblock.mirrored_kernelcore).cast::<u8>().read() } == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { change("memblock_mark_mirror", base, size, Map::mark_mirror) }
}

/// Marks memory that must be neither mapped nor allocated (`MEMBLOCK_NOMAP`). Returns 0 or a negative error number.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_mark_nomap(base: phys_addr_t, size: phys_addr_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change("memblock_mark_nomap", base, size, Map::mark_nomap) }
}

/// Undoes `memblock_mark_nomap`. Returns 0 or a negative error number.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_clear_nomap(base: phys_addr_t, size: phys_addr_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change("memblock_clear_nomap", base, size, Map::clear_nomap) }
}

/// Marks reserved memory whose page structures must not be initialised (`MEMBLOCK_RSRV_NOINIT`). Returns 0 or a negative error
/// number.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_reserved_mark_noinit(base: phys_addr_t, size: phys_addr_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change("memblock_reserved_mark_noinit", base, size, Map::reserved_mark_noinit) }
}

/// Sets the node of the regions in a range. Returns 0 or a negative error number.
///
/// `type` is `&memblock.memory` or `&memblock.reserved`. Any other list leads to `-EINVAL`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_set_node(
    base: phys_addr_t,
    size: phys_addr_t,
    r#type: *mut memblock_type,
    nid: c_int,
) -> c_int {
    let set = |map: &mut Map| -> Result<(), Failure> {
        Ok(map.set_node(list_at(r#type)?, PhysAddr(base), ByteSize(size), RegionNode(nid))?)
    };
    // SAFETY: the caller's promise.
    status(unsafe { edit("memblock_set_node", set) })
}
