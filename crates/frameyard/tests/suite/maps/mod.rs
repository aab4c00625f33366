//! Machines with irregular memory, and all options to initialise their memory maps.
use std::sync::Arc;

use frameyard::boot::{InitJobs, InitMode, Initialiser, JobGranularity, MapInit, MovableMemory, ZoneLimits};
use frameyard::page::MapContent;
use frameyard::policy::ZonePolicy;
use frameyard::units::{PhysAddr, ZoneKind};
use frameyard::watermarks::{MovableMinimum, WatermarkOptions};
use frameyard::{
    ByteSize, Geometry, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, Yard, YardConfig,
};

use crate::fixture::{Fixture, Frames, MapWatch};

/// The modes that leave deferred memory after the yard's creation.
pub(crate) const LATE: [InitMode; 2] = [InitMode::Deferred, InitMode::Lazy];

/// The description of a machine, from which a yard is created.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) geometry: Geometry,
    pub(crate) memory: Vec<(PfnRange, NodeId)>,
    pub(crate) reserved: Vec<PfnRange>,
    pub(crate) cma: Vec<PfnRange>,
    pub(crate) cpus: Vec<NodeId>,
    pub(crate) zone_limits: ZoneLimits,
    pub(crate) movable: MovableMemory,
    pub(crate) policy: ZonePolicy,
}

impl Machine {
    fn new(name: &'static str, geometry: Geometry, memory: &[(u64, u64, u16)]) -> Self {
        Self {
            name,
            geometry,
            memory: memory.iter().map(|(start, end, node)| (frames(*start, *end), NodeId(*node))).collect(),
            reserved: Vec::new(),
            cma: Vec::new(),
            cpus: [0, 0, 1, 0].map(NodeId).to_vec(),
            zone_limits: ZoneLimits::NONE,
            movable: MovableMemory::None,
            policy: ZonePolicy::default(),
        }
    }

    /// The same machine, whose yards have free frames on free lists, with tags.
    pub(crate) fn with_free_lists(self) -> Self {
        Self { policy: ZonePolicy::Vanilla, ..self }
    }

    pub(crate) fn table(&self) -> MemoryTable<'_> {
        MemoryTable { memory: &self.memory, reserved: &self.reserved, cma: &self.cma }
    }

    /// No reserves, so every frame can be allocated.
    pub(crate) fn config(&self, map_init: MapInit) -> YardConfig<'_> {
        YardConfig {
            geometry: self.geometry,
            zone_limits: self.zone_limits,
            movable: self.movable,
            watermarks: WatermarkOptions {
                min_free_kbytes: Some(0),
                movable_minimum: MovableMinimum::Proportional,
                ..WatermarkOptions::default()
            },
            map_init,
            policy: self.policy,
            ..YardConfig::new(&self.cpus)
        }
    }

    pub(crate) fn create_yard(&self, map_init: MapInit) -> Fixture {
        self.create_yard_watched(map_init, Arc::default())
    }

    pub(crate) fn create_yard_watched(&self, map_init: MapInit, watch: Arc<MapWatch>) -> Fixture {
        Fixture::watched(&self.table(), &self.config(map_init), Frames::Phantom, watch).expect("a yard")
    }

    /// The sections that have memory, ascending.
    pub(crate) fn sections(&self) -> Vec<PfnRange> {
        let pages = self.geometry.section_pages();
        let mut starts: Vec<u64> = Vec::new();
        for (range, _) in &self.memory {
            starts.extend(range.start.0 / pages.0..=(range.end.0 - 1) / pages.0);
        }
        starts.dedup();
        starts.into_iter().map(|start| PfnRange::new(Pfn(start * pages.0), pages)).collect()
    }
}

/// The frames from one to another.
pub(crate) fn frames(start: u64, end: u64) -> PfnRange {
    PfnRange { start: Pfn(start), end: Pfn(end) }
}

pub(crate) fn geometry(page_kib: u64, section: ByteSize, pageblock: u8, max: u8) -> Geometry {
    Geometry::new(ByteSize::kib(page_kib), section, Order(pageblock), Order(max)).expect("a geometry")
}

/// Sections of 256 frames, blocks of at most 32, pageblocks of 8.
pub(crate) fn small() -> Geometry {
    geometry(4, ByteSize::mib(1), 3, 5)
}

