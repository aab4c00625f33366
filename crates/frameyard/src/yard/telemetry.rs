//! How locks of zones were taken, and what crossed them: by zone, and by the CPU whose lists did it. No lock is taken.

use super::{Yard, YardZone};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{CpuId, PageCount, ZoneId};
use crate::zone::transfer::TransferCounters;
use crate::zone::{TransferStatistics, ZoneLockTelemetry};

/// How often one CPU's lists went to their zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PcpTraffic {
    /// Batches fetched.
    pub refills: u64,
    /// Batches given back.
    pub drains: u64,
}

impl<P: Platform> Yard<P> {
    /// The zone's own row, then those of the CPUs.
    fn rows_of(&self, zone: ZoneId) -> impl Iterator<Item = &TransferCounters> {
        let view = self.zone_view(zone);
        let of_cpus = (0..self.cpus).map(move |cpu| view.row_of(CpuId(cpu)));
        core::iter::once(self.tables.zones[zone.index()].row()).chain(of_cpus)
    }

    fn row_of(&self, zone: ZoneId, cpu: Option<CpuId>) -> Option<&TransferCounters> {
        let own = self.tables.zones.get(zone.index())?.row();
        match cpu {
            None => Some(own),
            Some(cpu) => (cpu.0 < self.cpus).then(|| self.zone_view(zone).row_of(cpu)),
        }
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// How the lock of a zone was taken, by all.
    ///
    /// # Panics
    ///
    /// Where the node of the zone does not exist.
    ///
    /// # Cost
    ///
    /// Reads 600 bytes for each CPU.
    pub fn lock_telemetry(self) -> ZoneLockTelemetry {
        let Self { yard, id: zone } = self;
        yard.rows_of(zone).fold(ZoneLockTelemetry::default(), |sum, row| sum.and(&row.lock.read()))
    }

    /// How the lock of a zone was taken for the lists of a CPU; with `None`, by all that did without these (large blocks,
    /// compaction, range operations, blocks of a CPU whose lists were busy). `None` where there is no such CPU or zone.
    pub fn lock_telemetry_of(self, cpu: Option<CpuId>) -> Option<ZoneLockTelemetry> {
        let Self { yard, id: zone } = self;
        yard.row_of(zone, cpu).map(|row| row.lock.read())
    }

    /// What policies that put merging off or move clusters did at the border of a zone, on all CPUs.
    ///
    /// # Panics
    ///
    /// Where the node of the zone does not exist.
    pub fn transfers(self) -> TransferStatistics {
        let Self { yard, id: zone } = self;
        yard.rows_of(zone).fold(TransferStatistics::default(), |sum, row| sum.and(&row.transfer.read()))
    }

    /// What they did for the lists of a CPU, or, with `None`, beside these: most merges made later. `None` where there is no such CPU or zone.
    pub fn transfers_of(self, cpu: Option<CpuId>) -> Option<TransferStatistics> {
        let Self { yard, id: zone } = self;
        yard.row_of(zone, cpu).map(|row| row.transfer.read())
    }

    /// How often the lists of a CPU went to their zone. `None` where the zone has no memory or there is no such CPU.
    pub fn pcp_traffic(self, cpu: CpuId) -> Option<PcpTraffic> {
        let Self { yard, id: zone } = self;
        let pcp = yard.tables.pcp_of(zone, cpu).filter(|_| yard.is_populated(zone))?;
        let counts = &pcp.counts;
        Some(PcpTraffic {
            refills: counts.refills.load(Ordering::Relaxed),
            drains: counts.drains.load(Ordering::Relaxed),
        })
    }

    /// How many frames the lists of a CPU hold, huge ones included. `None` as for [`pcp_traffic`](Self::pcp_traffic).
    pub fn pcp_pages(self, cpu: CpuId) -> Option<PageCount> {
        let Self { yard, id: zone } = self;
        Some(yard.tables.pcp_of(zone, cpu).filter(|_| yard.is_populated(zone))?.pages_racy())
    }
}
