//! The calls, generic over the handle. `functions!` declares the C functions that make them.

pub(crate) mod alloc;
pub(crate) mod block;
pub(crate) mod devices;
pub(crate) mod frames;
pub(crate) mod request;
pub(crate) mod statistics;
pub(crate) mod text;
pub(crate) mod upkeep;

pub use alloc::{alloc_bulk, alloc_exact, alloc_on, free_bulk, free_range, join, split, split_at};
pub use block::{alloc, free};
pub use devices::{
    device_add_entry, device_at, device_get, device_info, device_join, device_list, device_map, device_put,
    device_remove_entry, device_split, device_unmap,
};
pub use frames::{address, frame_at, frame_info, yard_geometry};
pub use request::alloc_request;
pub use statistics::yard_statistics;
pub use text::yard_text;
pub use upkeep::{policy_of, yard_compact, yard_drain, yard_drain_cpu, yard_policy, yard_set_policy, yard_validate};
