//! Compaction: moving allocated blocks together, so that free memory forms large blocks.
//!
//! Two scanners move towards each other in a zone (the kernel's `compact_zone`). The migrate scanner starts at the
//! bottom and asks the owners of counted blocks to isolate them; these are the sources. The free scanner starts at the
//! top and isolates free blocks; these are the targets. The owners move contents from sources to targets, and the
//! compactor frees the sources. A run ends when the scanners meet.
//!
//! [`YardCompaction`](crate::views::YardCompaction) runs it on request, for an allocation and in the background.
//!
//! | file | contents |
//! |---|---|
//! | `request` | the request and the outcome |
//! | `run` | one run over a zone, and when it ends |
//! | `sources` | the migrate scanner |
//! | `targets` | the free scanner and its free blocks |
//! | `hints` | pageblocks to skip |
//! | `index` | fragmentation indices |
//!
//! The zone keeps the scanners' positions, the failures and the counters (`CompactState`).
//!
//! # Protocol
//!
//! The migrate scanner holds no lock. The tags and owners' words that it reads may change, so it relies on none of them: the owner
//! decides whether to isolate a block, and its protocol then keeps the block in place. The free scanner takes free blocks under
//! the zone lock. They stay [`Isolated`](crate::page::FrameState::Isolated) until they go to an owner, as allocated blocks, or
//! back to the free lists. A block that an owner has vacated is allocated and belongs to the compactor, which frees it at once.
//! So every frame has one holder at any time. The compactor calls owners without a lock held.

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
use crate::placement::DefragMode;
use crate::platform::Platform;
use crate::units::{Pfn, PfnRange};
use crate::zone::ZoneView;

/// A run over a zone.
pub(crate) struct Compaction<'a, P: Platform> {
    view: ZoneView<'a, P>,
    tables: Tables,
    poisoning: Poisoning,
    /// How the run chooses pageblocks.
    defrag: DefragMode,
    /// Whether the free memory of tainted regions is left to blocks that cannot move, because clean regions have room.
    spares_tainted: bool,
    owners: &'a Owners<'a>,
    request: CompactRequest,
    span: PfnRange,
    /// The next frame of the migrate scanner.
    migrate_at: Pfn,
    /// Blocks isolated in the current pageblock.
    taken_in_block: u64,
    /// The end of the pageblock that the free scanner is in.
    free_end: Pfn,
    /// The next frame of the free scanner in that pageblock. Below the pageblock if it has not begun there.
    free_next: Pfn,
    /// Whether the run began at the zone's ends.
    whole_zone: bool,
    /// The pageblock in which blocks were moved last; its frames may still be on per-CPU lists.
    moved_in: Option<Pfn>,
    sources: Sources<'a>,
    targets: Targets,
    outcome: CompactOutcome,
}
