//! Questions.

use core::ffi::{c_int, c_ulong};
use core::fmt::Write;

use frameyard_memblock::RegionNode;
use frameyard_units::{ByteSize, Geometry, PhysAddr};

use crate::memblock::environment::{Lines, report};
use crate::memblock::state::{memblock, memblock_type, phys_addr_t};
use crate::memblock::view::{read, regions_of, valid_node};

const PAGE: u64 = Geometry::X86_64.page_size().0;
const NUMA_NO_NODE: c_int = -1;

/// Whether there is memory at an address. Cost: a binary search.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_is_memory(addr: phys_addr_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { read("memblock_is_memory", |map| map.is_memory(PhysAddr(addr))) }.unwrap_or(false)
}

/// Whether there is memory at an address that may be mapped.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_is_map_memory(addr: phys_addr_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { read("memblock_is_map_memory", |map| map.is_map_memory(PhysAddr(addr))) }.unwrap_or(false)
}

/// Whether one memory region contains the whole range.
///
/// False for a range across two regions with different nodes or flags.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_is_region_memory(base: phys_addr_t, size: phys_addr_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { read("memblock_is_region_memory", |map| map.is_region_memory(PhysAddr(base), ByteSize(size))) }
        .unwrap_or(false)
}

/// Whether an address is reserved.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_is_reserved(addr: phys_addr_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { read("memblock_is_reserved", |map| map.is_reserved(PhysAddr(addr))) }.unwrap_or(false)
}

/// Whether any byte of a range is reserved.
///
/// An empty range counts as reserved if it has reserved bytes of one region on both sides.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_is_region_reserved(base: phys_addr_t, size: phys_addr_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { read("memblock_is_region_reserved", |map| map.is_region_reserved(PhysAddr(base), ByteSize(size))) }
        .unwrap_or(false)
}

/// Whether two ranges overlap: 1 or 0. An empty range overlaps one that has bytes on both sides of it. Neither may wrap.
#[unsafe(no_mangle)]
pub extern "C" fn memblock_addrs_overlap(
    base1: phys_addr_t,
    size1: phys_addr_t,
    base2: phys_addr_t,
    size2: phys_addr_t,
) -> c_ulong {
    c_ulong::from(base1 < base2.wrapping_add(size2) && base2 < base1.wrapping_add(size1))
}

/// Whether a range overlaps a region of a list, as `memblock_addrs_overlap` does. `type` may be any list; null has no regions.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_overlaps_region(
    r#type: *mut memblock_type,
    base: phys_addr_t,
    size: phys_addr_t,
) -> bool {
    let end = base.saturating_add(size);
    // SAFETY: the caller's promise.
    let regions = unsafe { regions_of(r#type) };
    regions.iter().any(|region| base < region.end().0 && region.base.0 < end)
}

/// The size of all memory, reserved or not: `memblock.memory.total_size`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_phys_mem_size() -> phys_addr_t {
    // SAFETY: one thread at a time.
    unsafe { (&raw const memblock.memory.total_size).read() }
}

/// The size of all reservations: `memblock.reserved.total_size`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_reserved_size() -> phys_addr_t {
    // SAFETY: one thread at a time.
    unsafe { (&raw const memblock.reserved.total_size).read() }
}

/// The number of pages that are memory and not reserved, if all reservations are memory: the difference of the two sizes.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_estimated_nr_free_pages() -> c_ulong {
    // SAFETY: the caller's promise.
    let (memory, reserved) = unsafe { (memblock_phys_mem_size(), memblock_reserved_size()) };
    (memory.wrapping_sub(reserved) / PAGE) as c_ulong
}

/// The first byte of memory; 0 without memory.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_start_of_DRAM() -> phys_addr_t {
    // SAFETY: the caller's promise.
    unsafe { read("memblock_start_of_DRAM", |map| map.start_of_dram().unwrap_or_default().0) }.unwrap_or(0)
}

/// The end of the last memory region; 0 without memory.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_end_of_DRAM() -> phys_addr_t {
    // SAFETY: the caller's promise.
    unsafe { read("memblock_end_of_DRAM", |map| map.end_of_dram().unwrap_or_default().0) }.unwrap_or(0)
}

/// The node of the memory at a frame, and the frames of its region, both ends rounded down. Returns `NUMA_NO_NODE` and writes nothing if
/// the frame is not memory. The pointers may be null.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_search_pfn_nid(
    pfn: c_ulong,
    start_pfn: *mut c_ulong,
    end_pfn: *mut c_ulong,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe {
        read("memblock_search_pfn_nid", |map| {
            let address = PhysAddr(pfn.checked_mul(PAGE)?);
            map.memory_at(address).map(|region| (region.base.0 / PAGE, region.end().0 / PAGE, region.node))
        })
    };
    let Some((first, end, RegionNode(nid))) = found.flatten() else { return NUMA_NO_NODE };
    // SAFETY: the caller's pointers are null or can be written.
    unsafe {
        write_if(start_pfn, first as c_ulong);
        write_if(end_pfn, end as c_ulong);
    }
    nid
}

/// # Safety
///
/// The pointer is null or can be written.
pub(crate) unsafe fn write_if<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise.
        unsafe { pointer.write(value) };
    }
}

/// Whether no more than `threshold_bytes` of memory have no node. Reports the size if it is larger. Counts whole pages.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_validate_numa_coverage(threshold_bytes: c_ulong) -> bool {
    // SAFETY: the caller's promise.
    let lost = unsafe {
        read("memblock_validate_numa_coverage", |map| {
            let lost = map.memory().iter().filter(|region| valid_node(region.node.0).is_none());
            let pages = |region: &frameyard_memblock::Region| {
                (region.end().0 / PAGE).saturating_sub(region.base.0.div_ceil(PAGE))
            };
            lost.map(pages).sum::<u64>().saturating_mul(PAGE)
        })
    };
    let Some(lost) = lost else { return false };
    if lost <= threshold_bytes {
        return true;
    }
    let reason = format_args!("{lost} bytes of memory have no node, more than {threshold_bytes}");
    // SAFETY: the caller's promise.
    unsafe { report("memblock_validate_numa_coverage", &reason) };
    false
}

/// Prints both lists through `frameyard_memblock.print`, one region a line, as the kernel does in its boot log.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memblock_dump_all() {
    // SAFETY: the caller's promise.
    let Some(mut lines) = (unsafe { Lines::new() }) else { return };
    // SAFETY: the caller's promise.
    unsafe { read("memblock_dump_all", |map| write!(lines, "{map}")) };
}
