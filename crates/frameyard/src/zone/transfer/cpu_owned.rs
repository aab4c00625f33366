//! CPU-owned pageblocks (the policy `owned-blocks`): behind its per-CPU lists each CPU has a small buddy allocator for each zone,
//! which splits and merges the pageblocks that the CPU owns under a lock of its own ([`lists`]). After the proposal of 2026 for
//! Linux that makes a CPU's lists a buddy allocator of pageblocks.
//!
//! # Transfers
//!
//! A refill takes, in this order: free blocks of the CPU's own pageblocks; a whole free pageblock of the requested type, which the
//! CPU then owns; smaller blocks of that type from the zone; blocks of other types, whole pageblocks first, which the CPU then owns
//! as well. Contiguous memory areas (CMA) serve as the last of these and are never owned. A CPU claims a pageblock only while the
//! zone stays above its high watermark without it: watermarks do not count owned memory as free.
//!
//! A drain sorts its blocks by the owners of their pageblocks and gives each owner its blocks, whichever CPU drains. A pageblock
//! that is whole again returns to the zone if its owner keeps one of its type already.
//!
//! # Protocol
//!
//! A table names the owner of each pageblock ([`table`]). An entry changes under the zone lock and the lock of the old or new
//! owner. Only whole free pageblocks are claimed, straight off the free lists. From this follows:
//!
//! - A CPU that holds a frame, allocated or in transit, and finds no owner of its pageblock may rely on that until it frees the
//!   frame: no CPU can claim a pageblock that is not free as a whole.
//! - A CPU that holds a frame and finds an owner takes the owner's lock and asks again: the owner may have given the pageblock up
//!   in between. No other owner can have followed.
//! - **No frame of an owned pageblock is on a free list of the zone.** Code that frees without asking for an owner first has the
//!   pageblock given up: compaction ([`give_up`]), and drains that empty the lists of a CPU. So what the zone does to pageblocks
//!   with free blocks in them (stealing, merging, a change of type) never happens to an owned one. Isolation, and reserving a
//!   pageblock for atomic requests, have it given up before.
//!
//! Free blocks of owned pageblocks are in the state [`FrameState::HeldFree`](crate::page::FrameState::HeldFree). Such a tag is
//! written under the owner's lock, and only there decides anything. Other readers, which find frames by number, see a block that is
//! neither free nor allocated, and collect or come back.
//!
//! [`collect`] gives up all owned pageblocks of a zone one after the other. It misses pageblocks that are claimed meanwhile by
//! refills under this policy. After a change of the policy there are none: claims are made under the lock of a CPU's lists, by the
//! policy read there.
//!
//! The table decides under every policy which frees go to owners. It is empty if nothing was claimed, which the zone's count of
//! owned pageblocks tells with one load. The count is exact for a CPU that holds a frame of an owned pageblock: the claim came
//! before the frame was taken.
//!
//! # Locks
//!
//! An owner's lock is taken after the lock of a CPU's lists (of any CPU) and before the zone lock. No CPU holds two owners' locks.

mod lists;
#[cfg(all(test, loom))]
mod loom_models;
mod statistics;
mod table;
mod transfers;
mod validate;

pub(super) use {
    statistics::{COUNTERS, count},
    table::{Tables, plan},
    transfers::{FreedTo, State, collect, fetch, free_to_owner, give_back, give_up, held_racy, is_owned},
    validate::{validate, validate_free_block},
};

/// Whether the mechanism is compiled in.
pub(super) const COMPILED_IN: bool = cfg!(feature = "policy-cpu-owned");
