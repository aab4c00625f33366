//! Statistics of transfers: how zone locks were taken and what moved under them, by zone and by CPU. No lock is taken.

use super::{Yard, YardZone, ZoneStatistics};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{CpuId, MigrateType, PageCount, ZoneId};
use crate::zone::transfer;
use crate::zone::{MechanismCounts, TransferCounters, ZoneLockTelemetry};

/// Visits of one CPU's lists to their zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PcpTraffic {
    /// Refills.
    pub refills: u64,
    /// Drains.
    pub drains: u64,
}

impl<P: Platform> Yard<P> {
    /// The zone's own counters, then those of the CPUs.
    fn counters_in(&self, zone: ZoneId) -> impl Iterator<Item = &TransferCounters> {
        let view = self.zone_view(zone);
        let of_cpus = (0..self.cpus).map(move |cpu| view.counters_of(CpuId(cpu)));
        core::iter::once(self.tables.zones[zone.index()].counters()).chain(of_cpus)
    }

    fn counters_of(&self, zone: ZoneId, cpu: Option<CpuId>) -> Option<&TransferCounters> {
        let own = self.tables.zones.get(zone.index())?.counters();
        match cpu {
            None => Some(own),
            Some(cpu) => (cpu.0 < self.cpus).then(|| self.zone_view(zone).counters_of(cpu)),
        }
    }

    /// Adds the frames that transfer mechanisms hold to the statistics of a zone, and what was freed to them directly.
    pub(super) fn add_held(&self, statistics: &mut ZoneStatistics) {
        let view = self.zone_view(statistics.id);
        let held = transfer::held_for_cpus_racy(view);
        statistics.free += transfer::held_pages_racy(view);
        statistics.per_cpu += held.pages;
        statistics.frees += held.direct_frees;
        statistics.pages_freed += held.direct_pages_freed;
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// How the lock of the zone was taken, by all callers.
    ///
    /// # Panics
    ///
    /// If the node of the zone does not exist.
    ///
    /// # Cost
    ///
    /// Reads 600 bytes for each CPU.
    pub fn lock_telemetry(self) -> ZoneLockTelemetry {
        let counters = self.yard.counters_in(self.id);
        counters.fold(ZoneLockTelemetry::default(), |sum, counters| sum.and(&counters.lock.read()))
    }

    /// How the lock of the zone was taken for the lists of a CPU; with `None`, by callers without lists (large blocks, compaction,
    /// range operations, blocks of a CPU whose lists were locked). `None` if there is no such CPU or zone.
    pub fn lock_telemetry_of(self, cpu: Option<CpuId>) -> Option<ZoneLockTelemetry> {
        self.yard.counters_of(self.id, cpu).map(|counters| counters.lock.read())
    }

    /// What the transfer mechanisms counted in the zone, for all CPUs together; nothing if the zone has no memory.
    pub fn mechanism_counts(self) -> MechanismCounts {
        let cpus = (0..self.yard.cpus).map(|cpu| Some(CpuId(cpu)));
        let counts = core::iter::once(None).chain(cpus).filter_map(|cpu| self.mechanism_counts_of(cpu));
        counts.fold(MechanismCounts::default(), |sum, counts| sum.and(&counts))
    }

    /// What the transfer mechanisms counted for a CPU; with `None`, for the zone and for callers without lists. `None` if the zone
    /// has no memory or the CPU does not exist.
    pub fn mechanism_counts_of(self, cpu: Option<CpuId>) -> Option<MechanismCounts> {
        let exists = self.yard.is_populated(self.id) && cpu.is_none_or(|cpu| cpu.0 < self.yard.cpus);
        exists.then(|| MechanismCounts::of(self.yard.zone_view(self.id), cpu))
    }

    /// Frames of a migration type in the depot. They count in [`ZoneStatistics::free`] and not in
    /// [`free_blocks`](Self::free_blocks).
    pub fn depot_pages(self, migrate_type: MigrateType) -> PageCount {
        if !self.yard.is_populated(self.id) {
            return PageCount(0);
        }
        transfer::held_pages_of_racy(self.yard.zone_view(self.id), migrate_type)
    }

    /// Visits of a CPU's lists to the zone. `None` if the zone has no memory or there is no such CPU.
    pub fn pcp_traffic(self, cpu: CpuId) -> Option<PcpTraffic> {
        let pcp = self.yard.tables.pcp_of(self.id, cpu).filter(|_| self.yard.is_populated(self.id))?;
        let counts = &pcp.counts;
        Some(PcpTraffic {
            refills: counts.refills.load(Ordering::Relaxed),
            drains: counts.drains.load(Ordering::Relaxed),
        })
    }

    /// The frames that the lists of a CPU hold, huge ones included. `None` as for [`pcp_traffic`](Self::pcp_traffic).
    pub fn pcp_pages(self, cpu: CpuId) -> Option<PageCount> {
        Some(self.yard.tables.pcp_of(self.id, cpu).filter(|_| self.yard.is_populated(self.id))?.pages_racy())
    }
}
