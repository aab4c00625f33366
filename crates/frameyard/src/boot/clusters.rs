//! How many clusters each zone has, and where their records lie.
//!
//! A zone gets one for each batch of its memory, as its per-CPU lists are sized when the yard is created. What is present
//! decides, for how much will be managed is not known when the tables are planned; the difference is what is reserved.

use super::{BootError, Tables, YardConfig};
use crate::sync::Ordering;
use crate::units::{ByteSize, Geometry, PageCount, ZoneKind};
use crate::zone::transfer::{clusters_for, words_for_clusters};
use crate::zone::{PcpSizing, PcpZone};

/// How large a batch of a zone of so many pages is when the yard is created.
fn batch(config: &YardConfig<'_>, present: PageCount) -> PageCount {
    let zone = PcpZone { managed: present, low: PageCount(0), local_cpus: 1, online_cpus: 1 };
    config.pcp_sizing.sizes(config.geometry, zone).batch
}

/// How many words the table needs for zones of so many pages.
pub(super) fn cluster_words(config: &YardConfig<'_>, zones: impl Iterator<Item = PageCount>) -> usize {
    zones.map(|present| words_for_clusters(clusters_for(present, batch(config, present)))).sum()
}

/// At least as many words as [`cluster_words`] for any zones that have `pages` together.
///
/// A batch is at least 3 pages or there are no clusters. While it grows with its zone, by `raw_batch` of the per-CPU sizes, a
/// zone has at most 8192 clusters; once it has its full size, pages divided by that.
pub(super) const fn cluster_words_bound(
    sizing: PcpSizing,
    geometry: Geometry,
    pages: PageCount,
    nodes: usize,
) -> usize {
    let zones = nodes * ZoneKind::COUNT;
    let clusters = match sizing {
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

impl Tables {
    /// Gives each zone its part of the table.
    pub(super) fn assign_clusters(&self, config: &YardConfig<'_>) -> Result<(), BootError> {
        let mut first = 0;
        for zone in self.zones {
            let present = PageCount(zone.facts.present.load(Ordering::Relaxed));
            let batch = batch(config, present);
            zone.clusters().assign(first, clusters_for(present, batch), batch, config.policy);
            first = zone.clusters().words().end;
        }
        if first == self.clusters.len() { Ok(()) } else { Err(BootError::LayoutMismatch) }
    }
}
