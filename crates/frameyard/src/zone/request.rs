//! Requests to a zone.

use crate::units::{MigrateType, Order};

/// Whether CMA pageblocks may serve the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CmaUse {
    Allowed,
    Refused,
}

/// Whether blocks of other types may serve the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fallback {
    /// Yes.
    Allowed,
    /// Only if no deferred memory of the zone would serve it better.
    AfterGrowth,
    /// Only whole pageblocks, so that no pageblock comes to hold frames of two types (`ALLOC_NOFRAGMENT`).
    WholePageblocks,
}

/// A request for blocks of one order and type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest {
    pub(crate) order: Order,
    pub(crate) migrate_type: MigrateType,
    pub(crate) cma: CmaUse,
    pub(crate) fallback: Fallback,
}

impl BlockRequest {
    /// Whether CMA pageblocks may serve the request.
    #[inline(always)]
    pub(crate) fn uses_cma(&self) -> bool {
        self.migrate_type == MigrateType::Movable && self.cma == CmaUse::Allowed
    }
}
