#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

mod exit;
mod malloc;
mod mimalloc;
mod start;
