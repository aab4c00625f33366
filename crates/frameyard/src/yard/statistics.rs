//! Statistics of zones, lists and frames. All values are read without a lock.

use super::{Yard, YardStats, YardZone};
use crate::boot::{SectionEntry, YardEvent};
use crate::locks::LockUse;
use crate::page::FrameState;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{CpuId, MigrateType, Order, PageCount, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::zone::{WatermarkLevel, Watermarks};

/// A zone's sizes, limits and counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneStatistics {
    /// Which zone.
    pub id: ZoneId,
    /// The part of its node that lies within the zone's limits, holes included.
    pub span: PfnRange,
    /// Frames of memory.
    pub present: PageCount,
    /// Frames given to the allocator.
    pub managed: PageCount,
    /// Free frames: on the free lists (without isolated ones) and held by transfer mechanisms. In a lazy yard also the deferred
    /// frames.
    pub free: PageCount,
    /// Frames on per-CPU lists, and free ones that transfer mechanisms keep for one CPU.
    pub per_cpu: PageCount,
    /// Frames of contiguous memory areas.
    pub cma: PageCount,
    /// Those of them that are free.
    pub free_cma: PageCount,
    /// Requests to contiguous memory areas that got their frames.
    pub cma_served: u64,
    /// Those that did not.
    pub cma_failed: u64,
    /// Free frames reported to the host ([`Yard::report_free_pages`]) and not used since.
    pub reported: PageCount,
    /// Frames of pageblocks kept for atomic high-order requests.
    pub reserved_highatomic: PageCount,
    /// The watermarks.
    pub watermarks: Watermarks,
    /// Frames kept from requests that could use a higher zone, by that zone's kind.
    pub protection: [PageCount; ZoneKind::COUNT],
    /// Blocks allocated in total.
    pub allocations: u64,
    /// Those allocated by CPUs of the zone's own node, and all that did not come from a per-CPU list.
    pub local_allocations: u64,
    /// Blocks freed in total.
    pub frees: u64,
    /// Frames allocated in total.
    pub pages_allocated: u64,
    /// Frames freed in total.
    pub pages_freed: u64,
    /// Requests served here that preferred another zone.
    pub numa_miss: u64,
    /// Requests that preferred this zone and were served elsewhere.
    pub numa_foreign: u64,
    /// How the zone lock was taken.
    pub lock: LockUse,
    /// Frames that crossed the zone lock, either way.
    pub pages_moved: u64,
    /// Refills of per-CPU lists.
    pub refills: u64,
    /// Drains of per-CPU lists.
    pub drains: u64,
    /// Requests served from another migration type's blocks.
    pub fallbacks: u64,
    /// Pageblocks that changed their type for it.
    pub conversions: u64,
}

/// One CPU's lists in one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpStatistics {
    /// Frames on the lists of small orders.
    pub count: PageCount,
    /// Their limit.
    pub high: PageCount,
    /// Frames per refill or drain.
    pub batch: PageCount,
}

