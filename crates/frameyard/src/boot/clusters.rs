//! How many clusters each zone has, and where their records lie.
//!
//! A zone gets one for each batch of its memory, as its per-CPU lists are sized when the yard is created. What is present
//! decides, for how much will be managed is not known when the tables are planned; the difference is what is reserved.

use super::{BootError, Tables, YardConfig};
use crate::sync::Ordering;
use crate::units::PageCount;
use crate::zone::PcpZone;
use crate::zone::transfer::{clusters_for, words_for_clusters};

/// How large a batch of a zone of so many pages is when the yard is created.
fn batch(config: &YardConfig<'_>, present: PageCount) -> PageCount {
    let zone = PcpZone { managed: present, low: PageCount(0), local_cpus: 1, online_cpus: 1 };
    config.pcp_sizing.sizes(config.geometry, zone).batch
}

/// How many words the table needs for zones of so many pages.
pub(super) fn cluster_words(config: &YardConfig<'_>, zones: impl Iterator<Item = PageCount>) -> usize {
    zones.map(|present| words_for_clusters(clusters_for(present, batch(config, present)))).sum()
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
