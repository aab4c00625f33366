//! Metrics: the counters of each zone and CPU, under names that all output formats share.
//!
//! [`write_metrics`] writes them in the form of `/proc/vmstat`, [`write_prometheus`] in the text format of Prometheus.
//! To write another format, iterate over [`MetricsSource::for_each_row`], [`Metric`] and [`MetricHistogram`].

use core::fmt;

use frameyard::locks::HistogramCounts;
use frameyard::policy::ZonePolicy;
use frameyard::stats::{CompactEvent, MechanismCounts, PcpStatistics, RegionCounts, ZoneLockTelemetry};
use frameyard::units::ZoneKind;
use frameyard::{CleanRegions, CpuId, Platform, Yard, ZoneId};

mod numbers;
mod prometheus;
mod text;

pub use numbers::Metric;
pub use prometheus::{Series, write_prometheus};
pub use text::write_metrics;

/// The counters of one zone and one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricsRow {
    /// The zone.
    pub zone: ZoneId,
    /// The CPU; `None` in the zone's own row, which has the transfers that bypassed the per-CPU lists.
    pub cpu: Option<CpuId>,
    /// Acquisitions of the zone lock.
    pub lock: ZoneLockTelemetry,
    /// The counters of the policy's mechanisms.
    pub mechanisms: MechanismCounts,
    /// The CPU's lists.
    pub lists: Option<PcpStatistics>,
    /// Frames of the zone that are out of use because of a bad page structure; only in the zone's own row.
    pub bad_pages: Option<u64>,
    /// Whole free pageblocks, and what made them; only in the zone's own row.
    pub whole: Option<WholePageblocks>,
    /// The regions of 1 GiB, and what happened to them; only in the zone's own row.
    pub regions: Option<RegionNumbers>,
}

/// Free frames in whole pageblocks, and what the background compactor and owners did to make them whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WholePageblocks {
    /// Free frames in whole pageblocks; `None` while the yard keeps no stock of them.
    pub stock: Option<u64>,
    /// Frames that the background compactor moved.
    pub moved: u64,
    /// Frames whose contents were dropped by compaction.
    pub discarded: u64,
}

impl WholePageblocks {
    fn of<P: Platform>(yard: &Yard<P>, zone: ZoneId) -> Self {
        let compaction = yard.zone(zone).compaction();
        Self {
            stock: yard.zone(zone).stock().map(|stock| stock.free.0),
            moved: compaction.count(CompactEvent::DaemonMigrated),
            discarded: compaction.count(CompactEvent::Discarded),
        }
    }
}

/// The regions of 1 GiB of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionNumbers {
    /// The numbers of clean and of tainted regions; `None` while the yard does not keep regions clean.
    pub now: Option<[u64; 2]>,
    /// What happened.
    pub counts: RegionCounts,
}

impl RegionNumbers {
    fn of<P: Platform>(yard: &Yard<P>, zone: ZoneId) -> Self {
        let mut now = [0; 2];
        yard.zone(zone).regions().for_each(|region| now[usize::from(region.is_tainted())] += 1);
        let keeps = yard.clean_regions() == CleanRegions::On;
        Self { now: keeps.then_some(now), counts: yard.zone(zone).region_counts() }
    }
}

/// A source of metrics.
pub trait MetricsSource {
    /// The current policy.
    fn policy(&self) -> ZonePolicy;

    /// Calls `visit` with one row for each populated zone and CPU, and with one row for each zone alone, for the
    /// transfers that bypassed the per-CPU lists.
    ///
    /// # Errors
    ///
    /// The first error of `visit`, after which `visit` is not called again.
    fn for_each_row(&self, visit: &mut dyn FnMut(&MetricsRow) -> fmt::Result) -> fmt::Result;
}

/// A distribution counted per zone and CPU while locks are timed
/// ([`Probe::lock_clock_ns`](frameyard::platform::Probe::lock_clock_ns)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MetricHistogram {
    /// Time spent waiting for the zone lock, per contended acquisition.
    Wait,
    /// Hold time of the zone lock.
    Hold,
    /// Page frames moved per hold of the zone lock; holds that moved none are not counted.
    Pages,
}

impl MetricHistogram {
    /// All histograms, in output order.
    pub const ALL: [Self; 3] = [Self::Wait, Self::Hold, Self::Pages];

    /// The name in text and JSON, where times are in nanoseconds. It is followed by `_sum`, `_count` or `_le_N`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "zone_lock_wait_ns",
            Self::Hold => "zone_lock_hold_ns",
            Self::Pages => "zone_lock_pages_per_acquisition",
        }
    }

    /// A one-line description.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            Self::Wait => "Time spent waiting for the zone lock, per contended acquisition.",
            Self::Hold => "Hold time of the zone lock.",
            Self::Pages => "Page frames moved per hold of the zone lock, of holds that moved any.",
        }
    }

    /// The buckets of a row, and the sum of the values.
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

/// Takes no lock. Reads about a kilobyte per CPU and zone. Zones of devices have no rows.
impl<P: Platform> MetricsSource for Yard<P> {
    fn policy(&self) -> ZonePolicy {
        Yard::policy(self)
    }

    fn for_each_row(&self, visit: &mut dyn FnMut(&MetricsRow) -> fmt::Result) -> fmt::Result {
        for zone in self.stats().zones().filter(|zone| zone.id.kind() != ZoneKind::Device) {
            let (zone, bad_pages) = (zone.id, zone.bad_pages);
            let own = core::iter::once(None);
            for cpu in own.chain((0..self.cpus()).map(|cpu| Some(CpuId(cpu)))) {
                let lock = self.zone(zone).lock_telemetry_of(cpu).unwrap_or_default();
                let mechanisms = self.zone(zone).mechanism_counts_of(cpu).unwrap_or_default();
                let lists = cpu.and_then(|cpu| self.zone(zone).pcp(cpu));
                let bad_pages = cpu.is_none().then_some(bad_pages);
                let whole = cpu.is_none().then(|| WholePageblocks::of(self, zone));
                let regions = cpu.is_none().then(|| RegionNumbers::of(self, zone));
                visit(&MetricsRow { zone, cpu, lock, mechanisms, lists, bad_pages, whole, regions })?;
            }
        }
        Ok(())
    }
}
