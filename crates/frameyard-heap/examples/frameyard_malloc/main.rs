//! `libframeyard_malloc.so`, a library for `LD_PRELOAD`: `malloc` and its relatives on jemalloc or mimalloc, in a yard.
//!
//! It is a target of its own, so that no Rust program gets these functions with the crate. The README has its variables.

#![cfg(target_os = "linux")]

mod exit;
mod malloc;
mod mimalloc;
mod start;