/// Holes inside sections and between them; reserved ranges down to single frames.
fn holes() -> Machine {
    let memory = [
        (0x105, 0x160, 0),
        (0x171, 0x172, 0),
        (0x180, 0x573, 0),
        (0x805, 0x806, 0),
        (0xa03, 0xd00, 0),
        (0xdff, 0xe00, 0),
    ];
    Machine {
        reserved: vec![
            frames(0x105, 0x106),
            frames(0x15f, 0x160),
            frames(0x180, 0x181),
            frames(0x1ff, 0x201),
            frames(0x210, 0x214),
            // A whole section and a bit more.
            frames(0x2f3, 0x40d),
            frames(0x45f, 0x460),
            frames(0xa03, 0xa04),
            frames(0xaaa, 0xaab),
            frames(0xcff, 0xd00),
        ],
        ..Machine::new("holes", small(), &memory)
    }
}

/// Four zones whose boundaries lie inside sections and blocks.
fn zones() -> Machine {
    Machine {
        reserved: vec![frames(0x00, 0x03), frames(0x13c, 0x13f), frames(0x400, 0x421)],
        cma: vec![frames(0x340, 0x380)],
        zone_limits: ZoneLimits { dma: PhysAddr(0x13d << 12), dma32: PhysAddr(0x195 << 12) },
        movable: MovableMemory::Pages(PageCount(0x167)),
        ..Machine::new("zones", small(), &[(0x01, 0x800, 0)])
    }
}

/// Nodes that share a section and a block, and whose ranges alternate. One node has no CPU.
fn nodes() -> Machine {
    let memory = [
        (0x103, 0x2b7, 0),
        (0x2b7, 0x2e0, 1),
        (0x2e4, 0x340, 0),
        (0x340, 0x600, 1),
        (0x903, 0xa00, 2),
        (0xa00, 0xc11, 1),
        (0xc80, 0xe7f, 0),
    ];
    Machine {
        reserved: vec![frames(0x2b0, 0x2be), frames(0x500, 0x501), frames(0xa10, 0xa30)],
        cma: vec![frames(0x580, 0x5a0), frames(0xb00, 0xb40)],
        movable: MovableMemory::Percent(30),
        zone_limits: ZoneLimits { dma: PhysAddr(0), dma32: PhysAddr(0x3a5 << 12) },
        ..Machine::new("nodes", small(), &memory)
    }
}

/// Thousands of reserved single frames.
fn fragmented() -> Machine {
    let memory = [(0x1007, 0x2ff9, 0), (0x3100, 0x3400, 1)];
    let reserved = (0x1009..0x2ff0).step_by(3).chain((0x3100..0x3400).step_by(2));
    Machine {
        reserved: reserved.map(|pfn| frames(pfn, pfn + 1)).collect(),
        ..Machine::new("fragmented", geometry(4, ByteSize::mib(4), 4, 6), &memory)
    }
}

/// Pages of 16 KiB. A section is one block and one pageblock.
fn large_pageblocks() -> Machine {
    let memory = [(0x803, 0x1c01, 0), (0x2800, 0x3000, 1)];
    Machine {
        reserved: vec![frames(0xfff, 0x1001), frames(0x1500, 0x1501)],
        cma: vec![frames(0x2800, 0x3000)],
        ..Machine::new("large pageblocks", geometry(16, ByteSize::mib(32), 11, 11), &memory)
    }
}

/// Pages of 64 KiB, and blocks of two frames.
fn tiny_blocks() -> Machine {
    let memory = [(3, 0x204, 0), (0x207, 0x2c3, 1), (0x301, 0x302, 0)];
    Machine {
        reserved: vec![frames(4, 5), frames(0x40, 0x43), frames(0x207, 0x20a)],
        ..Machine::new("tiny blocks", geometry(64, ByteSize::mib(4), 1, 1), &memory)
    }
}

/// Maximum-order blocks of many pageblocks. The memory ends inside blocks.
fn large_blocks() -> Machine {
    let memory = [(0x1001, 0x2600, 0), (0x2a33, 0x3fff, 1)];
    Machine {
        reserved: vec![frames(0x1800, 0x1811), frames(0x2a33, 0x2a34), frames(0x3000, 0x3800)],
        cma: vec![frames(0x2000, 0x2400)],
        ..Machine::new("large blocks", geometry(8, ByteSize::mib(16), 3, 10), &memory)
    }
}

