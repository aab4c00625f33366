//! What is asked of compaction, and what came of it.

use crate::gfp::Gfp;
use crate::owners::MigrateMode;
use crate::units::{MigrateType, Order, PageCount, ZoneKind, named};

/// How hard compaction tries (the kernel's `enum compact_priority`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CompactEffort {
    /// Never waits, and scans only pageblocks of the wanted type.
    Async,
    /// Waits for owners, for a bounded time.
    #[default]
    Sync,
    /// As `Sync`, over the whole zone, whatever earlier runs found out, and into pageblocks of any type.
    Full,
}

named!(CompactEffort: Async => "async", Sync => "sync", Full => "full");

impl CompactEffort {
    /// What owners are told.
    #[must_use]
    pub const fn mode(self) -> MigrateMode {
        match self {
            Self::Async => MigrateMode::Async,
            Self::Sync | Self::Full => MigrateMode::Sync,
        }
    }
}

/// The caller of a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CompactCaller {
    /// An explicit request.
    #[default]
    Request,
    /// An allocation that found no block.
    Direct,
    /// The background compactor, for an order that a request missed.
    Background,
    /// The background compactor, because free memory is scattered.
    Proactive,
}

named!(CompactCaller: Request => "request", Direct => "direct", Background => "background", Proactive => "proactive");

/// What is asked of compaction (the kernel's `struct compact_control`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactRequest {
    /// The order of which a block is wanted; `None` compacts the whole zone, whatever earlier runs found out.
    pub order: Option<Order>,
    /// How hard to try.
    pub effort: CompactEffort,
    /// The caller.
    pub caller: CompactCaller,
    /// The type of the block that is wanted.
    pub migrate_type: MigrateType,
    /// The highest zone that may serve the request.
    pub highest_zone: ZoneKind,
    /// About how many frames to look at before it goes on another time; `None`: all.
    pub limit: Option<PageCount>,
}

impl CompactRequest {
    /// All of a zone, as hard as possible.
    pub const WHOLE_ZONE: Self = Self {
        order: None,
        effort: CompactEffort::Sync,
        caller: CompactCaller::Request,
        migrate_type: MigrateType::Movable,
        highest_zone: ZoneKind::Movable,
        limit: None,
    };

    /// Until there is a movable block of that order.
    #[must_use]
    pub const fn for_order(order: Order, effort: CompactEffort) -> Self {
        Self { order: Some(order), effort, ..Self::WHOLE_ZONE }
    }

    /// For an allocation that found no block. Flags that name no type count as unmovable.
    #[must_use]
    pub fn for_allocation(order: Order, gfp: Gfp, effort: CompactEffort) -> Self {
        Self {
            order: Some(order),
            effort,
            caller: CompactCaller::Direct,
            migrate_type: gfp.migrate_type().unwrap_or(MigrateType::Unmovable),
            highest_zone: gfp.highest_zone(),
            limit: None,
        }
    }
}

/// How compaction of a zone ended (the kernel's `enum compact_result`), the least useful end first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum CompactResult {
    /// There was too little free memory, or scattered memory was not what was wrong.
    #[default]
    Skipped,
    /// It had failed lately, and was not tried again yet.
    Deferred,
    /// An operation in the zone did not finish within the bound; nothing was done.
    Stalled,
    /// The limit of the request came first; the next run goes on from there.
    Unfinished,
    /// The whole zone was scanned without making a block of the order, or the request named no order.
    Complete,
    /// A part of the zone was scanned, from where an earlier run stopped, without making a block of the order.
    PartialSkipped,
    /// Other CPUs took the free memory that the compaction wanted as targets.
    Contended,
    /// There is a block of the order.
    Success,
}

named!(CompactResult: Skipped => "skipped", Deferred => "deferred", Stalled => "stalled", Unfinished => "unfinished", Complete => "complete",
    PartialSkipped => "partial-skipped", Contended => "contended", Success => "success");

/// What compaction did. Blocks are counted in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactOutcome {
    /// How it ended.
    pub result: CompactResult,
    /// Frames whose contents are elsewhere now (`pgmigrate_success`).
    pub migrated: PageCount,
    /// Frames isolated and then not moved (`pgmigrate_fail`).
    pub failed: PageCount,
    /// Frames that owners did not isolate, or that were gone.
    pub busy: PageCount,
    /// Frames with users that the owner cannot find.
    pub pinned: PageCount,
    /// Frames in use that can never be moved, or have no owner that could be asked.
    pub unmovable: PageCount,
    /// Pages scanned by the migrate scanner (`compact_migrate_scanned`).
    pub migrate_scanned: PageCount,
    /// Pages scanned by the free scanner (`compact_free_scanned`).
    pub free_scanned: PageCount,
    /// Frames isolated as sources, and free frames taken as targets (`compact_isolated`).
    pub isolated: PageCount,
}

impl CompactOutcome {
    /// What this run and another did, with the more useful end of the two.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            result: self.result.max(other.result),
            migrated: self.migrated + other.migrated,
            failed: self.failed + other.failed,
            busy: self.busy + other.busy,
            pinned: self.pinned + other.pinned,
            unmovable: self.unmovable + other.unmovable,
            migrate_scanned: self.migrate_scanned + other.migrate_scanned,
            free_scanned: self.free_scanned + other.free_scanned,
            isolated: self.isolated + other.isolated,
        }
    }
}
