//! Compaction: moving blocks in use together, so that free memory forms large blocks.
//!
//! Two scanners work towards each other in a zone. The migrate scanner goes up from the bottom and asks the owners of
//! counted blocks to isolate them. The free scanner comes down from the top and takes free blocks off the free lists as
//! targets. The owners move contents from one to the other, and the frames that they leave go to the free lists. When
//! the scanners meet, the zone is done. (The kernel's `compact_zone`.)
//!
//! [`YardCompaction`](crate::views::YardCompaction) runs it on request, for an allocation and in the background.
//!
//! - `request`: what a caller asks for, and the outcome;
//! - `run`: one run over a zone, and when it ends;
//! - `sources`: the migrate scanner;
//! - `targets`: the free scanner, and its supply of free blocks;
//! - `hints`: pageblocks to skip for now;
//! - `index`: how fragmented a zone's free memory is.
//!
//! The zone keeps the scanners' positions, the failures and the counters (`CompactState`).
//!
//! # Protocol
//!
//! The migrate scanner holds no lock. It reads tags and owners' words of pages that may change meanwhile, and trusts
//! none of them: the owner decides whether a block can be isolated, and from then on the owner's protocol keeps it in
//! place. The free scanner takes free blocks under the zone lock. They are
//! [`Isolated`](crate::page::FrameState::Isolated) until they go to an owner, as allocated blocks, or back to the free
//! lists. A block that an owner has vacated is allocated and belongs to the compactor, which frees it at once. So every
//! frame has one holder at any time, and no owner is called with a lock held.

mod hints;
mod index;
mod request;
mod run;
mod sources;
mod targets;

pub(crate) use hints::SkipHints;
pub(crate) use index::{fragmentation, unusable};
pub use request::{CompactCaller, CompactEffort, CompactOutcome, CompactRequest, CompactResult};
use sources::Sources;
use targets::Targets;

use crate::boot::{Poisoning, Tables};
use crate::owners::Owners;
use crate::platform::Platform;
use crate::units::{Pfn, PfnRange};
use crate::zone::ZoneView;

/// A run over a zone.
pub(crate) struct Compaction<'a, P: Platform> {
    view: ZoneView<'a, P>,
    tables: Tables,
    poisoning: Poisoning,
    owners: &'a Owners<'a>,
    request: CompactRequest,
    span: PfnRange,
    /// The next frame of the migrate scanner.
    migrate_at: Pfn,
    /// Blocks isolated in the current pageblock.
    taken_in_block: u64,
    /// The end of the pageblock that the free scanner is in.
    free_end: Pfn,
    /// The next frame of the free scanner in that pageblock; below the pageblock: it has not begun there.
    free_next: Pfn,
    /// Whether the run began at the zone's ends.
    whole_zone: bool,
    /// The pageblock in which blocks were moved last; its frames may still be on per-CPU lists.
    moved_in: Option<Pfn>,
    sources: Sources<'a>,
    targets: Targets,
    outcome: CompactOutcome,
}
