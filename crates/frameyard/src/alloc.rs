//! Allocating and freeing: requests, and what their errors say.
//!
//! [`Yard::alloc`](crate::Yard::alloc) allocates a block of 2^order frames near the caller,
//! [`Yard::free`](crate::Yard::free) frees it. [`AllocRequest`] adds everything else: a node, owners that make room, a count
//! that is no power of two, a place. [`Frames`] frees its frames when it is dropped.
//!
//! # The path of an allocation
//!
//! 1. The fast path takes a frame from the array of the caller's per-CPU list: a try on the list's lock, three cache lines
//!    of the list, and one store to the frame's byte in the allocation map.
//! 2. The slow path walks the zonelist. In each zone it compares watermarks and refills the per-CPU list with a batch, the
//!    way that the transfer policy defines ([`policy`](crate::policy)). Orders without a per-CPU list come from the free
//!    lists. A zone without a suitable block of the wanted migration type gives one of another type.
//! 3. If no zone has a block, the request merges free frames whose merge was put off, and returns whole pageblocks to the free
//!    lists where a larger block is wanted. A request that may wait also drains the per-CPU lists of all CPUs.
//! 4. A request with owners compacts and reclaims, a bounded number of times, before it fails.
//!
//! # Waiting
//!
//! A *round* is one call of [`Platform::wait`](crate::Platform::wait), in which the platform may sleep, or of
//! [`Platform::spin`](crate::Platform::spin), in which it does not. A kernel whose rounds last 1 µs waits 32 µs in 32 rounds, and
//! 4 ms in 4096. Every wait has a bound in rounds, except that
//! for a lock. The holder of a lock waits only for locks later in the lock order, so that wait ends after a few holds.
//!
//! | call | waits for | at most |
//! |---|---|---|
//! | an allocation or free at a per-CPU list | nothing: tries the list's lock once | – |
//! | the same, with a refill or drain | the zone lock | one hold of each CPU before it |
//! | a request that needs memory which another CPU initialises | that part of the memory map | 32 rounds; with [`Gfp::DIRECT_RECLAIM`](crate::Gfp::DIRECT_RECLAIM) 4096 in each zone |
//! | a request that finds no block, with `DIRECT_RECLAIM` and without `NORETRY` | the locks of all CPUs' lists, to drain them | one hold of each |
//! | the same, with [owners](AllocRequest::owners) | owners and the reclaimer, which bound their own waits | 16 rounds of reclaim; 10 above order 3; 1 with `NORETRY` |
//! | [`aligned`](AllocRequest::aligned), areas, and ranges with owners | busy blocks | 16 attempts in a row without progress, 2 rounds between two; with `DIRECT_RECLAIM` 32 |
//! | the same | transfers in progress | 32 rounds; with `DIRECT_RECLAIM` 4096 |
//! | ranges | the part of the memory map that holds the range | 32 rounds; with `DIRECT_RECLAIM` 4096 |
//!
//! A round is a call of `wait` with `DIRECT_RECLAIM`, else one of `spin`.
//!
//! # Work
//!
//! Work on free memory that has to merge first is bounded, too. A request has at most 32 pageblocks searched for deferred merges, and
//! returns the bits of at most 1024 pageblocks to the free lists. With `DIRECT_RECLAIM`, and without `NORETRY`, there is no bound.
//!
//! An interrupt handler uses [`Gfp::ATOMIC`](crate::Gfp::ATOMIC) or [`Gfp::NOWAIT`](crate::Gfp::NOWAIT), and names no owners.
//! [`Platform::guard`](crate::Platform::guard) must keep handlers off a CPU that holds a lock.
//! [`Yard::drain_all`](crate::Yard::drain_all), [`Yard::set_policy`](crate::Yard::set_policy) and
//! [`YardInit::finish`](crate::views::YardInit::finish) lock the lists of all CPUs, and belong in thread context.
//!
//! # The path of a free
//!
//! 1. An exchange on the frame's byte in the allocation map decides racing frees. The winner owns the block, every other
//!    caller gets a [`FreeError`]. The page structure is not touched.
//! 2. The frame goes onto the caller's per-CPU list of its pageblock's migration type.
//! 3. A full list packs its oldest frames into batches, and drains them as the transfer policy defines.

pub use crate::fast::{AllocAtOnce, FreeAtOnce, UnfinishedAlloc, UnfinishedFree};
pub use crate::request::{AllocRequest, Frames};
pub use crate::yard::{AllocError, FreeError, FreeProblem, RequestOption, ZoneShortage};
