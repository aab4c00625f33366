//! Statistics of the mechanisms: what they count for each CPU, and the state of a zone.

use super::clusters::{ClusterDrains, ClusterStatistics};
use super::cpu_owned::CpuOwnedStatistics;
use super::depot::DepotStatistics;
use crate::units::MigrateType;

/// What deferred merging and clusters did for one CPU's lists, or for a whole zone. Possibly stale. Mechanisms that the policy
/// does not use count nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TransferStatistics {
    /// Single frames freed without a look at their buddies.
    pub skipped_merges: u64,
    /// Merges of such frames made later.
    pub later_merges: u64,
    /// Clusters that refills detached from their lists.
    pub detachments: u64,
    /// Their pages.
    pub detached_pages: u64,
    /// Drains, by the type of the first page's pageblock; the last entry for types without per-CPU lists.
    pub drains: [ClusterDrains; MigrateType::PER_CPU + 1],
}

impl TransferStatistics {
    /// The sum of two counts.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            skipped_merges: self.skipped_merges.wrapping_add(other.skipped_merges),
            later_merges: self.later_merges.wrapping_add(other.later_merges),
            detachments: self.detachments.wrapping_add(other.detachments),
            detached_pages: self.detached_pages.wrapping_add(other.detached_pages),
            drains: core::array::from_fn(|at| self.drains[at].and(&other.drains[at])),
        }
    }
}

/// The state of all mechanisms in one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MechanismStatistics {
    /// Deferred merges and clusters.
    pub(crate) clusters: ClusterStatistics,
    /// CPU-owned pageblocks, of all CPUs.
    pub(crate) cpu_owned: CpuOwnedStatistics,
    /// The depot.
    pub(crate) depot: DepotStatistics,
}
