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
use crate::zone::{CrossingStatistics, ZoneLockTelemetry, ZonePolicy};

mod prometheus;
mod text;

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

/// What was counted of a zone and a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MetricsRow {
    /// The zone.
    pub zone: ZoneId,
    /// The CPU; `None` for all that did without the lists of a CPU.
    pub cpu: Option<CpuId>,
    /// How the lock of the zone was taken.
    pub lock: ZoneLockTelemetry,
    /// What the ways of crossing did.
    pub crossing: CrossingStatistics,
    /// The CPU's lists.
    pub lists: Option<ListMetrics>,
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

/// How a metric changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MetricKind {
    /// It only rises.
    Counter,
    /// It rises and falls.
    Gauge,
}

macro_rules! metrics {
    ($($variant:ident $name:literal $kind:ident $help:literal |$row:ident| $value:expr;)*) => {
        /// A number that is counted for each zone and CPU.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Metric {
            $(#[doc = $help] $variant,)*
        }

        impl Metric {
            /// All of them, in the order in which they are written.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in text and JSON. Prometheus has it with `frameyard_` before it and, where it is a counter,
            /// `_total` behind it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// How it changes.
            #[must_use]
            pub const fn kind(self) -> MetricKind {
                match self { $(Self::$variant => MetricKind::$kind),* }
            }

            /// What it means, in one line.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }

            /// Its value in a row; `None` where rows of that sort have none. Gauges of one zone may be negative in some
            /// rows: their sum is meant.
            #[must_use]
            pub fn value(self, row: &MetricsRow) -> Option<i64> {
                let value: Option<u64> = match self { $(Self::$variant => { let $row = row; $value })* };
                value.map(|value| value as i64)
            }
        }
    };
}

metrics! {
    Acquisitions "zone_lock_acquisitions" Counter "Times the zone lock was taken."
        |row| Some(row.lock.uses.acquisitions);
    Contended "zone_lock_contended" Counter "Times somebody else held the zone lock when it was asked for."
        |row| Some(row.lock.uses.contended);
    PagesMoved "zone_lock_pages_moved" Counter "Page frames that crossed the zone lock, either way."
        |row| Some(row.lock.pages_moved);
    PcpPages "pcp_pages" Gauge "Page frames on per-CPU lists."
        |row| row.lists.map(|lists| lists.pages.0);
    PcpRefills "pcp_refills" Counter "Batches that per-CPU lists fetched from the zone."
        |row| row.lists.map(|lists| lists.traffic.refills);
    PcpDrains "pcp_drains" Counter "Batches that per-CPU lists gave back to the zone."
        |row| row.lists.map(|lists| lists.traffic.drains);
    CrossCpuFrees "cross_cpu_frees" Counter "Frees by another CPU than the one that the page frames belong to."
        |row| Some(row.crossing.cross_cpu_frees);
    SkippedMerges "skipped_merges" Counter "Page frames freed without being merged."
        |row| Some(row.crossing.skipped_merges);
    LaterMerges "later_merges" Counter "Merges of such page frames made later, on demand."
        |row| Some(row.crossing.later_merges);
    ClustersInUse "clusters_in_use" Gauge "Clusters in use."
        |row| Some(row.crossing.clusters_in_use);
    ClustersUsedUp "clusters_used_up" Counter "Times no cluster was left for page frames that could have had one."
        |row| Some(row.crossing.clusters_used_up);
    CutWaits "cut_waits" Counter "Waits for cuts in progress."
        |row| Some(row.crossing.cut_waits);
    OverflowDrains "overflow_drains" Counter "Drains of an overflowing list, where the policy looks at what they hold."
        |row| Some(row.crossing.drains);
    FullBatchUnmovable "full_batch_drains_unmovable" Counter "Drains of exactly one batch of unmovable page frames."
        |row| Some(row.crossing.full_batch_drains[0]);
    FullBatchMovable "full_batch_drains_movable" Counter "Drains of exactly one batch of movable page frames."
        |row| Some(row.crossing.full_batch_drains[1]);
    FullBatchReclaimable "full_batch_drains_reclaimable" Counter
        "Drains of exactly one batch of reclaimable page frames."
        |row| Some(row.crossing.full_batch_drains[2]);
    DepotPushes "depot_pushes" Counter "Batches put on a lock-free stack."
        |row| Some(row.crossing.depot_pushes);
    DepotPops "depot_pops" Counter "Batches taken off the own lock-free stack."
        |row| Some(row.crossing.depot_pops);
    DepotSteals "depot_steals" Counter "Batches taken off another lock-free stack."
        |row| Some(row.crossing.depot_steals);
    DepotRetries "depot_retries" Counter "Steps on a lock-free stack that had to be tried again."
        |row| Some(row.crossing.depot_retries);
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
        let lock = &row.lock;
        match self {
            Self::Wait => (lock.wait_ns, lock.uses.wait_ns),
            Self::Hold => (lock.hold_ns, lock.uses.hold_ns),
            Self::Pages => (lock.pages, lock.pages_timed),
        }
    }
}

/// No lock is taken. Reads 700 bytes for each CPU and zone.
impl<P: Platform> MetricsSource for Yard<P> {
    fn policy(&self) -> ZonePolicy {
        Yard::policy(self)
    }

    fn for_each_row(&self, visit: &mut dyn FnMut(&MetricsRow) -> fmt::Result) -> fmt::Result {
        for zone in self.populated_zones() {
            let own = core::iter::once(None);
            for cpu in own.chain((0..self.cpus()).map(|cpu| Some(CpuId(cpu)))) {
                let lock = self.zone_lock_telemetry_of(zone, cpu).unwrap_or_default();
                let crossing = self.crossing_statistics_of(zone, cpu).unwrap_or_default();
                let lists = cpu.and_then(|cpu| {
                    let traffic = self.pcp_traffic(zone, cpu)?;
                    Some(ListMetrics { pages: self.pcp_pages(zone, cpu)?, traffic })
                });
                visit(&MetricsRow { zone, cpu, lock, crossing, lists })?;
            }
        }
        Ok(())
    }
}
