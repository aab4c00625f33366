#![doc = include_str!("../memblock.md")]

mod allocate;
mod edit;
mod environment;
mod failure;
mod iterate;
mod limits;
mod query;
mod state;
mod view;

pub use allocate::{
    memblock_alloc_exact_nid_raw, memblock_alloc_range_nid, memblock_alloc_try_nid, memblock_alloc_try_nid_raw,
    memblock_find_in_range, memblock_free, memblock_phys_alloc_range, memblock_phys_alloc_try_nid,
};
pub use edit::{
    memblock_add, memblock_add_node, memblock_allow_resize, memblock_clear_hotplug, memblock_clear_nomap,
    memblock_mark_hotplug, memblock_mark_mirror, memblock_mark_nomap, memblock_phys_free, memblock_remove,
    memblock_reserve, memblock_reserved_mark_noinit, memblock_set_node,
};
pub use environment::{frameyard_memblock, memblock_environment};
pub use iterate::{__next_mem_pfn_range, __next_mem_range, __next_mem_range_rev};
pub use limits::{
    memblock_cap_memory_range, memblock_enforce_memory_limit, memblock_get_current_limit,
    memblock_mem_limit_remove_map, memblock_set_current_limit, memblock_trim_memory,
};
pub use query::{
    memblock_addrs_overlap, memblock_dump_all, memblock_end_of_DRAM, memblock_estimated_nr_free_pages,
    memblock_is_map_memory, memblock_is_memory, memblock_is_region_memory, memblock_is_region_reserved,
    memblock_is_reserved, memblock_overlaps_region, memblock_phys_mem_size, memblock_reserved_size,
    memblock_search_pfn_nid, memblock_start_of_DRAM, memblock_validate_numa_coverage,
};
pub use state::{memblock, memblock_region, memblock_type, phys_addr_t};
