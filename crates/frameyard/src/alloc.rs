//! Allocating and freeing: requests and their errors.
//!
//! [`Yard::alloc`](crate::Yard::alloc) allocates a block of 2^order frames, near the calling CPU if possible, and
//! [`Yard::free`](crate::Yard::free) frees it. [`AllocRequest`] has all other options: a node, owners that make room, a
//! count that is not a power of two, a given range. [`Frames`] is a guard that frees its frames when it is dropped.
//!
//! # The path of an allocation
//!
//! 1. The fast path takes a frame from the array of the caller's per-CPU list, in a restartable sequence or under the
//!    list's lock, which it only tries. It touches three cache lines of the list, and stores one byte in the allocation
//!    map.
//! 2. The slow path walks the zonelist. In each zone it checks the watermark and refills the per-CPU list with a batch,
//!    as the transfer policy defines ([`policy`](crate::policy)). Orders without a per-CPU list come from the free
//!    lists. If the zone has no suitable block of the wanted migration type, the request falls back to another type.
//! 3. If no zone has a block, the request does the merges that were deferred and, if it wants a large block, returns
//!    whole pageblocks to the free lists. A request that may wait also drains the per-CPU lists of all CPUs.
//! 4. A request with owners compacts and reclaims before it fails, a bounded number of times.
//!
//! # Waiting
//!
//! A *round* is one call of [`Platform::wait`](crate::Platform::wait), in which the platform may sleep, or of
//! [`Platform::spin`](crate::Platform::spin), in which it does not. A kernel whose rounds last 1 µs waits 32 µs in 32
//! rounds, and 4 ms in 4096. Every wait except the one for a lock is bounded in rounds. A lock holder waits only for
//! locks that come later in the lock order, so a wait for a lock ends after a few holds.
//!
//! | call | waits for | at most |
//! |---|---|---|
//! | an allocation or free on a per-CPU list | nothing: tries the list's lock at most once | – |
//! | the same, with a refill or drain | the zone lock | one hold by each CPU ahead of it |
//! | a request that needs memory that another CPU is initialising | that part of the memory map | 32 rounds; with [`Gfp::DIRECT_RECLAIM`](crate::Gfp::DIRECT_RECLAIM) 4096 in each zone |
//! | a request that finds no block, with `DIRECT_RECLAIM` and without `NORETRY` | the locks of all CPUs' lists, to drain them | one hold of each |
//! | the same, with [owners](AllocRequest::owners) | owners and the reclaimer, which bound their own waits | 16 rounds of reclaim; 10 above order 3; 1 with `NORETRY` |
//! | [`aligned`](AllocRequest::aligned), areas, and ranges with owners | busy blocks | 16 idle attempts in a row, 2 rounds apart; 32 with `DIRECT_RECLAIM` |
//! | the same | transfers in progress | 32 rounds; with `DIRECT_RECLAIM` 4096 |
//! | ranges | the part of the memory map that holds the range | 32 rounds; with `DIRECT_RECLAIM` 4096 |
//!
//! With `DIRECT_RECLAIM` a round is a call of `wait`, otherwise a call of `spin`. An idle attempt is one without
//! progress.
//!
//! # Work
//!
//! Merging free memory for a request is bounded, too. A request searches at most 32 pageblocks for deferred merges, and
//! returns the bits of at most 1024 pageblocks to the free lists. With `DIRECT_RECLAIM` and without `NORETRY` there is
//! no bound.
//!
//! An interrupt handler uses [`Gfp::ATOMIC`](crate::Gfp::ATOMIC) or [`Gfp::NOWAIT`](crate::Gfp::NOWAIT), and names no
//! owners. [`Platform::guard`](crate::Platform::guard) must keep handlers off a CPU that holds a lock.
//! [`Yard::drain_all`](crate::Yard::drain_all), [`Yard::set_policy`](crate::Yard::set_policy) and
//! [`YardInit::finish`](crate::views::YardInit::finish) lock the lists of all CPUs, so call them from thread context
//! only.
//!
//! # The path of a free
//!
//! 1. An atomic exchange on the frame's byte in the allocation map decides racing frees. The winner owns the block;
//!    every other caller gets a [`FreeError`]. The page structure is not touched.
//! 2. The frame goes onto the caller's per-CPU list for the migration type of its pageblock.
//! 3. A full list packs its oldest frames into batches and drains them as the transfer policy defines.

pub use crate::fast::{AllocAtOnce, FreeAtOnce, UnfinishedAlloc, UnfinishedFree};
pub use crate::request::{AllocRequest, Frames, Wanted};
pub use crate::yard::{AllocError, FreeError, FreeProblem, RequestOption, ZoneShortage};
