#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

mod arena;
mod heap;
mod slices;

#[doc(no_inline)]
pub use frameyard_host::{BudgetShare, ByteSize, HostYard};

pub use arena::{ArenaError, ArenaHeap};
pub use heap::Heap;
/// mimalloc's own functions.
pub use libmimalloc_sys as mimalloc;
pub use slices::ArenaUsage;
