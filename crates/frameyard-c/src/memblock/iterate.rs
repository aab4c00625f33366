//! One step of a walk: what the header's iterators call.

use core::ffi::{c_int, c_uint, c_ulong};
use core::ptr;

use frameyard_memblock::{NodeFilter, RangeCursor, RangeWalk, Region, RegionFlags, RegionList};
use frameyard_units::Geometry;

use crate::memblock::environment::movable_nodes;
use crate::memblock::query::write_if;
use crate::memblock::state::{memblock_type, phys_addr_t};
use crate::memblock::view::{fields_of, node_filter, regions_of, valid_node};

const PAGE: u64 = Geometry::X86_64.page_size().0;

/// The walk over `type_a` less `type_b`. Only the list of memory is filtered.
///
/// # Safety
///
/// Each list is null or can be read, and its array has `max` regions. Nothing writes them while the walk lives.
unsafe fn walk<'a>(
    nid: c_int,
    flags: c_uint,
    type_a: *const memblock_type,
    type_b: *const memblock_type,
) -> RangeWalk<'a> {
    // SAFETY: the caller's promise.
    let (regions, excluded) = unsafe { (regions_of(type_a), regions_of(type_b)) };
    let walk = RangeWalk::new(regions, (!type_b.is_null()).then_some(excluded));
    if !ptr::eq(type_a, fields_of(RegionList::Memory)) {
        return walk;
    }
    // SAFETY: the caller's promise.
    walk.only(node_filter(nid), RegionFlags::from_bits(flags), unsafe { movable_nodes() })
}

/// # Safety
///
/// The pointers are null or can be written.
unsafe fn put(range: Option<Region>, out_start: *mut phys_addr_t, out_end: *mut phys_addr_t, out_nid: *mut c_int) {
    if let Some(range) = range {
        // SAFETY: the caller's promise.
        unsafe {
            write_if(out_start, range.base.0);
            write_if(out_end, range.end().0);
            write_if(out_nid, range.node.0);
        }
    }
}

/// Finds the next range in `type_a` that is not in `type_b`, lowest first. The iterators above call it.
///
/// `*idx` is 0 before the first range and `ULLONG_MAX` behind the last. The lower half is the index of a region, the upper half that of a
/// gap between regions of `type_b`. `type_b` may be null. `nid` and `flags` select regions if `type_a` is `&memblock.memory`. The last
/// three pointers may be null. Between two adjacent regions of `type_b` lies an empty range, as in Linux.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __next_mem_range(
    idx: *mut u64,
    nid: c_int,
    flags: c_uint,
    type_a: *mut memblock_type,
    type_b: *mut memblock_type,
    out_start: *mut phys_addr_t,
    out_end: *mut phys_addr_t,
    out_nid: *mut c_int,
) {
    if idx.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let mut cursor = RangeCursor(idx.read());
        let range = walk(nid, flags, type_a, type_b).next(&mut cursor);
        idx.write(cursor.0);
        put(range, out_start, out_end, out_nid);
    }
}

/// Finds the next range in `type_a` that is not in `type_b`, highest first. `*idx` is `ULLONG_MAX` before the first range and behind the
/// last. Otherwise as `__next_mem_range`.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __next_mem_range_rev(
    idx: *mut u64,
    nid: c_int,
    flags: c_uint,
    type_a: *mut memblock_type,
    type_b: *mut memblock_type,
    out_start: *mut phys_addr_t,
    out_end: *mut phys_addr_t,
    out_nid: *mut c_int,
) {
    if idx.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let mut cursor = RangeCursor(idx.read());
        let range = walk(nid, flags, type_a, type_b).next_back(&mut cursor);
        idx.write(cursor.0);
        put(range, out_start, out_end, out_nid);
    }
}

/// Finds the next memory region with a whole page, lowest first, and its whole pages. `for_each_mem_pfn_range` calls it.
///
/// `*idx` is -1 before the first region and behind the last. `nid` selects a node; `MAX_NUMNODES` and `NUMA_NO_NODE` mean any. The last
/// three pointers may be null.
///
/// # Safety
///
/// Those of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __next_mem_pfn_range(
    idx: *mut c_int,
    nid: c_int,
    out_start_pfn: *mut c_ulong,
    out_end_pfn: *mut c_ulong,
    out_nid: *mut c_int,
) {
    if idx.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let (regions, last) = unsafe { (regions_of(fields_of(RegionList::Memory)), idx.read()) };
    let filter = node_filter(nid);
    let first = usize::try_from(i64::from(last) + 1).unwrap_or(0);
    for (index, region) in regions.iter().enumerate().skip(first) {
        let (start, end) = (region.base.0.div_ceil(PAGE), region.end().0 / PAGE);
        let admitted = match filter {
            NodeFilter::Any => true,
            NodeFilter::Only(node) => valid_node(region.node.0) == Some(node),
        };
        if start < end && admitted {
            // SAFETY: the caller's pointers can be written or, except for `idx`, are null.
            unsafe {
                idx.write(index as c_int);
                write_if(out_start_pfn, start as c_ulong);
                write_if(out_end_pfn, end as c_ulong);
                write_if(out_nid, region.node.0);
            }
            return;
        }
    }
    // SAFETY: as above.
    unsafe { idx.write(-1) };
}
