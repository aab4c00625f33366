//! The interface for kernels: `libframeyard_core.a` and `frameyard_core.h`.
//!
//! A kernel fills [`fy_platform_ops`], a structure of function pointers, and calls [`fy_core_create`] with its ranges of memory. All other
//! functions are those of `frameyard.h`, with the same names and arguments. A program links one of the two libraries. Rust kernels use the
//! crate `frameyard` instead.

mod create;
mod functions;
mod handle;
mod place;
pub(crate) mod platform;
mod source;

pub use create::{fy_core_config, fy_core_create, fy_core_tables, fy_yard_destroy};
pub use functions::{
    fy_address, fy_alloc, fy_alloc_bulk, fy_alloc_exact, fy_alloc_on, fy_alloc_request, fy_device_add_entry,
    fy_device_at, fy_device_get, fy_device_info, fy_device_join, fy_device_list, fy_device_map, fy_device_put,
    fy_device_remove_entry, fy_device_split, fy_device_unmap, fy_frame_at, fy_frame_info, fy_free, fy_free_bulk,
    fy_free_range, fy_join, fy_split, fy_split_at, fy_yard_compact, fy_yard_drain, fy_yard_drain_cpu, fy_yard_geometry,
    fy_yard_policy, fy_yard_set_policy, fy_yard_statistics, fy_yard_text, fy_yard_validate,
};
pub use handle::fy_yard;
pub use platform::{FY_ALL_CPUS, fy_guard, fy_platform_ops};
pub use source::fy_memory;
