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
