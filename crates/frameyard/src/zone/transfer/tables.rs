//! The tables of all mechanisms in the control region: planning and carving.
//!
//! Each mechanism declares its own tables; this file only collects them. A mechanism that is not compiled in has empty spans.

use super::table_sizes::TableSizes;
use super::{Mechanism, clusters, cpu_owned, depot};
use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::sync::AtomicU16;
use crate::units::PageCount;
use crate::zone::state::Zone;

/// The number of tables that mechanisms have.
pub(crate) const TRANSFER_TABLES: usize = 5;

/// Where the mechanisms' tables lie.
pub(crate) type TransferSpans = [TableSpan; TRANSFER_TABLES];

/// The tables of all mechanisms.
#[derive(Clone, Copy)]
pub(crate) struct TransferTables {
    pub(super) clusters: clusters::Table,
    pub(super) cpu_owned: cpu_owned::Tables,
    pub(super) depot: depot::Tables,
}

/// Plans the tables; `None` if they do not fit an address space.
pub(crate) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<TransferSpans> {
    match (clusters::plan(planner, sizes), cpu_owned::plan(planner, sizes), depot::plan(planner, sizes)) {
        (Some(clusters), Some([owners, lists]), Some([groups, shelves])) => {
            Some([clusters, owners, lists, groups, shelves])
        }
        _ => None,
    }
}

impl TransferTables {
    /// The tables at spans that [`plan`] made; `None` if a span does not lie in the region.
    ///
    /// # Safety
    ///
    /// As for [`ControlRegion::table`].
    pub(crate) unsafe fn carve(region: &ControlRegion, spans: &TransferSpans) -> Option<Self> {
        let [clusters, owners, lists, groups, shelves] = *spans;
        // SAFETY: passed on to the caller; each span is carved with one type, which is that of its plan.
        unsafe {
            Some(Self {
                clusters: region.table(clusters)?,
                cpu_owned: cpu_owned::Tables::carve(region, [owners, lists])?,
                depot: depot::Tables::carve(region, [groups, shelves])?,
            })
        }
    }

    /// Prepares the tables of a new yard; `None` if its zones are not those that the tables were planned for.
    pub(crate) fn assign(
        &self,
        zones: &[Zone],
        mechanism: Mechanism,
        batch: &dyn Fn(PageCount) -> PageCount,
    ) -> Option<()> {
        clusters::assign(self.clusters, zones, mechanism.merging(), batch)
    }

    /// Whether the tables have the lengths that a yard of that size, with these zones, needs.
    pub(crate) fn fit(&self, zones: &[Zone], sizes: &TableSizes) -> bool {
        clusters::fits(self.clusters, zones) && self.cpu_owned.fit(sizes) && self.depot.fit(sizes)
    }

    /// The cache group of each CPU.
    pub(crate) fn cache_groups(&self) -> &'static [AtomicU16] {
        self.depot.groups
    }
}
