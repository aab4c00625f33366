#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
#![expect(non_camel_case_types, reason = "types have the names that they have in C")]

mod create;
#[cfg(feature = "freestanding")]
mod freestanding;
mod functions;
mod handle;
mod place;
mod platform;
mod source;

pub use create::{fy_core_config, fy_core_create, fy_core_tables, fy_memory, fy_yard_destroy};
#[doc(no_inline)]
#[expect(clippy::wildcard_imports, reason = "the types and constants of the header")]
pub use frameyard_c_calls::*;
pub use functions::*;
pub use handle::fy_yard;
pub use platform::{FY_ALL_CPUS, fy_platform_ops, fy_section};
