//! The cluster records of all zones: one table in the control region, a part of it for each zone.
//!
//! A zone has one record for each batch of its present memory, as its per-CPU lists are sized when the yard is created. Managed
//! memory is not known when tables are planned; the difference is reserved memory. A zone's part holds the bits first, then the
//! records.

use crate::control::{TablePlanner, TableSpan};
use crate::store::TableSizes;
use crate::store::published::COMPILED_IN;
use crate::store::published::clusters::list::{State, words_for};
use crate::store::published::deferred_merge::Merging;
use crate::sync::AtomicU64;
use crate::units::{ByteSize, Geometry, PageCount, ZoneKind};
use crate::zone::pcp_sizing::PcpSizing;
use crate::zone::state::Zone;

/// The words of all zones.
pub(in crate::store::published) type Table = &'static [AtomicU64];

/// How many records a zone of that size gets; none if a batch is a single page.
fn records_for(pages: PageCount, batch: PageCount) -> u32 {
    if batch.0 < 2 || !COMPILED_IN { 0 } else { u32::try_from(pages.0 / batch.0).unwrap_or(u32::MAX) }
}

/// The words that zones of those sizes and batches need: what zones have once per batch of their memory.
pub(crate) fn batch_words(zones: impl Iterator<Item = (PageCount, PageCount)>) -> usize {
    zones.map(|(present, batch)| words_for(records_for(present, batch))).sum()
}

/// At least as many words as [`batch_words`] for any zones that have `pages` together.
///
/// A batch has at least 3 pages or there are no clusters. While the batch grows with its zone, by `raw_batch` of the per-CPU
/// sizes, a zone has at most 8192 clusters; once it has its full size, pages divided by that size.
pub(crate) const fn batch_words_bound(sizing: PcpSizing, geometry: Geometry, pages: PageCount, nodes: usize) -> usize {
    let zones = nodes * ZoneKind::COUNT;
    let clusters = match sizing {
        _ if !COMPILED_IN => return 0,
        PcpSizing::Fixed(high) if high < 8 => 0,
        PcpSizing::Fixed(high) => {
            let most = geometry.page_shift() as u64 * 8;
            let quarter = high as u64 / 4;
            pages.0 / if quarter < most { quarter } else { most }
        }
        _ => {
            let largest = if matches!(sizing, PcpSizing::Early) { ByteSize::kib(512) } else { ByteSize::mib(1) };
            let quarter = geometry.pages_in(largest).0 / 4;
            let full = if quarter < 3 { 3 } else { (1 << (quarter + quarter / 2).ilog2()) - 1 };
            let grown = pages.0 / full + zones as u64 * 8192;
            if grown < pages.0 / 3 { grown } else { pages.0 / 3 }
        }
    };
    (clusters + clusters.div_ceil(64)) as usize + zones
}

/// Plans the table.
pub(in crate::store::published) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<TableSpan> {
    planner.table::<AtomicU64>(sizes.batch_words)
}

/// Gives each zone its part of the table. `None` if the parts do not fill the table.
pub(in crate::store::published) fn assign(
    table: Table,
    zones: &[Zone],
    merging: Merging,
    batch: &dyn Fn(PageCount) -> PageCount,
) -> Option<()> {
    let mut first = 0;
    for zone in zones {
        let present = zone.present();
        let batch = batch(present);
        let state: &State = &zone.mechanisms.published.clusters;
        state.assign(first, records_for(present, batch), batch, merging);
        first = state.words().end;
    }
    (first == table.len()).then_some(())
}

/// Whether every zone's part lies in the table.
pub(in crate::store::published) fn fits(table: Table, zones: &[Zone]) -> bool {
    zones.iter().all(|zone| zone.mechanisms.published.clusters.words().end <= table.len())
}
