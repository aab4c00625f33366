//! [mimalloc](https://microsoft.github.io/mimalloc) with its arena in a yard.
//!
//! ```rust
//! use frameyard_heap::mimalloc::{ByteSize, Heap};
//!
//! #[global_allocator]
//! static HEAP: Heap = Heap::with_memory(ByteSize::mib(256));
//!
//! fn main() {
//!     let numbers: Vec<u64> = (0..100_000).collect();
//!     assert!(HEAP.arena().expect("a yard").contains(numbers.as_ptr()));
//! }
//! ```
//!
//! - [`ArenaHeap`] is a heap in contiguous memory of a yard that the program has made, beside other uses of the yard.
//! - The arena is exclusive: nothing else of mimalloc uses it, and the heap uses nothing else. An allocation beyond it fails, which a program
//!   sees as `TryReserveError`.
//! - `ArenaHeap::usage` counts the memory in use, which a budget of several processes can limit (`ArenaHeap::in_own_yard`).
//! - mimalloc never gives an arena up. The frames stay its own until the process ends.
//!
//! mimalloc's own bitmaps divide the arena, so calls take no lock of the yard. Before mimalloc takes slices of 64 KiB into
//! use, and before it returns their memory to the host, it calls a function of this module, which counts and charges them.
//! Blocks are aligned to at most 2 MiB and have at most 2 GiB; a block of more than 32 MiB occupies whole parts of 32 MiB.
//!
//! mimalloc has no handlers for `fork`. Under `LD_PRELOAD`, threads start and end their state under a lock that a fork
//! takes. One lock of mimalloc's remains that a child may find held: it is taken when a part of 512 MiB of the arena is
//! first used.
//!
//! The build needs `cc`, for mimalloc.

mod arena;
mod heap;
mod slices;

#[doc(no_inline)]
pub use frameyard_host::{BudgetShare, ByteSize, HostYard};

pub use arena::{ArenaError, ArenaHeap};
pub use heap::Heap;
/// mimalloc's own functions.
pub use libmimalloc_sys as sys;
pub use slices::ArenaUsage;
