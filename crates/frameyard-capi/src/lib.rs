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
#[expect(clippy::wildcard_imports, reason = "the types and constants of the header")]
pub use frameyard_c_calls::*;
pub use functions::*;
pub use handle::fy_yard;
pub use log::fy_log_fn;
