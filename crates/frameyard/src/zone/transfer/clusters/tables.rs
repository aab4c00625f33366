//! The cluster records of all zones: one table in the control region, a part of it for each zone.
//!
//! A zone has one record for each batch of its present memory, as its per-CPU lists are sized when the yard is created. Managed
//! memory is not known when tables are planned; the difference is reserved memory. A zone's part holds the bits first, then the
//! records.

use super::list::{State, words_for};
use crate::control::{TablePlanner, TableSpan};
use crate::sync::AtomicU64;
use crate::units::PageCount;
use crate::zone::state::Zone;
use crate::zone::transfer::deferred_merge::Merging;
use crate::zone::transfer::table_sizes::TableSizes;

/// The words of all zones.
pub(in crate::zone::transfer) type Table = &'static [AtomicU64];

/// How many records a zone of that size gets; none if a batch is a single page.
fn records_for(pages: PageCount, batch: PageCount) -> u32 {
    if batch.0 < 2 { 0 } else { u32::try_from(pages.0 / batch.0).unwrap_or(u32::MAX) }
}

/// Plans the table.
pub(in crate::zone::transfer) fn plan(planner: &mut TablePlanner, sizes: &TableSizes<'_>) -> Option<TableSpan> {
    let records = |present: &u64| records_for(PageCount(*present), (sizes.batch)(PageCount(*present)));
    planner.table::<AtomicU64>(sizes.present.iter().map(|present| words_for(records(present))).sum())
}

/// Gives each zone its part of the table. `None` if the parts do not fill the table.
pub(in crate::zone::transfer) fn assign(
    table: Table,
    zones: &[Zone],
    merging: Merging,
    batch: &dyn Fn(PageCount) -> PageCount,
) -> Option<()> {
    let mut first = 0;
    for zone in zones {
        let present = zone.present();
        let batch = batch(present);
        let state: &State = &zone.mechanisms.lists.clusters;
        state.assign(first, records_for(present, batch), batch, merging);
        first = state.words().end;
    }
    (first == table.len()).then_some(())
}

/// Whether every zone's part lies in the table.
pub(in crate::zone::transfer) fn fits(table: Table, zones: &[Zone]) -> bool {
    zones.iter().all(|zone| zone.mechanisms.lists.clusters.words().end <= table.len())
}
