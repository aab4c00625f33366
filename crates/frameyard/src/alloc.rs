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
//! 3. If no zone has a block, the request collects the frames that the transfer policy stores between lists and zones. A
//!    request that may wait also drains the per-CPU lists of all CPUs.
//! 4. A request with owners compacts and reclaims, a bounded number of times, before it fails.
//!
//! # The path of a free
//!
//! 1. An exchange on the frame's byte in the allocation map decides racing frees. The winner owns the block, every other
//!    caller gets a [`FreeError`]. The page structure is not touched.
//! 2. The frame goes onto the caller's per-CPU list of its pageblock's migration type.
//! 3. A full list packs its oldest frames into batches, and drains them as the transfer policy defines.

pub use crate::yard::{AllocError, AllocRequest, Frames, FreeError, FreeProblem, RequestOption, ZoneShortage};
