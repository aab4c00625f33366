//! [jemalloc](https://jemalloc.net) with its extents in a yard.
//!
//! - `FRAMEYARD_MEMORY` (such as `4G`) and `FRAMEYARD_POLICY` override the size and the policy that the program sets.
//! - The yard takes no memory until it is touched. If it cannot be made, one line on standard error says why, and the heap works on memory of
//!   the host.
//! - The size is a limit. An allocation beyond it fails, which a program sees as a null pointer or `TryReserveError`.
//! - On a machine with several NUMA nodes, [`HeapYard::bind_thread`] has a thread allocate from the frames of one node.
//! - A process may fork. Its child goes on with a copy of the heap.
//!
//! The crate's front page has an example. The build needs `cc`, `make` and `sh`, for jemalloc.
//!
//! # How extents map to blocks
//!
//! An *extent* is a contiguous range of pages that jemalloc asks for: a slab of small objects, or one large object.
//!
//! - An extent of at most 4 MiB is cut from the smallest block that contains it; the rest of the block is free again. A
//!   longer one, or one with a larger alignment than its size, comes from a search in address order.
//! - An extent of whole huge pages starts on a huge page.
//! - jemalloc splits extents and returns the parts one by one. The hook for a split divides the block (`Yard::split_at`),
//!   so that each part is freed on its own. An extent that grows in place gets the frames behind it if they are free.
//! - A freed extent goes back to the host first (`MADV_DONTNEED`), then to the yard. So free frames are zero, and so is
//!   every new extent. Locked memory is zeroed instead.
//! - Extents are unmovable blocks, so a search for a long one passes over them at once.
//! - A request that the yard cannot serve is tried again after the lists of all CPUs are drained, and again after all
//!   arenas are purged, as long as threads return extents.
//!
//! With several NUMA nodes, each node has another arena whose extents are frames of that node alone ([`HeapYard::arena_of`],
//! for `MALLOCX_ARENA`).
//!
//! jemalloc's options are set to match: `retain:false`, so that unused extents return to the yard; `oversize_threshold:0`
//! and an arena for each CPU, so that all arenas exist before the program runs; `cache_oblivious:false`, so that whole huge
//! pages stay whole. The first arena's metadata, and whatever was allocated before the yard existed, is in mappings of the
//! host.
//!
//! A hook never waits for reclaim and allocates nothing. While a thread forks, its extents come from the host. A forked
//! child has no use of extents that another thread of its parent was returning at that moment; a fork waits for `purge`,
//! but not for jemalloc's own decay.

mod current;
mod extents;
mod forking;
mod gate;
mod heap;
mod hooks;
mod install;
mod mallctl;
mod nodes;
mod purge;
mod settings;
mod summary;
pub mod thread_state;

#[doc(no_inline)]
pub use frameyard::NodeId;
pub use frameyard::policy::ZonePolicy;
#[doc(no_inline)]
pub use frameyard_host::{Budget, BudgetShare, ByteSize, HostYard};

pub use heap::Heap;
pub use hooks::is_in_hook;
pub use install::{HeapYard, InstallError, install, install_in, installed, make_hooks};
pub use purge::{or_purge, purge};
pub use settings::{Settings, SettingsError};
pub use summary::HeapSummary;
/// jemalloc's own functions, with the prefix `_rjem_` in the object code.
pub use tikv_jemalloc_sys as sys;
