// Links of the README, which come first so that they replace its own links to docs.rs.
#![cfg_attr(
    feature = "jemalloc",
    doc = "
[`jemalloc::Heap`]: jemalloc::Heap
[`jemalloc::Settings`]: jemalloc::Settings
[`jemalloc::install`]: jemalloc::install
[`jemalloc::installed`]: jemalloc::installed
[`jemalloc::HeapYard`]: jemalloc::HeapYard
[`jemalloc::HeapSummary`]: jemalloc::HeapSummary
[`jemalloc::purge`]: fn@jemalloc::purge
"
)]
#![cfg_attr(
    feature = "mimalloc",
    doc = "
[`mimalloc::Heap`]: mimalloc::Heap
[`mimalloc::ArenaUsage`]: mimalloc::ArenaUsage
[`mimalloc::ArenaHeap`]: mimalloc::ArenaHeap
"
)]
//!
#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

#[cfg(feature = "jemalloc")]
pub mod jemalloc;
#[cfg(feature = "mimalloc")]
pub mod mimalloc;
