//! Statistics of transfers: how zone locks were taken and what moved under them, by zone and by CPU. No lock is taken.

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

    /// How the lock of the zone was taken for the lists of a CPU; with `None`, by callers without lists (large blocks,
    /// compaction, range operations, blocks of a CPU whose lists were locked). `None` if there is no such CPU or zone.
    pub fn lock_telemetry_of(self, cpu: Option<CpuId>) -> Option<ZoneLockTelemetry> {
        self.counters_of(cpu).map(|counters| counters.lock.read())
    }

    /// What the transfer mechanisms counted in the zone, for all CPUs together; nothing if the zone has no memory.
    pub fn mechanism_counts(self) -> MechanismCounts {
        let counts = self.counted_places().filter_map(|cpu| self.mechanism_counts_of(cpu));
        counts.fold(MechanismCounts::default(), |sum, counts| sum.and(&counts))
    }

    /// What the transfer mechanisms counted for a CPU; with `None`, for the zone and for callers without lists. `None` if the zone
    /// has no memory or the CPU does not exist.
    pub fn mechanism_counts_of(self, cpu: Option<CpuId>) -> Option<MechanismCounts> {
        let view = self.populated().filter(|_| cpu.is_none_or(|cpu| cpu.0 < self.yard.cpus))?;
        Some(MechanismCounts::of(view, cpu))
    }

    /// Blocks of an order and a migration type among the free frames that are [bits](crate::policy::ZonePolicy::Bits). They count in
    /// [`ZoneStatistics::free`](crate::stats::ZoneStatistics::free) and not in [`free_blocks`](Self::free_blocks). Possibly stale in a yard
    /// in use. Reads all bits of the zone; takes no lock.
    pub fn blocks_in_bits(self, order: Order, migrate_type: MigrateType) -> u64 {
        self.populated().map_or(0, |view| store::blocks_in_bits_racy(view, order, migrate_type))
    }
}
