//! Compaction: moving blocks in use together, so that free memory makes large blocks.
//!
//! Two scanners work towards each other in a zone. The migrate scanner goes up from the bottom and asks the owners of
//! counted blocks to set them aside; the free scanner goes down from the top and takes free blocks off the free lists to
//! move them to. When they meet, the zone is done. (The kernel's `compact_zone`.)
//!
//! - `request`: what is asked for and what came of it;
//! - `run`: one run over a zone, and when it ends;
//! - `sources`: the migrate scanner;
//! - `targets`: the free scanner, and the free blocks in hand;
//! - `hints`: the pageblocks that are not worth a look for now;
//! - `index`: how fragmented a zone's free memory is.
//!
//! Where the scanners were, what failed and what is counted is in the zone
//! ([`CompactState`](crate::zone::CompactState)).
//!
//! # Protocol
//!
//! The migrate scanner holds no lock. It reads tags and owners' words of pages that may change under it, and believes
//! none of them: the owner decides whether a block can be set aside, and from then on it is the owner's protocol that
//! keeps it in place. Free blocks are taken under the zone lock, and are [`Isolated`](crate::page::FrameState::Isolated) until
//! they are given to an owner, as allocated ones, or back to the free lists. What an owner has moved away is allocated
//! and the compactor's, and goes straight to the free lists. So every frame is in one place at any time, and no owner is
//! called with a lock held.

mod hints;
mod index;
mod request;
mod run;
mod sources;
mod targets;

pub(crate) use hints::SkipHints;
pub(crate) use index::{fragmentation, unusable};
pub use request::{CompactCaller, CompactEffort, CompactOutcome, CompactRequest, CompactResult};
pub(crate) use run::Compaction;
