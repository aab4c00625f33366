#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]
#![expect(non_camel_case_types, reason = "types have the names that they have in C")]

mod create;
mod failure;
mod functions;
mod handle;
mod log;

pub use create::{
    FY_BACKING_ANONYMOUS, FY_BACKING_HUGETLB_1G, FY_BACKING_HUGETLB_2M, FY_BACKING_MEMFD, FY_BACKING_PHANTOM,
    FY_HUGE_PAGES_ADVISE, FY_HUGE_PAGES_DEFAULT, FY_HUGE_PAGES_NEVER, fy_config, fy_yard_create, fy_yard_create_shared,
    fy_yard_destroy, fy_yard_open_shared,
};
#[doc(no_inline)]
pub use frameyard_c_calls::*;
pub use functions::{
    fy_address, fy_alloc, fy_alloc_bulk, fy_alloc_exact, fy_alloc_on, fy_alloc_request, fy_frame_at, fy_frame_info,
    fy_free, fy_free_bulk, fy_free_range, fy_split, fy_yard_compact, fy_yard_drain, fy_yard_drain_cpu,
    fy_yard_geometry, fy_yard_policy, fy_yard_set_policy, fy_yard_statistics, fy_yard_text, fy_yard_validate,
};
pub use handle::fy_yard;
pub use log::fy_log_fn;
