//! Statistics of transfers, by zone and by CPU: how zone locks were taken and what moved under them. Reading them takes
//! no lock.

use crate::platform::Platform;
use crate::store::{self, MechanismCounts};
use crate::units::{CpuId, MigrateType, Order};
use crate::yard::YardZone;
use crate::zone::{TransferCounters, ZoneLockTelemetry};

impl<'y, P: Platform> YardZone<'y, P> {
    fn counters_of(self, cpu: Option<CpuId>) -> Option<&'y TransferCounters> {
        let own = self.yard.tables.zones.get(self.id.index())?.counters();
        match cpu {
            None => Some(own),
            Some(cpu) => (cpu.0 < self.yard.cpus).then(|| self.yard.zone_view(self.id).counters_of(cpu)),
        }
    }

    /// No CPU, which stands for the zone itself, then all CPUs.
    fn counted_places(self) -> impl Iterator<Item = Option<CpuId>> {
        core::iter::once(None).chain((0..self.yard.cpus).map(|cpu| Some(CpuId(cpu))))
    }

    /// How the lock of the zone was taken, by all callers.
    ///
    /// # Cost
    ///
    /// Reads 600 bytes for each CPU.
    pub fn lock_telemetry(self) -> ZoneLockTelemetry {
        let counts = self.counted_places().filter_map(|cpu| self.lock_telemetry_of(cpu));
        counts.fold(ZoneLockTelemetry::default(), |sum, counts| sum.and(&counts))
    }

    /// How the lock of the zone was taken on behalf of one CPU's lists. If `cpu` is `None`, how it was taken for
    /// anything else: large blocks, compaction, range operations, and CPUs whose lists were locked at the time. Returns
    /// `None` if there is no such CPU or zone.
    pub fn lock_telemetry_of(self, cpu: Option<CpuId>) -> Option<ZoneLockTelemetry> {
        self.counters_of(cpu).map(|counters| counters.lock.read())
    }

    /// What the transfer mechanisms counted in the zone, summed over all CPUs; all zero if the zone has no memory.
    pub fn mechanism_counts(self) -> MechanismCounts {
        let counts = self.counted_places().filter_map(|cpu| self.mechanism_counts_of(cpu));
        counts.fold(MechanismCounts::default(), |sum, counts| sum.and(&counts))
    }

    /// What the transfer mechanisms counted for one CPU. If `cpu` is `None`, what they counted for the zone itself and
    /// for callers without lists. Returns `None` if the zone has no memory or the CPU does not exist.
    pub fn mechanism_counts_of(self, cpu: Option<CpuId>) -> Option<MechanismCounts> {
        let view = self.populated().filter(|_| cpu.is_none_or(|cpu| cpu.0 < self.yard.cpus))?;
        Some(MechanismCounts::of(view, cpu))
    }

    /// The number of blocks of an order and migration type among the free frames that are
    /// [bits](crate::policy::ZonePolicy::Bits). [`ZoneStatistics::free`](crate::stats::ZoneStatistics::free) includes
    /// them, and [`free_blocks`](Self::free_blocks) does not. Possibly stale in a yard that is in use. Reads all bits
    /// of the zone without a lock.
    pub fn blocks_in_bits(self, order: Order, migrate_type: MigrateType) -> u64 {
        self.populated().map_or(0, |view| store::blocks_in_bits_racy(view, order, migrate_type))
    }
}
