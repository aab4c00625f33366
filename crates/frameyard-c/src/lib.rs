// Links of the README, which come first so that they replace its own links to docs.rs.
#![cfg_attr(
    all(feature = "hosted", target_os = "linux"),
    doc = "
[`hosted`]: hosted
[`fy_config`]: hosted::fy_config
[`fy_yard_create`]: hosted::fy_yard_create
[`fy_yard_create_shared`]: hosted::fy_yard_create_shared
[`fy_yard_open_shared`]: hosted::fy_yard_open_shared
[`fy_alloc`]: hosted::fy_alloc
[`fy_free`]: hosted::fy_free
[`fy_address`]: hosted::fy_address
"
)]
#![cfg_attr(
    feature = "kernel",
    doc = "
[`kernel`]: kernel
[`fy_platform_ops`]: kernel::fy_platform_ops
[`fy_core_create`]: kernel::fy_core_create
"
)]
#![cfg_attr(
    any(feature = "hosted", feature = "kernel"),
    doc = "
[`shared`]: shared
[`fy_status`]: shared::fy_status
[`fy_error`]: shared::fy_error
"
)]
#![cfg_attr(feature = "memblock", doc = "[`memblock`]: memblock")]
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![cfg_attr(
    any(feature = "hosted", feature = "kernel", feature = "memblock"),
    expect(non_camel_case_types, reason = "types have the names that they have in C")
)]

#[cfg(all(feature = "freestanding", not(any(test, feature = "std"))))]
mod freestanding;
#[cfg(all(feature = "hosted", target_os = "linux"))]
pub mod hosted;
#[cfg(feature = "kernel")]
pub mod kernel;
#[cfg(feature = "memblock")]
pub mod memblock;
#[cfg(any(feature = "hosted", feature = "kernel"))]
pub mod shared;
