//! Requests to compact a zone, and their outcome.

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
    /// As `Sync`, but scans the whole zone regardless of hints from earlier runs, and moves blocks into pageblocks of
    /// any type.
    Full,
}

named!(CompactEffort: Async => "async", Sync => "sync", Full => "full");

impl CompactEffort {
    /// The mode that owners are called with.
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
    /// The background compactor, because free memory is fragmented.
    Proactive,
    /// The background compactor, because a zone has too few whole pageblocks
    /// ([`DefragMode::On`](crate::DefragMode::On)).
    Stock,
}

named!(CompactCaller: Request => "request", Direct => "direct", Background => "background", Proactive => "proactive", Stock => "stock");

impl CompactCaller {
    /// Whether it is the background compactor.
    pub(crate) const fn is_in_background(self) -> bool {
        matches!(self, Self::Background | Self::Proactive | Self::Stock)
    }
}

/// A request to compact a zone (the kernel's `struct compact_control`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactRequest {
    /// The order of the wanted block; `None` compacts the whole zone regardless of hints from earlier runs.
    pub order: Option<Order>,
    /// How hard to try.
    pub effort: CompactEffort,
    /// The caller.
    pub caller: CompactCaller,
    /// The type of the wanted block.
    pub migrate_type: MigrateType,
    /// The highest zone that may serve the request.
    pub highest_zone: ZoneKind,
    /// Roughly how many frames to scan; the next run continues from there. `None`: no limit.
    pub limit: Option<PageCount>,
}

impl CompactRequest {
    /// Compacts all of a zone.
    pub const WHOLE_ZONE: Self = Self {
        order: None,
        effort: CompactEffort::Sync,
        caller: CompactCaller::Request,
        migrate_type: MigrateType::Movable,
        highest_zone: ZoneKind::Movable,
        limit: None,
    };

    /// Compacts until there is a movable block of that order.
    #[must_use]
    pub const fn for_order(order: Order, effort: CompactEffort) -> Self {
        Self { order: Some(order), effort, ..Self::WHOLE_ZONE }
    }

    /// Compacts for an allocation that found no block. Flags with no valid type count as unmovable.
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

/// How compaction of a zone ended (the kernel's `enum compact_result`), from the least to the most useful result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[non_exhaustive]
pub enum CompactResult {
    /// There was too little free memory to move blocks to, or fragmentation was not the problem.
    #[default]
    Skipped,
    /// A recent run failed, and attempts are still deferred.
    Deferred,
    /// A transfer in the zone did not finish within the bound. Nothing was done.
    Stalled,
    /// The run reached the limit of the request. The next run continues from there.
    Unfinished,
    /// The whole zone was scanned without making a block of the order, or the request named no order.
    Complete,
    /// Only a part of the zone was scanned, from where an earlier run had stopped, without making a block of the order.
    PartialSkipped,
    /// Other CPUs took the free memory that compaction wanted as targets.
    Contended,
    /// There is a block of the order.
    Success,
}

named!(CompactResult: Skipped => "skipped", Deferred => "deferred", Stalled => "stalled", Unfinished => "unfinished", Complete => "complete",
    PartialSkipped => "partial-skipped", Contended => "contended", Success => "success");

/// What compaction did. Blocks are counted in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactOutcome {
    /// How the run ended.
    pub result: CompactResult,
    /// Frames whose contents were moved (`pgmigrate_success`).
    pub migrated: PageCount,
    /// Frames whose contents owners dropped instead ([`FrameOwner::discard`](crate::owners::FrameOwner::discard)).
    pub discarded: PageCount,
    /// Frames isolated and then not moved (`pgmigrate_fail`).
    pub failed: PageCount,
    /// Frames that owners could not isolate at that moment.
    pub busy: PageCount,
    /// Frames with users that the owner cannot find.
    pub pinned: PageCount,
    /// Frames in use that can never be moved or have no registered owner.
    pub unmovable: PageCount,
    /// Pages scanned by the migrate scanner (`compact_migrate_scanned`).
    pub migrate_scanned: PageCount,
    /// Pages scanned by the free scanner (`compact_free_scanned`).
    pub free_scanned: PageCount,
    /// Frames isolated as sources, and free frames taken as targets (`compact_isolated`).
    pub isolated: PageCount,
}

impl CompactOutcome {
    /// The sum of two runs, with the more useful of the two results.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            result: self.result.max(other.result),
            migrated: self.migrated + other.migrated,
            discarded: self.discarded + other.discarded,
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
