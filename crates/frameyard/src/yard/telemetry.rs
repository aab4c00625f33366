//! Statistics of transfers: how zone locks were taken and what moved under them, by zone and by CPU. No lock is taken.

use super::{Yard, ZoneStatistics};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{CpuId, MigrateType, PageCount, ZoneId};
use crate::zone::transfer::{self, MechanismStatistics};
use crate::zone::{
    ClusterStatistics, CpuOwnedStatistics, DepotStatistics, TransferCounters, TransferStatistics, ZoneLockTelemetry,
};

/// Visits of one CPU's lists to their zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PcpTraffic {
    /// Refills.
    pub refills: u64,
    /// Drains.
    pub drains: u64,
}

impl<P: Platform> Yard<P> {
    /// How the lock of a zone was taken, by all callers.
    ///
    /// # Panics
    ///
    /// If the node of the zone does not exist.
    ///
    /// # Cost
    ///
    /// Reads 600 bytes for each CPU.
    pub fn zone_lock_telemetry(&self, zone: ZoneId) -> ZoneLockTelemetry {
        self.counters_in(zone).fold(ZoneLockTelemetry::default(), |sum, counters| sum.and(&counters.lock.read()))
    }

    /// How the lock of a zone was taken for the lists of a CPU; with `None`, by callers without lists (large blocks, compaction,
    /// range operations, blocks of a CPU whose lists were locked). `None` if there is no such CPU or zone.
    pub fn zone_lock_telemetry_of(&self, zone: ZoneId, cpu: Option<CpuId>) -> Option<ZoneLockTelemetry> {
        self.counters_of(zone, cpu).map(|counters| counters.lock.read())
    }

    /// What deferred merging and clusters did in a zone, on all CPUs.
    ///
    /// # Panics
    ///
    /// If the node of the zone does not exist.
    pub fn transfer_statistics(&self, zone: ZoneId) -> TransferStatistics {
        self.counters_in(zone)
            .fold(TransferStatistics::default(), |sum, counters| sum.and(&transfer::counted(counters)))
    }

    /// What they did for the lists of a CPU; with `None`, for callers without lists: most merges made later. `None` if there is no
    /// such CPU or zone.
    pub fn transfer_statistics_of(&self, zone: ZoneId, cpu: Option<CpuId>) -> Option<TransferStatistics> {
        self.counters_of(zone, cpu).map(transfer::counted)
    }

    /// Clusters and deferred merges of a zone, on all CPUs; nothing if there is no such zone.
    ///
    /// # Cost
    ///
    /// Reads two cache lines for each CPU.
    pub fn cluster_statistics(&self, zone: ZoneId) -> ClusterStatistics {
        self.mechanism_statistics(zone).clusters
    }

    /// The pageblocks that CPUs own in a zone; nothing if there is no such zone. Reads a few cache lines for each CPU.
    pub fn cpu_owned_statistics(&self, zone: ZoneId) -> CpuOwnedStatistics {
        if !self.is_populated(zone) {
            return CpuOwnedStatistics::default();
        }
        transfer::cpu_owned_statistics(self.zone_view(zone), None)
    }

    /// The pageblocks that one CPU owns in a zone; `None` if the zone has no memory or the CPU does not exist.
    pub fn cpu_owned_statistics_of(&self, zone: ZoneId, cpu: CpuId) -> Option<CpuOwnedStatistics> {
        let exists = self.is_populated(zone) && cpu.0 < self.cpus;
        exists.then(|| transfer::cpu_owned_statistics(self.zone_view(zone), Some(cpu)))
    }

    /// The depot of a zone; nothing if there is no such zone.
    pub fn depot_statistics(&self, zone: ZoneId) -> DepotStatistics {
        self.mechanism_statistics(zone).depot
    }

    /// Frames of a migration type in the depot of a zone. They count in [`ZoneStatistics::free`] and not in
    /// [`free_blocks`](Self::free_blocks).
    pub fn depot_pages(&self, zone: ZoneId, migrate_type: MigrateType) -> PageCount {
        if !self.is_populated(zone) {
            return PageCount(0);
        }
        transfer::held_pages_of_racy(self.zone_view(zone), migrate_type)
    }

    fn mechanism_statistics(&self, zone: ZoneId) -> MechanismStatistics {
        if zone.index() >= self.tables.zones.len() {
            return MechanismStatistics::default();
        }
        transfer::statistics(self.zone_view(zone), &self.transfer_statistics(zone))
    }

    /// Adds the frames that transfer mechanisms hold to the statistics of a zone, and what was freed to them directly.
    pub(super) fn add_held(&self, statistics: &mut ZoneStatistics) {
        let view = self.zone_view(statistics.id);
        let owned = transfer::cpu_owned_statistics(view, None);
        statistics.free += transfer::held_pages_racy(view);
        statistics.cpu_owned_free += owned.free;
        statistics.per_cpu += owned.free;
        statistics.frees += owned.direct_frees;
        statistics.pages_freed += owned.direct_pages_freed.0;
    }

    /// Visits of a CPU's lists to their zone. `None` if the zone has no memory or there is no such CPU.
    pub fn pcp_traffic(&self, zone: ZoneId, cpu: CpuId) -> Option<PcpTraffic> {
        let pcp = self.tables.pcp_of(zone, cpu).filter(|_| self.is_populated(zone))?;
        let counts = &pcp.counts;
        Some(PcpTraffic {
            refills: counts.refills.load(Ordering::Relaxed),
            drains: counts.drains.load(Ordering::Relaxed),
        })
    }

    /// The frames that the lists of a CPU hold, huge ones included. `None` as for [`pcp_traffic`](Self::pcp_traffic).
    pub fn pcp_pages(&self, zone: ZoneId, cpu: CpuId) -> Option<PageCount> {
        Some(self.tables.pcp_of(zone, cpu).filter(|_| self.is_populated(zone))?.pages_racy())
    }

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
}