/// Every machine.
pub(crate) fn machines() -> [Machine; 7] {
    [holes(), zones(), nodes(), fragmented(), large_pageblocks(), tiny_blocks(), large_blocks()]
}

pub(crate) fn machine(name: &str) -> Machine {
    machines().into_iter().find(|machine| machine.name == name).expect("a machine of that name")
}

/// One thread writes page structures of this content one by one at creation.
pub(crate) fn reference(content: MapContent) -> MapInit {
    MapInit {
        mode: InitMode::Eager,
        content,
        initialiser: Initialiser::StoresPerPage,
        jobs: InitJobs { threads: Some(1), ..InitJobs::default() },
        ..MapInit::default()
    }
}

/// Options with this mode that write every page.
pub(crate) fn way(mode: InitMode) -> MapInit {
    MapInit { mode, ..reference(MapContent::Kernel) }
}

/// All options that write this content.
pub(crate) fn ways(content: MapContent) -> Vec<MapInit> {
    let mut ways = Vec::new();
    for initialiser in Initialiser::ALL.into_iter().filter(|initialiser| initialiser.can_write(content)) {
        for mode in InitMode::ALL {
            for granularity in JobGranularity::ALL {
                for threads in [Some(1), Some(2), Some(4), None] {
                    let jobs = InitJobs { granularity, threads, ..InitJobs::default() };
                    ways.push(MapInit { mode, content, initialiser, jobs, ..MapInit::default() });
                }
            }
        }
    }
    ways
}

/// Requests that reach each zone of a node.
const KINDS: [(ZoneKind, Gfp); 4] = [
    (ZoneKind::Movable, Gfp::HIGHUSER_MOVABLE),
    (ZoneKind::Normal, Gfp::HIGHUSER_MOVABLE.without(Gfp::HIGHMEM)),
    (ZoneKind::Dma32, Gfp::HIGHUSER_MOVABLE.union(Gfp::DMA32)),
    (ZoneKind::Dma, Gfp::HIGHUSER_MOVABLE.union(Gfp::DMA)),
];

/// Allocates all free memory as movable single frames, and calls `taken` with each.
pub(crate) fn take_everything<P: Platform>(yard: &Yard<P>, mut taken: impl FnMut(Pfn)) {
    for node in (0..yard.nodes()).map(NodeId) {
        for (_, gfp) in KINDS {
            while let Ok(pfn) = yard.request(Order::ZERO, gfp | Gfp::THISNODE | Gfp::NOWARN).node(node).frame() {
                taken(pfn);
            }
        }
    }
}

/// Frees single frames and drains all per-CPU lists.
pub(crate) fn give_back<P: Platform>(yard: &Yard<P>, frames: &[Pfn]) {
    for pfn in frames {
        yard.free(*pfn, Order::ZERO).unwrap();
    }
    yard.drain_all();
}

/// The pages of the map, without the links of free blocks, because the order of free lists may differ.
pub(crate) fn pages_at_rest(fixture: &Fixture, range: PfnRange) -> Vec<(Pfn, [u64; 8])> {
    const BUDDY_FREE: u64 = 2;
    let page = |pfn: Pfn| {
        let mut words = fixture.page_words(pfn);
        if words[0] & 0xff == BUDDY_FREE {
            words[1] = 0;
        }
        (pfn, words)
    };
    (range.start.0..range.end.0).map(|pfn| page(Pfn(pfn))).collect()
}

/// One zone of eight whole sections without a hole.
pub(crate) fn plain() -> Machine {
    Machine { memory: vec![(frames(0x800, 0x1000), NodeId(0))], reserved: Vec::new(), ..machine("holes") }
}

/// The number of free frames, without deferred frames.
pub(crate) fn listed(yard: &Fixture) -> u64 {
    let deferred = if yard.init().mode() == InitMode::Lazy { yard.init().deferred_pages().0 } else { 0 };
    yard.stats().zones().map(|zone| zone.free.0).sum::<u64>() - deferred
}
