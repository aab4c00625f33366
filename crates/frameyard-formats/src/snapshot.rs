//! What the writers are fed with: plain data, pulled one zone and one number at a time.

use frameyard::units::ZoneKind;
use frameyard::watermarks::Watermarks;
use frameyard::{CpuId, Geometry, MigrateType, NodeId, Order, PageCount, Pfn, ZoneId};

use super::{GlobalStat, NodeStat, NumaEvent, VmEvent, ZoneStat};

/// A zone as it was at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ZoneSnapshot {
    /// The first frame that the zone spans.
    pub start: Pfn,
    /// Frames from the first to the last, holes included.
    pub spanned: PageCount,
    /// Frames that exist. A zone without any is unpopulated: it appears in zoneinfo alone, and shortened.
    pub present: PageCount,
    /// Frames that were handed to the allocator.
    pub managed: PageCount,
    /// Frames that are on the zone's free lists.
    pub free: PageCount,
    /// Frames that belong to contiguous memory areas.
    pub cma: PageCount,
    /// How many of [`free`](Self::free) are of type CMA.
    pub free_cma: PageCount,
    /// The watermarks. The levels are printed with the boost.
    pub watermarks: Watermarks,
    /// What is kept back, by the highest zone kind that an allocation may use.
    pub protection: [PageCount; ZoneKind::COUNT],
}

/// One CPU's lists in one zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PcpSnapshot {
    /// Frames on the lists.
    pub count: PageCount,
    /// Above so many a batch goes back to the zone.
    pub high: PageCount,
    /// Frames that move in one visit to the zone.
    pub batch: PageCount,
    /// How far this CPU's share of the zone's counters may drift, as [`stat_threshold`](frameyard::watermarks::stat_threshold)
    /// says.
    pub stat_threshold: u32,
}

/// Where the writers get their numbers.
///
/// A number is asked for when it is printed, so one text need not show one moment, as with the kernel's.
/// What a source does not keep stays at the defaults and prints as 0.
pub trait ReportSource {
    /// The geometry: how many orders there are, and how large a pageblock is.
    fn geometry(&self) -> Geometry;

    /// How many nodes there are; they are numbered from 0 on.
    fn nodes(&self) -> u16;

    /// How many CPUs are online; they are numbered from 0 on.
    fn cpus(&self) -> u32;

    /// Whether the machine has contiguous memory areas; only then their rows and lines appear.
    fn has_cma(&self) -> bool;

    /// A zone. Asked for every zone kind of every node.
    fn zone(&self, id: ZoneId) -> ZoneSnapshot;

    /// One CPU's lists in a populated zone.
    fn per_cpu(&self, id: ZoneId, cpu: CpuId) -> PcpSnapshot;

    /// How many blocks of a populated zone are on the free list of that type and order.
    fn free_blocks(&self, id: ZoneId, migrate_type: MigrateType, order: Order) -> u64;

    /// How many pageblocks of a populated zone are of that type.
    fn pageblocks(&self, id: ZoneId, migrate_type: MigrateType) -> u64;

    /// Free frames of a populated zone whose memory the host has got back. No file of the kernel's shows it.
    fn reported(&self, id: ZoneId) -> PageCount {
        let _ = id;
        PageCount(0)
    }

    /// A number of a populated zone, other than free pages and free CMA pages, which its snapshot has.
    fn zone_stat(&self, id: ZoneId, stat: ZoneStat) -> u64 {
        let _ = (id, stat);
        0
    }

    /// How often allocations met that case in a populated zone.
    fn numa_event(&self, id: ZoneId, event: NumaEvent) -> u64 {
        let _ = (id, event);
        0
    }

    /// A number of a node.
    fn node_stat(&self, node: NodeId, stat: NodeStat) -> u64 {
        let _ = (node, stat);
        0
    }

    /// A number of the whole machine.
    fn global_stat(&self, stat: GlobalStat) -> u64 {
        let _ = stat;
        0
    }

    /// How often something happened, over all CPUs.
    fn event(&self, event: VmEvent) -> u64 {
        let _ = event;
        0
    }

    /// Whether background reclaim has given the node up.
    fn node_unreclaimable(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }
}

/// The zones of a node, populated or not, lowest first.
pub(super) fn zones_of<S: ReportSource + ?Sized>(
    source: &S,
    node: NodeId,
) -> impl Iterator<Item = (ZoneId, ZoneSnapshot)> {
    ZoneKind::ALL.into_iter().map(move |kind| {
        let id = ZoneId::new(node, kind);
        (id, source.zone(id))
    })
}

/// The populated zones of a node, lowest first.
pub(super) fn populated_zones_of<S: ReportSource + ?Sized>(
    source: &S,
    node: NodeId,
) -> impl Iterator<Item = (ZoneId, ZoneSnapshot)> {
    zones_of(source, node).filter(|(_, zone)| zone.present.0 > 0)
}

/// All nodes.
pub(super) fn nodes<S: ReportSource + ?Sized>(source: &S) -> impl Iterator<Item = NodeId> + use<S> {
    (0..source.nodes()).map(NodeId)
}

/// All orders of blocks.
pub(super) fn orders<S: ReportSource + ?Sized>(source: &S) -> impl Iterator<Item = Order> + use<S> {
    (0..=source.geometry().max_order().0).map(Order)
}

/// A number of a zone, wherever it is kept.
pub(super) fn zone_stat<S: ReportSource + ?Sized>(source: &S, id: ZoneId, zone: &ZoneSnapshot, stat: ZoneStat) -> u64 {
    match stat {
        ZoneStat::NrFreePages => zone.free.0,
        ZoneStat::NrFreeCma => zone.free_cma.0,
        _ => source.zone_stat(id, stat),
    }
}
