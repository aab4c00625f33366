//! Allocations.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use frameyard_memblock::{EarlyRequest, NodeChoice};
use frameyard_units::{ByteSize, PhysAddr};

use crate::memblock::environment::OffsetMemory;
use crate::memblock::failure::Failure;
use crate::memblock::state::phys_addr_t;
use crate::memblock::view::{edit, read, status, valid_node};

/// The alignment of requests that name none: the kernel's `SMP_CACHE_BYTES`.
const CACHE_LINE: u64 = 64;

/// The largest maximum that means the current limit: `MEMBLOCK_ALLOC_ACCESSIBLE` and `MEMBLOCK_ALLOC_NOLEAKTRACE`.
const ACCESSIBLE: u64 = 1;

/// Whether an allocation may come from another node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fallback {
    OtherNodes,
    Never,
}

/// Whether an allocation clears its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bytes {
    Zeroed,
    Kept,
}

fn request(
    size: phys_addr_t,
    align: phys_addr_t,
    [min, max]: [phys_addr_t; 2],
    nid: c_int,
    fallback: Fallback,
) -> EarlyRequest {
    let align = if align == 0 { CACHE_LINE } else { align };
    let node = match (valid_node(nid), fallback) {
        (None, _) => NodeChoice::Any,
        (Some(node), Fallback::OtherNodes) => NodeChoice::Prefer(node),
        (Some(node), Fallback::Never) => NodeChoice::Exact(node),
    };
    let max = (max > ACCESSIBLE).then_some(PhysAddr(max));
    EarlyRequest { size: ByteSize(size), align: ByteSize(align), min: PhysAddr(min), max, node }
}

/// # Safety
///
/// Those of the crate.
unsafe fn physical(function: &str, request: EarlyRequest) -> phys_addr_t {
    // SAFETY: the caller's promise.
    unsafe { edit(function, |map| Ok(map.phys_alloc(request)?.0)) }.unwrap_or(0)
}

/// # Safety
///
/// Those of the crate.
unsafe fn mapped(function: &str, request: EarlyRequest, bytes: Bytes) -> *mut c_void {
    // SAFETY: the caller's promise.
    let block = unsafe {
        edit(function, |map| match bytes {
            Bytes::Zeroed => Ok(map.alloc(request)?),
            Bytes::Kept => Ok(map.alloc_raw(request)?),
        })
    };
    block.map_or(null_mut(), |block| block.pointer.as_ptr().cast())
}

/// Returns the address at which `size` bytes between `start` and `end` are free, without reserving them; 0 if there are none.
///
/// `align` is a power of two; 0 means a cache line of 64 bytes. If `end` is `MEMBLOCK_ALLOC_ACCESSIBLE`, it is the current limit.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_find_in_range(
    start: phys_addr_t,
    end: phys_addr_t,
    size: phys_addr_t,
    align: phys_addr_t,
) -> phys_addr_t {
    let request = request(size, align, [start, end], -1, Fallback::OtherNodes);
    // SAFETY: the caller's promise.
    unsafe { read("memblock_find_in_range", |map| map.find(request).map_or(0, |address| address.0)) }.unwrap_or(0)
}

/// Allocates physical memory, which need not be mapped. Returns its address, or 0.
///
/// `nid` is the preferred node, or the only one if `exact_nid` is set; `NUMA_NO_NODE` means any. The memory lies in one region. It is
/// never no-map or driver-managed memory or the first page, and not hotpluggable memory if `movable_node_is_enabled`. Mirrored memory is
/// tried first. `size` 0 returns 0. (Linux returns an address that it has not reserved.) `align`, `start` and `end` are as in
/// `memblock_find_in_range`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_alloc_range_nid(
    size: phys_addr_t,
    align: phys_addr_t,
    start: phys_addr_t,
    end: phys_addr_t,
    nid: c_int,
    exact_nid: bool,
) -> phys_addr_t {
    let fallback = if exact_nid { Fallback::Never } else { Fallback::OtherNodes };
    // SAFETY: the caller's promise.
    unsafe { physical("memblock_alloc_range_nid", request(size, align, [start, end], nid, fallback)) }
}

/// Allocates physical memory between `start` and `end`, on any node. Otherwise as `memblock_alloc_range_nid`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_phys_alloc_range(
    size: phys_addr_t,
    align: phys_addr_t,
    start: phys_addr_t,
    end: phys_addr_t,
) -> phys_addr_t {
    // SAFETY: the caller's promise.
    unsafe { physical("memblock_phys_alloc_range", request(size, align, [start, end], -1, Fallback::OtherNodes)) }
}

/// Allocates physical memory below the current limit, from the node if it can. Otherwise as `memblock_alloc_range_nid`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_phys_alloc_try_nid(size: phys_addr_t, align: phys_addr_t, nid: c_int) -> phys_addr_t {
    // SAFETY: the caller's promise.
    unsafe { physical("memblock_phys_alloc_try_nid", request(size, align, [0, 0], nid, Fallback::OtherNodes)) }
}

/// Allocates zeroed memory. Returns a pointer to it, or null.
///
/// `nid` is the preferred node; `NUMA_NO_NODE` means any. `align` is a power of two; 0 means a cache line of 64 bytes. A maximum above
/// the current limit is lowered to the limit. If nothing fits, the search ignores the minimum. The pointer is the physical address plus
/// `frameyard_memblock.va_offset`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_alloc_try_nid(
    size: phys_addr_t,
    align: phys_addr_t,
    min_addr: phys_addr_t,
    max_addr: phys_addr_t,
    nid: c_int,
) -> *mut c_void {
    let request = request(size, align, [min_addr, max_addr], nid, Fallback::OtherNodes);
    // SAFETY: the caller's promise.
    unsafe { mapped("memblock_alloc_try_nid", request, Bytes::Zeroed) }
}

/// Allocates memory and leaves its bytes as they are. Otherwise as `memblock_alloc_try_nid`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_alloc_try_nid_raw(
    size: phys_addr_t,
    align: phys_addr_t,
    min_addr: phys_addr_t,
    max_addr: phys_addr_t,
    nid: c_int,
) -> *mut c_void {
    let request = request(size, align, [min_addr, max_addr], nid, Fallback::OtherNodes);
    // SAFETY: the caller's promise.
    unsafe { mapped("memblock_alloc_try_nid_raw", request, Bytes::Kept) }
}

/// Allocates memory of one node and leaves its bytes as they are. Otherwise as `memblock_alloc_try_nid`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_alloc_exact_nid_raw(
    size: phys_addr_t,
    align: phys_addr_t,
    min_addr: phys_addr_t,
    max_addr: phys_addr_t,
    nid: c_int,
) -> *mut c_void {
    let request = request(size, align, [min_addr, max_addr], nid, Fallback::Never);
    // SAFETY: the caller's promise.
    unsafe { mapped("memblock_alloc_exact_nid_raw", request, Bytes::Kept) }
}

/// Drops the reservation of memory from one of the functions above. `ptr` may be null. Reports failures as `memblock_phys_free` does.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_free(ptr: *mut c_void, size: usize) {
    if ptr.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let address = unsafe { OffsetMemory::new() }.address_of(ptr.cast());
    let free = |map: &mut crate::memblock::view::Map| -> Result<(), Failure> {
        Ok(map.phys_free(address, ByteSize(size as u64))?)
    };
    // SAFETY: the caller's promise.
    status(unsafe { edit("memblock_free", free) });
}
