//! Statistics of transfers: how zone locks were taken and what moved under them, by zone and by CPU. No lock is taken.

use super::{Yard, YardZone, ZoneStatistics};
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

    fn mechanism_statistics(&self, zone: ZoneId) -> MechanismStatistics {
        if zone.index() >= self.tables.zones.len() {
            return MechanismStatistics::default();
        }
        transfer::statistics(self.zone_view(zone), &self.zone(zone).transfers())
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

    /// What deferred merging and clusters did in the zone, on all CPUs.
    ///
    /// # Panics
    ///
    /// If the node of the zone does not exist.
    pub fn transfers(self) -> TransferStatistics {
        let counters = self.yard.counters_in(self.id);
        counters.fold(TransferStatistics::default(), |sum, counters| sum.and(&transfer::counted(counters)))
    }

    /// What they did for the lists of a CPU; with `None`, for callers without lists: most merges made later. `None` if there is no
    /// such CPU or zone.
    pub fn transfers_of(self, cpu: Option<CpuId>) -> Option<TransferStatistics> {
        self.yard.counters_of(self.id, cpu).map(transfer::counted)
    }

    /// Clusters and deferred merges of the zone, on all CPUs; nothing if there is no such zone.
    ///
    /// # Cost
    ///
    /// Reads two cache lines for each CPU.
    pub fn clusters(self) -> ClusterStatistics {
        self.yard.mechanism_statistics(self.id).clusters
    }

    /// The pageblocks that CPUs own in the zone; nothing if there is no such zone. Reads a few cache lines for each CPU.
    pub fn cpu_owned(self) -> CpuOwnedStatistics {
        self.yard.mechanism_statistics(self.id).cpu_owned
    }

    /// The pageblocks that one CPU owns in the zone; `None` if the zone has no memory or the CPU does not exist.
    pub fn cpu_owned_of(self, cpu: CpuId) -> Option<CpuOwnedStatistics> {
        let exists = self.yard.is_populated(self.id) && cpu.0 < self.yard.cpus;
        exists.then(|| transfer::cpu_owned_statistics(self.yard.zone_view(self.id), Some(cpu)))
    }

    /// The depot of the zone; nothing if there is no such zone.
    pub fn depot(self) -> DepotStatistics {
        self.yard.mechanism_statistics(self.id).depot
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
