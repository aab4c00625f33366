//! Contiguous ranges: why a range of frames, chosen by the caller or by the yard, cannot be taken.
//!
//! Two kinds of requests want frames that the free lists do not offer. A request at a *place* takes these very frames,
//! and moves what is in the way if the caller names owners that can move it. A request of a *count* of frames that is no
//! order, or is larger than the largest order, looks for a place. The kernel's names are `alloc_contig_range`,
//! `alloc_contig_pages` and `cma_alloc`.
//!
//! A range is taken in rounds. The pageblocks of the range are isolated: nothing is allocated from them, and what is freed
//! there stays there. Each round drains the per-CPU lists and asks owners to move their counted blocks out of the range.
//! When all frames are free, one acquisition of the zone lock takes them all. Whatever the outcome, the pageblocks get their
//! migration types back. The errors of this module name a frame that stands in the way, and why it does.

pub use crate::yard::{BlockedBy, Blocker, CmaReleaseError, OnlineError};