/// The state of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameInfo {
    /// The head of the block that covers it; the frame itself in a hole.
    pub head: Pfn,
    /// The state of the block; `Interior` in a hole.
    pub state: FrameState,
    /// Its order.
    pub order: Order,
    /// Its migration type.
    pub migrate_type: MigrateType,
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl<P: Platform> Yard<P> {
    fn add_pcp_statistics(&self, statistics: &mut ZoneStatistics) {
        for cpu in (0..self.cpus).map(CpuId) {
            let Some(pcp) = self.tables.pcp_of(statistics.id, cpu) else { continue };
            let (out, back) = pcp.flow_racy(self.geometry);
            statistics.per_cpu += pcp.pages_racy();
            statistics.allocations += out.blocks;
            statistics.pages_allocated += out.pages;
            statistics.pages_freed += back.pages;
            if self.tables.node_of_cpu(cpu.index()) == statistics.id.node() {
                statistics.local_allocations += out.blocks;
            }
            statistics.frees += back.blocks;
            let counters = self.zone_view(statistics.id).counters_of(cpu);
            statistics.lock = statistics.lock.and(counters.lock.uses.read());
            statistics.pages_moved += read(&counters.lock.pages_moved);
            statistics.refills += read(&pcp.counts.refills);
            statistics.drains += read(&pcp.counts.drains);
        }
    }

    /// The type of a pageblock; what it will be, where it is not initialised yet.
    fn pageblock_type(&self, pfn: Pfn) -> MigrateType {
        let blocks = self.pageblocks();
        let block = PfnRange::new(blocks.start_of(pfn), blocks.pages());
        if !blocks.has_memory(pfn) && self.tables.ranges_in(block).next().is_some() {
            MigrateType::Movable
        } else {
            blocks.get(pfn)
        }
    }

    /// Whether the page structure of a frame inside a zone's span would name that zone, holes included.
    fn is_of_zone(&self, pfn: Pfn, zone: ZoneId) -> bool {
        let section = self.tables.section(self.map.section_number(self.map.place(pfn)));
        match section.zone() {
            _ if !section.is_present() => false,
            Some(owner) => owner == zone,
            None => self.tables.range_of(pfn).is_none_or(|(_, owner)| owner == zone),
        }
    }

    /// Counts where a request was served that preferred the zone `first`.
    pub(super) fn count_placement(&self, served: ZoneId, first: ZoneId) {
        if served.node() != first.node() {
            self.tables.zones[served.index()].placement.miss.fetch_add(1, Ordering::Relaxed);
            self.tables.zones[first.index()].placement.foreign.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'y, P: Platform> YardStats<'y, P> {
    /// The zones with memory, lowest first on each node. While devices are mapped, a node's Device zone follows: as in
    /// the kernel it has present pages, and no managed ones.
    pub fn zones(self) -> impl Iterator<Item = ZoneStatistics> {
        let yard = self.yard;
        let zones = (0..yard.tables.zones.len() as u16).map(ZoneId);
        zones.filter(|zone| !yard.tables.zones[zone.index()].span().is_empty()).map(|zone| yard.zone(zone).statistics())
    }

    /// Requests that found no memory, apart from those with [`Gfp::NOWARN`](crate::Gfp::NOWARN).
    pub fn failures(self) -> u64 {
        self.yard.tables.counted(YardEvent::Failure)
    }

    /// Times all per-CPU lists were drained for a request that would have failed.
    pub fn drains_for_allocation(self) -> u64 {
        self.yard.tables.counted(YardEvent::Drain)
    }

    /// Blocks taken out of use because their bytes were written to while they were free.
    pub fn poison_hits(self) -> u64 {
        self.yard.tables.counted(YardEvent::PoisonHit)
    }

    /// Frames on free lists and per-CPU lists of all zones.
    pub fn free_pages(self) -> PageCount {
        self.zones().map(|zone| zone.free + zone.per_cpu).sum()
    }

    /// Frames given to the allocator, in all zones.
    pub fn managed_pages(self) -> PageCount {
        self.zones().map(|zone| zone.managed).sum()
    }

    /// How many sections of the memory map have memory.
    pub fn present_sections(self) -> usize {
        let yard = self.yard;
        yard.tables
            .sections
            .iter()
            .filter(|entry| SectionEntry::from_bits(entry.load(Ordering::Relaxed)).is_present())
            .count()
    }

    /// The state of a frame, recent, not exact; `None` where its pageblock has no memory, and no device has it. Reads
    /// up to one page structure per order, and none of the deferred part of the map.
    pub fn frame(self, pfn: Pfn) -> Option<FrameInfo> {
        let yard = self.yard;
        if yard.page_of(pfn).is_none() {
            if let Some(page) = yard.devices().page(pfn) {
                let (head, order) = (page.head(), page.order());
                return Some(FrameInfo { head, state: FrameState::Device, order, migrate_type: MigrateType::Movable });
            }
            yard.zone_of(pfn)?;
            let state = FrameState::Uninitialised;
            return Some(FrameInfo { head: pfn, state, order: Order::ZERO, migrate_type: MigrateType::Movable });
        }
        let (head, tag) = crate::zone::covering_block(yard.geometry.max_order(), pfn, |pfn| yard.tag_at(pfn));
        Some(FrameInfo { head, state: tag.state(), order: tag.order(), migrate_type: tag.migrate_type() })
    }

    /// Whether exactly that block is allocated, so that [`Yard::free`] would free it. Recent, not exact. Any frame
    /// number is allowed. Cost: its byte in the allocation map.
    pub fn is_allocated(self, pfn: Pfn, order: Order) -> bool {
        self.yard.allocation_map.entry(pfn).is_some_and(|entry| entry.order() == order)
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// The statistics of a zone.
    ///
    /// # Panics
    ///
    /// Where the node of the zone does not exist.
    pub fn statistics(self) -> ZoneStatistics {
        let Self { yard, id } = self;
        let zone = &yard.tables.zones[id.index()];
        let events = zone.events();
        let mut statistics = ZoneStatistics {
            id,
            span: zone.span(),
            present: PageCount(read(&zone.facts.present)),
            managed: zone.managed(),
            free: zone.free_pages_racy(),
            per_cpu: PageCount(0),
            cma: PageCount(read(&zone.facts.cma)),
            free_cma: zone.free_cma_racy(),
            cma_served: read(&zone.cma_events.served),
            cma_failed: read(&zone.cma_events.failed),
            reported: zone.reported_racy(),
            reserved_highatomic: zone.reserved_highatomic_racy(),
            watermarks: Watermarks {
                min: zone.watermark(WatermarkLevel::Min),
                low: zone.watermark(WatermarkLevel::Low),
                high: zone.watermark(WatermarkLevel::High),
                promo: zone.watermark(WatermarkLevel::Promo),
                boost: zone.boost(),
            },
            protection: ZoneKind::ALL.map(|kind| zone.protection(kind)),
            allocations: read(&events.direct_allocations),
            local_allocations: read(&events.direct_allocations),
            frees: read(&events.direct_frees),
            pages_allocated: read(&events.direct_pages_allocated),
            pages_freed: read(&events.direct_pages_freed),
            numa_miss: read(&zone.placement.miss),
            numa_foreign: read(&zone.placement.foreign),
            lock: zone.counters().lock.uses.read(),
            pages_moved: read(&zone.counters().lock.pages_moved),
            refills: 0,
            drains: 0,
            fallbacks: read(&events.fallbacks),
            conversions: read(&events.conversions),
        };
        if yard.is_populated(id) {
            yard.add_pcp_statistics(&mut statistics);
            yard.add_held(&mut statistics);
        }
        statistics
    }

    /// The lists of one CPU in a zone; `None` where the zone has no memory or the CPU does not exist.
    pub fn pcp(self, cpu: CpuId) -> Option<PcpStatistics> {
        let Self { yard, id: zone } = self;
        let pcp = yard.tables.pcp_of(zone, cpu).filter(|_| yard.is_populated(zone))?;
        Some(PcpStatistics { count: pcp.small_pages_racy(), high: pcp.high_racy(), batch: pcp.batch_racy() })
    }

    /// The number of free blocks of an order and migration type; 0 where there is no such zone or order.
    ///
    /// In a lazy yard the number includes the blocks that deferred memory will form.
    pub fn free_blocks(self, order: Order, migrate_type: MigrateType) -> u64 {
        let Self { yard, id: zone } = self;
        match yard.tables.zones.get(zone.index()) {
            Some(zone) if order <= yard.geometry.max_order() => {
                let deferred = match migrate_type {
                    MigrateType::Movable => zone.deferred.counted_blocks_racy(order.index()),
                    _ => 0,
                };
                zone.free_blocks_racy(order.index(), migrate_type) + deferred
            }
            _ => 0,
        }
    }

    /// The number of pageblocks of a type, holes in present sections included (`pagetypeinfo_showblockcount_print`).
    pub fn pageblocks(self, migrate_type: MigrateType) -> u64 {
        let Self { yard, id: zone } = self;
        let Some(span) = yard.tables.zones.get(zone.index()).map(|zone| zone.span()) else { return 0 };
        let blocks = yard.pageblocks();
        let mut count = 0;
        let mut at = span.start;
        while at < span.end {
            let counted = yard.is_of_zone(at, zone) && yard.pageblock_type(at) == migrate_type;
            count += u64::from(counted);
            at = at + blocks.pages();
        }
        count
    }
}
