//! Statistics of transfers: how zone locks were taken and what moved under them, by zone and by CPU. No lock is taken.

use super::YardZone;
use crate::platform::Platform;
use crate::units::{CpuId, MigrateType, PageCount};
use crate::zone::transfer::{self, MechanismStatistics};
use crate::zone::{
    ClusterStatistics, CpuOwnedStatistics, DepotStatistics, TransferCounters, TransferStatistics, ZoneLockTelemetry,
};

impl<'y, P: Platform> YardZone<'y, P> {
    fn counters_of(self, cpu: Option<CpuId>) -> Option<&'y TransferCounters> {
        let own = self.yard.tables.zones.get(self.id.index())?.counters();
        match cpu {
            None => Some(own),
            Some(cpu) => (cpu.0 < self.yard.cpus).then(|| self.yard.zone_view(self.id).counters_of(cpu)),
        }
    }

    /// The zone's own counters, then those of the CPUs.
    fn counters(self) -> impl Iterator<Item = &'y TransferCounters> {
        let cpus = (0..self.yard.cpus).map(|cpu| Some(CpuId(cpu)));
        core::iter::once(None).chain(cpus).filter_map(move |cpu| self.counters_of(cpu))
    }

    fn mechanisms(self) -> MechanismStatistics {
        self.populated().map_or_else(MechanismStatistics::default, |view| transfer::statistics(view, &self.transfers()))
    }

    /// How the lock of the zone was taken, by all callers.
    ///
    /// # Cost
    ///
    /// Reads 600 bytes for each CPU.
    pub fn lock_telemetry(self) -> ZoneLockTelemetry {
        self.counters().fold(ZoneLockTelemetry::default(), |sum, counters| sum.and(&counters.lock.read()))
    }

    /// How the lock of the zone was taken for the lists of a CPU; with `None`, by callers without lists (large blocks,
    /// compaction, range operations, blocks of a CPU whose lists were locked). `None` if there is no such CPU or zone.
    pub fn lock_telemetry_of(self, cpu: Option<CpuId>) -> Option<ZoneLockTelemetry> {
        self.counters_of(cpu).map(|counters| counters.lock.read())
    }

    /// What deferred merging and clusters did in the zone, on all CPUs.
    pub fn transfers(self) -> TransferStatistics {
        self.counters().fold(TransferStatistics::default(), |sum, counters| sum.and(&transfer::counted(counters)))
    }

    /// What they did for the lists of a CPU; with `None`, for callers without lists: most merges made later. `None` if
    /// there is no such CPU or zone.
    pub fn transfers_of(self, cpu: Option<CpuId>) -> Option<TransferStatistics> {
        self.counters_of(cpu).map(transfer::counted)
    }

    /// Clusters and deferred merges of the zone, on all CPUs; nothing if there is no such zone.
    ///
    /// # Cost
    ///
    /// Reads two cache lines for each CPU.
    pub fn clusters(self) -> ClusterStatistics {
        self.mechanisms().clusters
    }

    /// The pageblocks that CPUs own in the zone; nothing if there is no such zone. Reads a few cache lines for each CPU.
    pub fn cpu_owned(self) -> CpuOwnedStatistics {
        self.mechanisms().cpu_owned
    }

    /// The pageblocks that one CPU owns in the zone; `None` if the zone has no memory or the CPU does not exist.
    pub fn cpu_owned_of(self, cpu: CpuId) -> Option<CpuOwnedStatistics> {
        let view = self.populated().filter(|_| cpu.0 < self.yard.cpus)?;
        Some(transfer::cpu_owned_statistics(view, Some(cpu)))
    }

    /// The depot of the zone; nothing if there is no such zone.
    pub fn depot(self) -> DepotStatistics {
        self.mechanisms().depot
    }

    /// Frames of a migration type in the depot. They count in [`ZoneStatistics::free`](crate::stats::ZoneStatistics::free)
    /// and not in [`free_blocks`](Self::free_blocks).
    pub fn depot_pages(self, migrate_type: MigrateType) -> PageCount {
        self.populated().map_or(PageCount(0), |view| transfer::held_pages_of_racy(view, migrate_type))
    }
}
