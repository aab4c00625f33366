//! The interface for kernels: `libframeyard_core.a` and `frameyard_core.h`.
//!
//! A kernel fills [`fy_platform_ops`], a structure of function pointers, and calls [`fy_core_create`] with its ranges of memory. All other
//! functions are those of `frameyard.h`, with the same names and arguments. A program links one of the two libraries. Rust kernels use the
//! crate `frameyard` instead.

mod create;
mod handle;
mod place;
pub(crate) mod platform;
mod source;

pub use create::{fy_core_config, fy_core_create, fy_core_tables, fy_yard_destroy};
pub use handle::fy_yard;
pub use platform::{FY_ALL_CPUS, fy_guard, fy_platform_ops};
pub use source::fy_memory;

// The C functions of a yard. Beside those of the module `hosted`, which have the same names in C, they are functions of Rust alone.
crate::shared::functions!(fy_yard, cfg_attr(not(feature = "hosted"), unsafe(no_mangle)));
crate::shared::device_functions!(fy_yard, cfg_attr(not(feature = "hosted"), unsafe(no_mangle)));
