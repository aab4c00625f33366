//! The tables of all mechanisms in the control region: planning, carving, and the view of one zone.
//!
//! Each mechanism declares its own tables; this file only collects them. A mechanism that is not compiled in has empty spans.

#[cfg(feature = "policy-clusters")]
use super::clusters;
#[cfg(feature = "policy-cpu-owned")]
use super::cpu_owned;
use super::depot;
use super::table_sizes::TableSizes;
use super::{Mechanism, ZoneTables};
use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::sync::AtomicU16;
use crate::units::{Geometry, PageCount, Pfn, ZoneId};
use crate::zone::pcp_sizing::PcpSizing;
use crate::zone::state::Zone;

/// The number of tables that mechanisms have.
pub(crate) const TRANSFER_TABLES: usize = 5;

/// Where the mechanisms' tables lie.
pub(crate) type TransferSpans = [TableSpan; TRANSFER_TABLES];

/// The tables of all mechanisms.
#[derive(Clone, Copy)]
pub(crate) struct TransferTables {
    #[cfg(feature = "policy-clusters")]
    clusters: clusters::Table,
    #[cfg(feature = "policy-cpu-owned")]
    cpu_owned: cpu_owned::Tables,
    depot: depot::Tables,
    zones: usize,
}

/// Words for what zones have once per batch of their memory; `zones` gives the size of each and its batch.
pub(crate) fn batch_words(zones: impl Iterator<Item = (PageCount, PageCount)>) -> usize {
    #[cfg(feature = "policy-clusters")]
    return clusters::words(zones);
    #[cfg(not(feature = "policy-clusters"))]
    {
        let _ = zones;
        0
    }
}

/// At least as many words as [`batch_words`] for any zones that have `pages` together.
pub(crate) const fn batch_words_bound(sizing: PcpSizing, geometry: Geometry, pages: PageCount, nodes: usize) -> usize {
    #[cfg(feature = "policy-clusters")]
    return clusters::words_bound(sizing, geometry, pages, nodes);
    #[cfg(not(feature = "policy-clusters"))]
    {
        let _ = (sizing, geometry, pages, nodes);
        0
    }
}

/// Plans the tables; `None` if they do not fit an address space.
pub(crate) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<TransferSpans> {
    let mut spans = [TableSpan { offset: 0, count: 0 }; TRANSFER_TABLES];
    #[cfg(feature = "policy-clusters")]
    match clusters::plan(planner, sizes) {
        Some(span) => spans[0] = span,
        None => return None,
    }
    #[cfg(feature = "policy-cpu-owned")]
    match cpu_owned::plan(planner, sizes) {
        Some(planned) => [spans[1], spans[2]] = planned,
        None => return None,
    }
    match depot::plan(planner, sizes) {
        Some(planned) => [spans[3], spans[4]] = planned,
        None => return None,
    }
    Some(spans)
}

impl TransferTables {
    /// The tables at spans that [`plan`] made, for a yard with that many zones; `None` if a span does not lie in the region.
    ///
    /// # Safety
    ///
    /// As for [`ControlRegion::table`].
    pub(crate) unsafe fn carve(region: &ControlRegion, spans: &TransferSpans, zones: usize) -> Option<Self> {
        // SAFETY: passed on to the caller; each span is carved with one type, which is that of its plan.
        unsafe {
            Some(Self {
                #[cfg(feature = "policy-clusters")]
                clusters: region.table(spans[0])?,
                #[cfg(feature = "policy-cpu-owned")]
                cpu_owned: cpu_owned::Tables::carve(region, [spans[1], spans[2]])?,
                depot: depot::Tables::carve(region, [spans[3], spans[4]])?,
                zones,
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
        #[cfg(feature = "policy-clusters")]
        clusters::assign(self.clusters, zones, mechanism.merging(), batch)?;
        let _ = (zones, mechanism, batch);
        Some(())
    }

    /// Whether the tables have the lengths that a yard of that size, with these zones, needs.
    pub(crate) fn fit(&self, zones: &[Zone], sizes: &TableSizes) -> bool {
        #[cfg(feature = "policy-clusters")]
        if !clusters::fits(self.clusters, zones) {
            return false;
        }
        #[cfg(feature = "policy-cpu-owned")]
        if !cpu_owned::fits(&self.cpu_owned, sizes) {
            return false;
        }
        let _ = zones;
        self.depot.fits(sizes)
    }

    /// The cache group of each CPU.
    pub(crate) fn cache_groups(&self) -> &'static [AtomicU16] {
        self.depot.groups()
    }

    /// The tables as a zone uses them, in a map that begins with `first`.
    #[inline(always)]
    pub(crate) fn of(&self, zone: ZoneId, first: Pfn, geometry: Geometry) -> ZoneTables {
        let _ = (first, geometry);
        ZoneTables {
            #[cfg(feature = "policy-clusters")]
            clusters: self.clusters,
            #[cfg(feature = "policy-cpu-owned")]
            cpu_owned: cpu_owned::CpuOwnedTables::new(self.cpu_owned, self.zones, first, geometry),
            depot: self.depot.of(self.zones, zone),
        }
    }
}
