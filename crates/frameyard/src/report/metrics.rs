//! What a yard counts at the borders of its zones, as metrics: for each zone and CPU, by names that all forms share.
//!
//! [`write_metrics`] writes them as `/proc/vmstat` writes its counters; [`write_prometheus`] in the text format that
//! Prometheus reads. Whoever wants another form goes over [`MetricsSource::for_each_row`], [`Metric`] and
//! [`MetricHistogram`].

use core::fmt;

use crate::lock::HistogramCounts;
use crate::platform::Platform;
use crate::units::{CpuId, PageCount, ZoneId};
use crate::yard::{PcpTraffic, Yard};
use crate::zone::{
    ClusterStatistics, CpuOwnedStatistics, DepotStatistics, TransferStatistics, ZoneLockTelemetry, ZonePolicy,
};

mod numbers;
mod prometheus;
mod text;

pub use numbers::{Metric, MetricKind, MetricScope};
pub use prometheus::write_prometheus;
pub use text::write_metrics;

/// One CPU's lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ListMetrics {
    /// Frames on the lists, huge ones included.
    pub pages: PageCount,
    /// How often they went to their zone.
    pub traffic: PcpTraffic,
}

/// What a zone has one of, and counts there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneMetrics {
    /// Its clusters, and waits for what is in progress.
    pub clusters: ClusterStatistics,
    /// Its depot.
    pub depot: DepotStatistics,
}

/// What was counted of a zone and a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricsRow {
    /// The zone.
    pub zone: ZoneId,
    /// The CPU; `None` for all that did without the lists of a CPU.
    pub cpu: Option<CpuId>,
    /// How the lock of the zone was taken.
    pub lock: ZoneLockTelemetry,
    /// What policies that put merging off or move clusters did.
    pub transfer: TransferStatistics,
    /// The CPU's lists.
    pub lists: Option<ListMetrics>,
    /// The pageblocks that the CPU owns.
    pub owned: Option<CpuOwnedStatistics>,
    /// What the zone has one of; in the row without a CPU.
    pub shared: Option<ZoneMetrics>,
}

/// Where the numbers come from.
pub trait MetricsSource {
    /// The policy in force.
    fn policy(&self) -> ZonePolicy;

    /// Calls `visit` with a row for each populated zone and CPU, and for each zone one of all that did without a CPU's
    /// lists. Each pair comes once.
    ///
    /// # Errors
    ///
    /// The first of `visit`, which is not called again.
    fn for_each_row(&self, visit: &mut dyn FnMut(&MetricsRow) -> fmt::Result) -> fmt::Result;
}

/// A distribution that is counted for each zone and CPU while locks are timed
/// ([`Platform::lock_clock_ns`](crate::Platform::lock_clock_ns)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MetricHistogram {
    /// How long the zone lock was waited for, where somebody else held it.
    Wait,
    /// How long the zone lock was held.
    Hold,
    /// Page frames that crossed in one hold of the zone lock, of those holds in which any did.
    Pages,
}

impl MetricHistogram {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 3] = [Self::Wait, Self::Hold, Self::Pages];

    /// The name in text and JSON; times are in nanoseconds there. `_sum`, `_count` and `_le_N` stand behind it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "zone_lock_wait_ns",
            Self::Hold => "zone_lock_hold_ns",
            Self::Pages => "zone_lock_pages_per_acquisition",
        }
    }

    /// What it means, in one line.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            Self::Wait => "How long the zone lock was waited for, where somebody else held it.",
            Self::Hold => "How long the zone lock was held.",
            Self::Pages => "Page frames that crossed in one hold of the zone lock, of holds in which any did.",
        }
    }

    /// What was counted in a row, and the sum of the values.
    #[must_use]
    pub fn counts(self, row: &MetricsRow) -> (HistogramCounts, u64) {
        self.counts_of(&row.lock)
    }

    fn counts_of(self, lock: &ZoneLockTelemetry) -> (HistogramCounts, u64) {
        match self {
            Self::Wait => (lock.wait_ns, lock.uses.wait_ns),
            Self::Hold => (lock.hold_ns, lock.uses.hold_ns),
            Self::Pages => (lock.pages, lock.pages_timed),
        }
    }
}

/// No lock is taken. Reads a kilobyte for each CPU and zone, and a line for each stack of the depot.
impl<P: Platform> MetricsSource for Yard<P> {
    fn policy(&self) -> ZonePolicy {
        Yard::policy(self)
    }

    fn for_each_row(&self, visit: &mut dyn FnMut(&MetricsRow) -> fmt::Result) -> fmt::Result {
        for zone in self.populated_zones() {
            let own = core::iter::once(None);
            for cpu in own.chain((0..self.cpus()).map(|cpu| Some(CpuId(cpu)))) {
                let lock = self.zone_lock_telemetry_of(zone, cpu).unwrap_or_default();
                let transfer = self.transfer_statistics_of(zone, cpu).unwrap_or_default();
                let lists = cpu.and_then(|cpu| {
                    let traffic = self.pcp_traffic(zone, cpu)?;
                    Some(ListMetrics { pages: self.pcp_pages(zone, cpu)?, traffic })
                });
                let owned = cpu.and_then(|cpu| self.cpu_owned_statistics_of(zone, cpu));
                let shared = cpu.is_none().then(|| ZoneMetrics {
                    clusters: self.cluster_statistics(zone),
                    depot: self.depot_statistics(zone),
                });
                visit(&MetricsRow { zone, cpu, lock, transfer, lists, owned, shared })?;
            }
        }
        Ok(())
    }
}
