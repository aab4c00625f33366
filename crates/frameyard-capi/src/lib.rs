#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]
#![expect(non_camel_case_types, reason = "types have the names that they have in C")]

mod alloc;
mod create;
mod error;
mod failure;
mod frames;
mod handle;
mod log;
mod request;
mod sized;
mod statistics;
mod status;
mod text;
mod text_buffer;
mod upkeep;
mod version;

pub use alloc::{
    FY_GFP_ATOMIC, FY_GFP_DIRECT_RECLAIM, FY_GFP_HIGH, FY_GFP_KERNEL, FY_GFP_MOVABLE, FY_GFP_NOFRAGMENT,
    FY_GFP_NORETRY, FY_GFP_NOWAIT, FY_GFP_NOWARN, FY_GFP_RECLAIMABLE, FY_GFP_THISNODE, FY_GFP_USER, FY_GFP_ZERO,
    fy_alloc, fy_alloc_bulk, fy_alloc_exact, fy_alloc_on, fy_free, fy_free_bulk, fy_free_range, fy_range, fy_split,
};
pub use create::{
    FY_BACKING_ANONYMOUS, FY_BACKING_HUGETLB_1G, FY_BACKING_HUGETLB_2M, FY_BACKING_MEMFD, FY_BACKING_PHANTOM,
    FY_HUGE_PAGES_ADVISE, FY_HUGE_PAGES_DEFAULT, FY_HUGE_PAGES_NEVER, fy_config, fy_yard_create, fy_yard_create_shared,
    fy_yard_destroy, fy_yard_open_shared,
};
pub use error::{FY_MESSAGE_BYTES, FY_NO_FRAME, FY_NO_NODE, FY_NO_ORDER, FY_NO_STATE, fy_error, fy_error_message};
pub use frames::{
    FY_STATE_ALLOCATED, FY_STATE_COUNTED, FY_STATE_DEVICE, FY_STATE_FREE, FY_STATE_HELD_FREE, FY_STATE_IN_TRANSIT,
    FY_STATE_INTERIOR, FY_STATE_ISOLATED, FY_STATE_OFFLINE, FY_STATE_OWNED, FY_STATE_PER_CPU, FY_STATE_POISONED,
    FY_STATE_POOLED, FY_STATE_RESERVED, FY_STATE_UNINITIALISED, fy_address, fy_frame, fy_frame_at, fy_frame_info,
    fy_geometry, fy_yard_geometry,
};
pub use handle::fy_yard;
pub use log::{FY_LOG_ERROR, FY_LOG_INFO, FY_LOG_WARNING, fy_log_fn};
pub use request::{fy_alloc_request, fy_reclaim, fy_reclaim_fn, fy_request};
pub use statistics::{fy_statistics, fy_yard_statistics};
pub use status::{fy_status, fy_strerror};
pub use text::{
    FY_TEXT_BUDDYINFO, FY_TEXT_LINUX_6_1, FY_TEXT_METRICS, FY_TEXT_PAGETYPEINFO, FY_TEXT_PROMETHEUS, FY_TEXT_VMSTAT,
    FY_TEXT_ZONEINFO, fy_yard_text,
};
pub use upkeep::{
    fy_policy_name, fy_yard_compact, fy_yard_drain, fy_yard_drain_cpu, fy_yard_policy, fy_yard_set_policy,
    fy_yard_validate,
};
pub use version::{FY_VERSION, FY_VERSION_MAJOR, FY_VERSION_MINOR, FY_VERSION_PATCH, fy_version, fy_version_text};
