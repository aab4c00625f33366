#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

#[cfg(feature = "jemalloc")]
pub mod jemalloc;
#[cfg(feature = "mimalloc")]
pub mod mimalloc;
