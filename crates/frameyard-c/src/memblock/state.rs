//! `struct memblock memblock`: the state, which users of the library may write.

use core::ffi::{c_char, c_int, c_uint, c_ulong};
use core::mem::{offset_of, size_of};
use core::ptr::null_mut;

use frameyard_memblock::Region;

/// A physical address or a size in bytes.
pub type phys_addr_t = u64;

/// A range of physical memory with one node and one set of flags.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct memblock_region {
    /// The first byte.
    pub base: phys_addr_t,
    /// The size in bytes.
    pub size: phys_addr_t,
    /// The flags of all bytes.
    pub flags: c_uint,
    /// The memory node; `MAX_NUMNODES` or `NUMA_NO_NODE` if there is none.
    pub nid: c_int,
}

/// A list of regions, sorted by address.
#[derive(Debug)]
#[repr(C)]
pub struct memblock_type {
    /// The number of regions.
    pub cnt: c_ulong,
    /// The number of regions for which the array has room.
    pub max: c_ulong,
    /// The size of all regions.
    pub total_size: phys_addr_t,
    /// The array.
    pub regions: *mut memblock_region,
    /// The name of the list.
    pub name: *mut c_char,
}

/// The early memory map.
#[derive(Debug)]
#[repr(C)]
pub struct memblock {
    /// Whether allocations start at the lowest address instead of the highest.
    pub bottom_up: bool,
    /// The end of the memory from which allocations without a maximum come.
    pub current_limit: phys_addr_t,
    /// The memory that exists.
    pub memory: memblock_type,
    /// The ranges in use.
    pub reserved: memblock_type,
}

// One array serves both languages.
const _: () = assert!(size_of::<memblock_region>() == size_of::<Region>());
const _: () = assert!(offset_of!(memblock_region, base) == offset_of!(Region, base));
const _: () = assert!(offset_of!(memblock_region, size) == offset_of!(Region, size));
const _: () = assert!(offset_of!(memblock_region, flags) == offset_of!(Region, flags));
const _: () = assert!(offset_of!(memblock_region, nid) == offset_of!(Region, node));

/// The number of regions in each built-in array: the kernel's `INIT_MEMBLOCK_REGIONS`.
pub(crate) const BUILT_IN: usize = 128;

const NO_REGION: memblock_region = memblock_region { base: 0, size: 0, flags: 0, nid: 0 };

static mut MEMORY_REGIONS: [memblock_region; BUILT_IN] = [NO_REGION; BUILT_IN];
static mut RESERVED_REGIONS: [memblock_region; BUILT_IN] = [NO_REGION; BUILT_IN];

const fn list(regions: *mut memblock_region, name: &'static core::ffi::CStr) -> memblock_type {
    memblock_type { cnt: 0, max: BUILT_IN as c_ulong, total_size: 0, regions, name: name.as_ptr().cast_mut() }
}

/// The state of the early memory map. Programs may read and write it between two calls.
#[unsafe(no_mangle)]
pub static mut memblock: memblock = memblock {
    bottom_up: false,
    current_limit: phys_addr_t::MAX,
    memory: list((&raw mut MEMORY_REGIONS).cast(), c"memory"),
    reserved: list((&raw mut RESERVED_REGIONS).cast(), c"reserved"),
};

/// What the kernel keeps in static variables of its file.
#[derive(Debug)]
pub(crate) struct Hidden {
    pub(crate) can_resize: bool,
    pub(crate) has_mirror: bool,
    /// The arrays into which the lists have grown. A list whose array is another one is not freed by the library.
    pub(crate) grown: [*mut memblock_region; 2],
}

pub(crate) static mut HIDDEN: Hidden = Hidden { can_resize: false, has_mirror: false, grown: [null_mut(); 2] };
