//! The input of the writers: plain data, which they read one zone and one value at a time.

use frameyard::units::ZoneKind;
use frameyard::watermarks::Watermarks;
use frameyard::{CpuId, Geometry, MigrateType, NodeId, Order, PageCount, Pfn, ZoneId};

use super::{GlobalStat, NodeStat, NumaEvent, VmEvent, ZoneStat};

/// A snapshot of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ZoneSnapshot {
    /// The first frame that the zone spans.
    pub start: Pfn,
    /// The number of frames from the first to the last, holes included.
    pub spanned: PageCount,
    /// Frames that exist. A zone that has none is unpopulated: only zoneinfo shows it, in a short form.
    pub present: PageCount,
    /// Frames that the allocator manages.
    pub managed: PageCount,
    /// Frames on the zone's free lists.
    pub free: PageCount,
    /// Frames that belong to contiguous memory areas.
    pub cma: PageCount,
    /// Those of the [`free`](Self::free) frames that are of type CMA.
    pub free_cma: PageCount,
    /// The watermarks. The writers add the boost to each level.
    pub watermarks: Watermarks,
    /// The frames of this zone that are kept from allocations which could also use a higher zone, by the highest kind
    /// that they may use.
    pub protection: [PageCount; ZoneKind::COUNT],
}

/// One CPU's lists in one zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PcpSnapshot {
    /// Frames on the lists.
    pub count: PageCount,
    /// The limit of the lists: if they have more frames than this, a drain returns a batch to the zone.
    pub high: PageCount,
    /// Frames per refill or drain.
    pub batch: PageCount,
    /// How far this CPU's share of the zone's counters may drift before it is added to them
    /// ([`stat_threshold`](frameyard::watermarks::stat_threshold)).
    pub stat_threshold: u32,
}

/// Where the writers get their values.
///
/// A writer reads each value when it prints it, so one text may mix values from different moments, as the kernel's do.
/// A source only has to implement the values that it keeps; the others print as 0.
pub trait ReportSource {
    /// The geometry, which determines the number of orders and the size of a pageblock.
    fn geometry(&self) -> Geometry;

    /// The number of nodes, which are numbered from 0.
    fn nodes(&self) -> u16;

    /// The number of online CPUs, which are numbered from 0.
    fn cpus(&self) -> u32;

    /// Whether the machine has contiguous memory areas. If it has none, the lines about them are left out.
    fn has_cma(&self) -> bool;

    /// A zone. The writers call this for each zone kind of each node.
    fn zone(&self, id: ZoneId) -> ZoneSnapshot;

    /// One CPU's lists in a populated zone.
    fn per_cpu(&self, id: ZoneId, cpu: CpuId) -> PcpSnapshot;

    /// The number of blocks on a free list of a populated zone.
    fn free_blocks(&self, id: ZoneId, migrate_type: MigrateType, order: Order) -> u64;

    /// The number of pageblocks of a type in a populated zone.
    fn pageblocks(&self, id: ZoneId, migrate_type: MigrateType) -> u64;

    /// Free frames of a populated zone whose memory has been returned to the host. No file of the kernel shows this
    /// number.
    fn reported(&self, id: ZoneId) -> PageCount {
        let _ = id;
        PageCount(0)
    }

    /// A value of a populated zone. The numbers of free pages and free CMA pages are taken from the snapshot instead.
    fn zone_stat(&self, id: ZoneId, stat: ZoneStat) -> u64 {
        let _ = (id, stat);
        0
    }

    /// The count of an event in a populated zone.
    fn numa_event(&self, id: ZoneId, event: NumaEvent) -> u64 {
        let _ = (id, event);
        0
    }

    /// A value of a node.
    fn node_stat(&self, node: NodeId, stat: NodeStat) -> u64 {
        let _ = (node, stat);
        0
    }

    /// A value of the whole machine.
    fn global_stat(&self, stat: GlobalStat) -> u64 {
        let _ = stat;
        0
    }

    /// The count of an event over all CPUs.
    fn event(&self, event: VmEvent) -> u64 {
        let _ = event;
        0
    }

    /// Whether background reclaim has given up on the node.
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

/// A value of a zone, from its snapshot or from the source.
pub(super) fn zone_stat<S: ReportSource + ?Sized>(source: &S, id: ZoneId, zone: &ZoneSnapshot, stat: ZoneStat) -> u64 {
    match stat {
        ZoneStat::NrFreePages => zone.free.0,
        ZoneStat::NrFreeCma => zone.free_cma.0,
        _ => source.zone_stat(id, stat),
    }
}
