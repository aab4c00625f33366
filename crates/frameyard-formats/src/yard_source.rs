//! A yard as a [`ReportSource`].

use frameyard::Platform;
use frameyard::Yard;
use frameyard::stats::{CompactEvent, ZoneStatistics};
use frameyard::units::ZoneKind;
use frameyard::watermarks::stat_threshold;
use frameyard::{CpuId, Geometry, MigrateType, Order, PageCount, ZoneId};

use super::snapshot::{PcpSnapshot, ReportSource, ZoneSnapshot};
use super::{GlobalStat, NumaEvent, VmEvent};

/// The statistics of a yard under the kernel's names. Values that only owners of frames know (LRU lists, faults, swap)
/// print as 0.
///
/// - `numa_hit`: blocks allocated on the preferred node, that is, all except those in `numa_miss`.
/// - `numa_local`, `numa_other`: blocks allocated by a CPU of the zone's node, and by one of another node. Blocks that
///   did not come from a per-CPU list all count as local.
/// - `allocstall_*`: rounds of reclaim that requests with owners asked for. Failed requests have a counter of their own
///   in [`Yard::stats`].
/// - `compact_*`, `pgmigrate_*`: sums of the compaction counters of all zones.
///
/// Takes no lock. To read a value of a zone, it goes through the lists of all CPUs.
impl<P: Platform> ReportSource for Yard<P> {
    fn geometry(&self) -> Geometry {
        Yard::geometry(self)
    }

    fn nodes(&self) -> u16 {
        Yard::nodes(self)
    }

    fn cpus(&self) -> u32 {
        Yard::cpus(self)
    }

    fn has_cma(&self) -> bool {
        self.stats().zones().any(|zone| zone.cma.0 > 0)
    }

    fn zone(&self, id: ZoneId) -> ZoneSnapshot {
        let zone = self.zone(id).statistics();
        ZoneSnapshot {
            start: zone.span.start,
            spanned: zone.span.count(),
            present: zone.present,
            managed: zone.managed,
            free: zone.free,
            cma: zone.cma,
            free_cma: zone.free_cma,
            watermarks: zone.watermarks,
            protection: zone.protection,
        }
    }

    fn per_cpu(&self, id: ZoneId, cpu: CpuId) -> PcpSnapshot {
        let Some(lists) = self.zone(id).pcp(cpu) else { return PcpSnapshot::default() };
        PcpSnapshot {
            count: lists.count,
            high: lists.high,
            batch: lists.batch,
            stat_threshold: stat_threshold(Yard::geometry(self), self.zone(id).statistics().managed, Yard::cpus(self)),
        }
    }

    fn free_blocks(&self, id: ZoneId, migrate_type: MigrateType, order: Order) -> u64 {
        // Blocks in bits are free. Without them buddyinfo would disagree with zoneinfo.
        self.zone(id).free_blocks(order, migrate_type) + self.zone(id).blocks_in_bits(order, migrate_type)
    }

    fn pageblocks(&self, id: ZoneId, migrate_type: MigrateType) -> u64 {
        self.zone(id).pageblocks(migrate_type)
    }

    fn reported(&self, id: ZoneId) -> PageCount {
        self.zone(id).statistics().reported
    }

    fn numa_event(&self, id: ZoneId, event: NumaEvent) -> u64 {
        let zone = self.zone(id).statistics();
        match event {
            NumaEvent::NumaHit => zone.allocations.saturating_sub(zone.numa_miss),
            NumaEvent::NumaMiss => zone.numa_miss,
            NumaEvent::NumaForeign => zone.numa_foreign,
            NumaEvent::NumaInterleave => 0,
            NumaEvent::NumaLocal => zone.local_allocations,
            NumaEvent::NumaOther => zone.allocations.saturating_sub(zone.local_allocations),
        }
    }

    fn global_stat(&self, stat: GlobalStat) -> u64 {
        match stat {
            GlobalStat::NrMemmapBootPages => map_pages(self).0,
            GlobalStat::NrDirtyThreshold | GlobalStat::NrDirtyBackgroundThreshold | GlobalStat::NrMemmapPages => 0,
        }
    }

    fn event(&self, event: VmEvent) -> u64 {
        let allocated =
            |kind: ZoneKind| sum(self, |zone| if zone.id.kind() == kind { zone.pages_allocated } else { 0 });
        match event {
            VmEvent::PgallocDma => allocated(ZoneKind::Dma),
            VmEvent::PgallocDma32 => allocated(ZoneKind::Dma32),
            VmEvent::PgallocNormal => allocated(ZoneKind::Normal),
            VmEvent::PgallocMovable => allocated(ZoneKind::Movable),
            VmEvent::PgallocDevice => allocated(ZoneKind::Device),
            VmEvent::Pgfree => sum(self, |zone| zone.pages_freed),
            VmEvent::AllocstallDma => self.stats().reclaim_stalls(ZoneKind::Dma),
            VmEvent::AllocstallDma32 => self.stats().reclaim_stalls(ZoneKind::Dma32),
            VmEvent::AllocstallNormal => self.stats().reclaim_stalls(ZoneKind::Normal),
            VmEvent::AllocstallMovable => self.stats().reclaim_stalls(ZoneKind::Movable),
            VmEvent::AllocstallDevice => self.stats().reclaim_stalls(ZoneKind::Device),
            VmEvent::PgmigrateSuccess => compacted(self, CompactEvent::Migrated),
            VmEvent::PgmigrateFail => compacted(self, CompactEvent::MigrateFailed),
            VmEvent::CompactMigrateScanned => compacted(self, CompactEvent::MigrateScanned),
            VmEvent::CompactFreeScanned => compacted(self, CompactEvent::FreeScanned),
            VmEvent::CompactIsolated => compacted(self, CompactEvent::Isolated),
            VmEvent::CompactStall => compacted(self, CompactEvent::Stall),
            VmEvent::CompactFail => compacted(self, CompactEvent::Fail),
            VmEvent::CompactSuccess => compacted(self, CompactEvent::Success),
            VmEvent::CompactDaemonWake => compacted(self, CompactEvent::DaemonWake),
            VmEvent::CompactDaemonMigrateScanned => compacted(self, CompactEvent::DaemonMigrateScanned),
            VmEvent::CompactDaemonFreeScanned => compacted(self, CompactEvent::DaemonFreeScanned),
            VmEvent::CmaAllocSuccess => sum(self, |zone| zone.cma_served),
            VmEvent::CmaAllocFail => sum(self, |zone| zone.cma_failed),
            _ => 0,
        }
    }
}

/// The sum of a value over all zones.
fn sum<P: Platform>(yard: &Yard<P>, of: impl Fn(&ZoneStatistics) -> u64) -> u64 {
    yard.stats().zones().map(|zone| of(&zone)).fold(0, u64::wrapping_add)
}

/// The sum of a compaction counter over all zones.
fn compacted<P: Platform>(yard: &Yard<P>, event: CompactEvent) -> u64 {
    yard.stats().zones().map(|zone| yard.zone(zone.id).compaction().count(event)).fold(0, u64::wrapping_add)
}

/// The pages of the memory map of all present sections, rounded up: a map for large pages takes a part of one.
fn map_pages<P: Platform>(yard: &Yard<P>) -> PageCount {
    let geometry = Yard::geometry(yard);
    let pages = geometry.section_pages().0 * yard.stats().present_sections() as u64;
    PageCount((pages * size_of::<frameyard::page::Page>() as u64).div_ceil(geometry.page_size().0))
}
