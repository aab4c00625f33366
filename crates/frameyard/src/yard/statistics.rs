//! Statistics of zones, lists and frames. All values are read without a lock.

use crate::boot::HeaderWord;
use crate::locks::LockUse;
use crate::page::FrameState;
use crate::platform::{BadPage, Platform};
use crate::store;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Block, CpuId, MigrateType, Order, PageCount, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::yard::{Yard, YardStats, YardZone};
use crate::zone::{WatermarkLevel, Watermarks, Zone, ZoneView};

/// Declares [`ZoneStatistics`]: each value with the way to read it from a zone. What CPUs' lists and transfer mechanisms
/// hold and count is added afterwards.
macro_rules! zone_statistics {
    ($zone:ident: $($(#[$doc:meta])* $field:ident: $type:ty = $value:expr),+ $(,)?) => {
        /// A zone's sizes, limits and counters.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct ZoneStatistics {
            /// The zone.
            pub id: ZoneId,
            $($(#[$doc])* pub $field: $type,)+
        }

        impl ZoneStatistics {
            fn read(id: ZoneId, $zone: &Zone) -> Self {
                Self { id, $($field: $value),+ }
            }
        }
    };
}

zone_statistics! { zone:
    /// The part of its node that lies within the zone's limits, holes included.
    span: PfnRange = zone.span(),
    /// Frames of memory.
    present: PageCount = zone.present(),
    /// Frames given to the allocator.
    managed: PageCount = zone.managed(),
    /// Free frames: on the free lists (without isolated ones) and held by transfer mechanisms. In a lazy yard also the
    /// deferred frames.
    free: PageCount = zone.free_pages_racy(),
    /// Frames on per-CPU lists, and free ones that transfer mechanisms keep for one CPU.
    per_cpu: PageCount = PageCount(0),
    /// Frames of contiguous memory areas.
    cma: PageCount = PageCount(read(&zone.facts.cma)),
    /// Those of them that are free.
    free_cma: PageCount = zone.free_cma_racy(),
    /// Requests to contiguous memory areas that got their frames.
    cma_served: u64 = read(&zone.cma_events.served),
    /// Those that did not.
    cma_failed: u64 = read(&zone.cma_events.failed),
    /// Free frames reported to the host ([`Yard::report_free_pages`]) and not used since.
    reported: PageCount = zone.reported_racy(),
    /// Frames of pageblocks kept for atomic high-order requests.
    reserved_highatomic: PageCount = zone.reserved_highatomic_racy(),
    /// The watermarks.
    watermarks: Watermarks = Watermarks {
        min: zone.watermark(WatermarkLevel::Min),
        low: zone.watermark(WatermarkLevel::Low),
        high: zone.watermark(WatermarkLevel::High),
        promo: zone.watermark(WatermarkLevel::Promo),
        boost: zone.boost(),
    },
    /// Frames kept from requests that could use a higher zone, by that zone's kind.
    protection: [PageCount; ZoneKind::COUNT] = ZoneKind::ALL.map(|kind| zone.protection(kind)),
    /// Blocks allocated in total.
    allocations: u64 = read(&zone.events().direct_allocations),
    /// Those allocated by CPUs of the zone's own node, and all that did not come from a per-CPU list.
    local_allocations: u64 = read(&zone.events().direct_allocations),
    /// Blocks freed in total.
    frees: u64 = read(&zone.events().direct_frees),
    /// Frames allocated in total.
    pages_allocated: u64 = read(&zone.events().direct_pages_allocated),
    /// Frames freed in total.
    pages_freed: u64 = read(&zone.events().direct_pages_freed),
    /// Requests served here that preferred another zone, as far as they had to search. While that zone is full, a CPU takes blocks from its
    /// lists here without a search, and these are not counted.
    numa_miss: u64 = read(&zone.placement.miss),
    /// Requests that preferred this zone and were served elsewhere.
    numa_foreign: u64 = read(&zone.placement.foreign),
    /// How the zone lock was taken.
    lock: LockUse = zone.counters().lock.uses.read(),
    /// Frames moved under the zone lock, either way.
    pages_moved: u64 = read(&zone.counters().lock.pages_moved),
    /// Refills of per-CPU lists.
    refills: u64 = 0,
    /// Drains of per-CPU lists.
    drains: u64 = 0,
    /// Frames of blocks out of use because a page structure was bad ([`PageChecks`](crate::boot::PageChecks)).
    bad_pages: u64 = zone.bad_pages.pages_racy(),
    /// Requests served from another migration type's blocks.
    fallbacks: u64 = read(&zone.events().fallbacks),
    /// Pageblocks that changed their type for it.
    conversions: u64 = read(&zone.events().conversions),
}

/// One CPU's lists in one zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PcpStatistics {
    /// Frames on the lists of small orders.
    pub count: PageCount,
    /// The limit of `count`.
    pub high: PageCount,
    /// Frames per refill or drain.
    pub batch: PageCount,
    /// Frames on all lists, including the lists of huge blocks.
    pub pages: PageCount,
    /// Refills.
    pub refills: u64,
    /// Drains.
    pub drains: u64,
}

/// The state of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameInfo {
    /// The head of the block that covers the frame; in a hole, the frame itself.
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
    /// Adds what CPUs' lists and transfer mechanisms hold and counted to the statistics of a zone.
    fn add_per_cpu(&self, view: ZoneView<'_, P>, statistics: &mut ZoneStatistics) {
        for (cpu, pcp) in self.tables.pcps_of(view.id) {
            let (out, mut back) = pcp.flow_racy(self.geometry);
            let [blocks, pages] = store::direct_frees_racy(view, cpu);
            (back.blocks, back.pages) = (back.blocks.wrapping_add(blocks), back.pages.wrapping_add(pages));
            statistics.per_cpu += pcp.pages_racy(self.geometry);
            add(&mut statistics.allocations, out.blocks);
            add(&mut statistics.pages_allocated, out.pages);
            add(&mut statistics.pages_freed, back.pages);
            if self.tables.node_of_cpu(cpu.index()) == view.id.node() {
                add(&mut statistics.local_allocations, out.blocks);
            }
            add(&mut statistics.frees, back.blocks);
            let counters = view.counters_of(cpu);
            statistics.lock = statistics.lock.and(counters.lock.uses.read());
            add(&mut statistics.pages_moved, read(&counters.lock.pages_moved));
            add(&mut statistics.refills, read(&pcp.counts.refills));
            add(&mut statistics.drains, read(&pcp.counts.drains));
        }
        statistics.free += store::held_pages_racy(view);
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
    pub(crate) fn count_placement(&self, served: ZoneId, first: ZoneId) {
        if served.node() != first.node() {
            self.tables.zones[served.index()].placement.miss.fetch_add(1, Ordering::Relaxed);
            self.tables.zones[first.index()].placement.foreign.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Adds to a sum of counters, which may be anything in a corrupt yard.
fn add(sum: &mut u64, amount: u64) {
    *sum = sum.wrapping_add(amount);
}

impl<'y, P: Platform> YardStats<'y, P> {
    /// The zones with memory, lowest first on each node. If a node has mapped devices, its Device zone follows; as in
    /// the kernel, that zone has present pages but no managed ones.
    pub fn zones(self) -> impl Iterator<Item = ZoneStatistics> {
        let yard = self.yard;
        let zones = yard.tables.zones.iter().zip(0..).filter(|(zone, _)| !zone.span().is_empty());
        zones.map(|(_, id)| yard.zone(ZoneId(id)).statistics())
    }

    /// The number of requests that found no memory, without those that had [`Gfp::NOWARN`](crate::Gfp::NOWARN).
    pub fn failures(self) -> u64 {
        self.yard.tables.read(HeaderWord::Failures)
    }

    /// How often all per-CPU lists were drained for a request that would have failed otherwise.
    pub fn drains_for_allocation(self) -> u64 {
        self.yard.tables.read(HeaderWord::Drains)
    }

    /// The number of blocks taken out of use because their bytes were written to while they were free.
    pub fn poison_hits(self) -> u64 {
        self.yard.tables.read(HeaderWord::PoisonHits)
    }

    /// The frames of blocks taken out of use because a check found a bad page structure.
    pub fn bad_pages(self) -> PageCount {
        self.zones().map(|zone| PageCount(zone.bad_pages)).sum()
    }

    /// Frames on free lists and per-CPU lists of all zones.
    pub fn free_pages(self) -> PageCount {
        self.zones().map(|zone| zone.free + zone.per_cpu).sum()
    }

    /// Frames given to the allocator, in all zones.
    pub fn managed_pages(self) -> PageCount {
        self.zones().map(|zone| zone.managed).sum()
    }

    /// The number of sections that have memory.
    pub fn present_sections(self) -> usize {
        let tables = self.yard.tables;
        (0..tables.sections.len()).filter(|at| tables.section(*at).is_present()).count()
    }

    /// The state of a frame, recent but not exact; `None` if its pageblock has no memory and no device has the frame.
    /// Reads up to one page structure per order, and none in the deferred part of the map.
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
        let (head, tag) = yard.covering(pfn);
        let state = yard.visible_state(head, tag);
        Some(FrameInfo { head, state, order: tag.order(), migrate_type: tag.migrate_type() })
    }

    /// The type of the pageblock that a frame is in, recent but not exact; `None` if there is no memory. Takes no lock.
    /// Cost: a search in the table of ranges, and the pageblock's byte.
    pub fn pageblock_type(self, pfn: Pfn) -> Option<MigrateType> {
        self.yard.zone_of(pfn).map(|_| self.yard.pageblock_type(pfn))
    }

    /// The allocated blocks that [`Yard::free`] would free, in ascending order; recent but not exact. Counted blocks
    /// and blocks of [`Frames`](crate::Frames) guards are not among them. Cost: reads up to three bytes of the
    /// allocation map for each frame.
    pub fn allocated_blocks(self) -> impl Iterator<Item = Block> + use<'y, P> {
        let yard = self.yard;
        yard.memory_ranges().flat_map(move |(range, _)| {
            let mut next = range.start;
            core::iter::from_fn(move || {
                while next < range.end {
                    let pfn = next;
                    let entry = yard.allocation_map().entry(pfn);
                    next = pfn + entry.map_or(PageCount(1), |entry| entry.order().pages());
                    if let Some(entry) = entry {
                        return Some(Block { pfn, order: entry.order() });
                    }
                }
                None
            })
        })
    }

    /// Whether exactly that block is allocated, so that [`Yard::free`] would free it; recent but not exact. Any frame
    /// number is allowed. Cost: its byte in the allocation map.
    pub fn is_allocated(self, pfn: Pfn, order: Order) -> bool {
        self.yard.allocation_map().entry(pfn).is_some_and(|entry| entry.order() == order)
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// The statistics of a zone.
    ///
    /// # Panics
    ///
    /// If the node of the zone does not exist.
    pub fn statistics(self) -> ZoneStatistics {
        let Self { yard, id } = self;
        let mut statistics = ZoneStatistics::read(id, &yard.tables.zones[id.index()]);
        if let Some(view) = self.populated() {
            yard.add_per_cpu(view, &mut statistics);
        }
        statistics
    }

    /// The last bad page structure found in the zone; `None` if none was found or there is no such zone.
    pub fn last_bad_page(self) -> Option<BadPage> {
        self.yard.tables.zones.get(self.id.index())?.bad_pages.last_racy()
    }

    /// The lists of one CPU in the zone; `None` if the zone has no memory or the CPU does not exist.
    pub fn pcp(self, cpu: CpuId) -> Option<PcpStatistics> {
        let pcp = self.lists_of(cpu)?;
        Some(PcpStatistics {
            count: pcp.small_pages_racy(self.yard.geometry),
            high: pcp.high_racy(),
            batch: pcp.batch_racy(),
            pages: pcp.pages_racy(self.yard.geometry),
            refills: read(&pcp.counts.refills),
            drains: read(&pcp.counts.drains),
        })
    }

    /// The number of blocks of an order and migration type on the zone's free lists; 0 if there is no such zone or
    /// order.
    ///
    /// In a lazy yard, this includes the blocks that deferred memory will form.
    pub fn free_blocks(self, order: Order, migrate_type: MigrateType) -> u64 {
        let Self { yard, id: zone } = self;
        let zone = yard.tables.zones.get(zone.index()).filter(|_| order <= yard.geometry.max_order());
        zone.map_or(0, |zone| {
            let is_movable = migrate_type == MigrateType::Movable;
            let deferred = if is_movable { zone.deferred.counted_blocks_racy(order.index()) } else { 0 };
            zone.free_blocks_racy(order.index(), migrate_type).saturating_add(deferred)
        })
    }

    /// The number of pageblocks of a type, including holes in present sections (`pagetypeinfo_showblockcount_print`).
    pub fn pageblocks(self, migrate_type: MigrateType) -> u64 {
        let Self { yard, id: zone } = self;
        if zone.index() >= yard.tables.zones.len() {
            return 0;
        }
        let span = yard.zone_view(zone).span();
        let is_counted = |at: &Pfn| yard.is_of_zone(*at, zone) && yard.pageblock_type(*at) == migrate_type;
        yard.pageblocks().present_starts_in(span).filter(is_counted).count() as u64
    }
}
