//! What the interfaces of yards share: statuses, errors, structures that carry their size, and the calls. `no_std`, and without a heap.
//!
//! The calls are generic over the handle of a yard, and each interface compiles them for its own. No function has two versions.
//!
//! | module | contents |
//! |---|---|
//! | `status`, `error`, `version` | [`fy_status`], [`fy_error`], and the functions that need no yard |
//! | `sized`, `text_buffer` | structures that carry their size, text in a buffer of the caller |
//! | `fault` | why a call failed, and the status of each reason |
//! | `handle` | the trait [`Handle`] of a C handle, and the frame of every call |
//! | `calls` | the calls, generic over the handle |
//! | `functions`, `device_functions` | the macros that declare the C functions for a handle type |

pub mod calls;
mod device_functions;
mod error;
mod facts;
mod fault;
mod functions;
mod handle;
pub mod sized;
mod status;
mod text_buffer;
mod version;

pub use calls::alloc::{
    FY_GFP_ATOMIC, FY_GFP_DIRECT_RECLAIM, FY_GFP_HIGH, FY_GFP_KERNEL, FY_GFP_MOVABLE, FY_GFP_NOFRAGMENT,
    FY_GFP_NORETRY, FY_GFP_NOWAIT, FY_GFP_NOWARN, FY_GFP_RECLAIMABLE, FY_GFP_THISNODE, FY_GFP_USER, FY_GFP_ZERO,
    fy_range, range_of,
};
pub use calls::devices::{
    FY_DEVICE_DEDUPLICATED, FY_DEVICE_DEDUPLICATED_TWO, FY_DEVICE_FOLDED, FY_DEVICE_FULL, FY_DEVICE_MAP_IN_DEVICE,
    FY_DEVICE_MAP_IN_MEMORY, FY_DEVICE_REFUSE, FY_DEVICE_WAIT, fy_device, fy_device_request,
};
pub use calls::frames::{
    FY_STATE_ALLOCATED, FY_STATE_COUNTED, FY_STATE_DEVICE, FY_STATE_FREE, FY_STATE_IN_TRANSIT, FY_STATE_INTERIOR,
    FY_STATE_ISOLATED, FY_STATE_OFFLINE, FY_STATE_OWNED, FY_STATE_PER_CPU, FY_STATE_POISONED, FY_STATE_POOLED,
    FY_STATE_RESERVED, FY_STATE_UNINITIALISED, fy_frame, fy_geometry,
};
pub use calls::request::{fy_reclaim, fy_reclaim_fn, fy_request};
pub use calls::statistics::fy_statistics;
pub use calls::text::{
    FY_TEXT_BUDDYINFO, FY_TEXT_LINUX_6_1, FY_TEXT_METRICS, FY_TEXT_PAGETYPEINFO, FY_TEXT_PROMETHEUS, FY_TEXT_VMSTAT,
    FY_TEXT_ZONEINFO,
};
pub use calls::upkeep::fy_policy_name;
pub(crate) use device_functions::device_functions;
pub use error::{FY_MESSAGE_BYTES, FY_NO_FRAME, FY_NO_NODE, FY_NO_ORDER, FY_NO_STATE, fy_error, fy_error_message};
pub use facts::{device_facts, lock_status};
pub use fault::{Failure, Fault, boot_status, device_status, report};
pub(crate) use functions::functions;
pub use handle::{FY_LOG_ERROR, FY_LOG_INFO, FY_LOG_WARNING, Handle, call, call_for, call_with, place, usable};
pub use status::{fy_status, fy_strerror};
pub use text_buffer::TextBuffer;
pub use version::{
    FY_VERSION, FY_VERSION_MAJOR, FY_VERSION_MINOR, FY_VERSION_PATCH, check_version, fy_version, fy_version_text,
};
