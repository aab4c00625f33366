//! Compaction of a yard's zones: on request, for an allocation, and in the background.

use super::Yard;
use crate::compaction::{CompactOutcome, CompactRequest};
use crate::owner::Owners;
use crate::platform::Platform;
use crate::units::{NodeId, ZoneId};

impl<P: Platform> Yard<P> {
    /// Moves blocks of a zone together, as the request says.
    ///
    /// A zone that does not exist or has no memory is skipped. Where an order is wanted, a zone in which it failed
    /// lately is deferred, unless the effort is [`Full`](crate::CompactEffort::Full). After the kernel's `compact_zone`.
    pub fn compact_zone(&self, zone: ZoneId, request: CompactRequest, owners: &Owners<'_>) -> CompactOutcome {
        let _ = (zone, request, owners);
        CompactOutcome::default()
    }

    /// Compacts all zones of a node, whole (a write to the kernel's `/proc/sys/vm/compact_memory`).
    pub fn compact_node(&self, node: NodeId, owners: &Owners<'_>) -> CompactOutcome {
        let _ = (node, owners);
        CompactOutcome::default()
    }

    /// One step of a node's background compactor, of bounded length: what it did, `None` where there was nothing to do.
    ///
    /// After the kernel's `kcompactd_do_work`. It is woken by allocations that miss a high order, and by free memory that
    /// is scattered too much.
    pub fn compact_background(&self, node: NodeId, owners: &Owners<'_>) -> Option<CompactOutcome> {
        let _ = (node, owners);
        None
    }
}
