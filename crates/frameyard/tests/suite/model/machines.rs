//! The machines that yards are created on: small, and awkward on purpose.

use frameyard::boot::{InitMode, Initialiser, MapInit, MovableMemory, PageChecks, Poisoning, ZoneLimits};
use frameyard::page::MapContent;
use frameyard::policy::ZonePolicy;
use frameyard::units::PhysAddr;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, Geometry, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};

use crate::fixture::Frames;

/// What a yard is created from.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) geometry: Geometry,
    pub(crate) memory: Vec<(PfnRange, NodeId)>,
    pub(crate) reserved: Vec<PfnRange>,
    pub(crate) cma: Vec<PfnRange>,
    pub(crate) cpus: Vec<NodeId>,
    pub(crate) distances: Option<Vec<u8>>,
    pub(crate) zone_limits: ZoneLimits,
    pub(crate) movable: MovableMemory,
    pub(crate) frames: Frames,
    pub(crate) poisoning: Poisoning,
    pub(crate) checks: PageChecks,
    pub(crate) map_init: MapInit,
    pub(crate) policy: ZonePolicy,
    pub(crate) pcp_sizing: PcpSizing,
}

impl Machine {
    fn new(name: &'static str, geometry: Geometry, memory: &[(u64, u64, u16)]) -> Self {
        let memory = memory.iter().map(|(start, count, node)| (frames(*start, *count), NodeId(*node))).collect();
        Self {
            name,
            geometry,
            memory,
            reserved: Vec::new(),
            cma: Vec::new(),
            cpus: vec![NodeId(0); 2],
            distances: None,
            zone_limits: ZoneLimits::NONE,
            movable: MovableMemory::None,
            frames: Frames::Phantom,
            poisoning: Poisoning::Off,
            checks: PageChecks::None,
            map_init: MapInit::default(),
            policy: ZonePolicy::default(),
            pcp_sizing: PcpSizing::default(),
        }
    }

    /// The same machine with another initialisation mode and content, on memory that was not zeroed, and with checks of page
    /// structures.
    pub(crate) fn coming_up(self, mode: InitMode) -> Self {
        let map_init =
            MapInit { mode, content: MapContent::Kernel, initialiser: Initialiser::Stream, ..MapInit::default() };
        let checks = if mode == InitMode::Deferred { PageChecks::All } else { PageChecks::Transfer };
        Self { map_init, checks, ..self }
    }

    /// The same machine under another policy.
    pub(crate) fn under(self, policy: ZonePolicy) -> Self {
        Self { policy, ..self }
    }

    /// The same machine with per-CPU lists that hold this number of frames.
    pub(crate) fn with_lists(self, high: u32) -> Self {
        Self { pcp_sizing: PcpSizing::Fixed(high), ..self }
    }

    pub(crate) fn table(&self) -> MemoryTable<'_> {
        MemoryTable { memory: &self.memory, reserved: &self.reserved, cma: &self.cma }
    }

    pub(crate) fn config(&self) -> YardConfig<'_> {
        YardConfig {
            geometry: self.geometry,
            distances: self.distances.as_deref(),
            zone_limits: self.zone_limits,
            movable: self.movable,
            poisoning: self.poisoning,
            checks: self.checks,
            map_init: self.map_init,
            policy: self.policy,
            pcp_sizing: self.pcp_sizing,
            ..YardConfig::new(&self.cpus)
        }
    }
}

fn frames(start: u64, count: u64) -> PfnRange {
    PfnRange::new(Pfn(start), PageCount(count))
}

fn geometry(page_kib: u64, section: ByteSize, pageblock: u8, max: u8) -> Geometry {
    Geometry::new(ByteSize::kib(page_kib), section, Order(pageblock), Order(max)).expect("a geometry")
}

/// One node, memory that begins and ends in the middle of everything, and a reserved beginning.
fn one_node() -> Machine {
    let reserved = vec![frames(0x1003, 7), frames(0x1100, 1), frames(0x17fe, 5)];
    Machine { reserved, ..Machine::new("one node", Geometry::X86_64, &[(0x1003, 9000, 0)]) }
}

/// Three nodes with memory that lie between each other, one without; all zones; holes; contiguous areas.
fn many_nodes() -> Machine {
    let geometry = geometry(4, ByteSize::mib(8), 6, 8);
    let memory = [
        (1, 0x9e, 0),
        (0x100, 0x1000, 0),
        // Nodes that meet in the middle of a pageblock, and come back to the one before.
        (0x1100, 0x27, 1),
        (0x1127, 0x719, 0),
        (0x1900, 0x1000, 1),
        (0x5003, 0xff0, 2),
        // Firmware that reports one piece of memory as two.
        (0x5ff3, 0x80d, 2),
    ];
    let distances = [10, 15, 30, 40, 15, 10, 20, 20, 30, 20, 10, 16, 40, 20, 16, 10];
    Machine {
        reserved: vec![frames(0, 2), frames(0x10, 3), frames(0x9e, 0x100), frames(0x1120, 0x11), frames(0x5ff0, 0x20)],
        cma: vec![frames(0x1a00, 0x200), frames(0x6200, 0x100)],
        cpus: [0, 1, 2, 3, 0].map(NodeId).to_vec(),
        distances: Some(distances.to_vec()),
        zone_limits: ZoneLimits { dma: PhysAddr(0x0f3 << 12), dma32: PhysAddr(0x931 << 12) },
        movable: MovableMemory::Percent(25),
        ..Machine::new("many nodes", geometry, &memory)
    }
}

/// Frames with memory, poisoned while they are free.
fn poisoned() -> Machine {
    Machine {
        reserved: vec![frames(0x800, 3)],
        frames: Frames::Real,
        poisoning: Poisoning::On,
        ..Machine::new("poisoned", geometry(4, ByteSize::mib(4), 4, 9), &[(0x7f0, 900, 0)])
    }
}

/// Pages of 16 KiB, and pageblocks as large as the largest block.
fn large_pageblocks() -> Machine {
    let geometry = geometry(16, ByteSize::mib(32), 11, 11);
    let memory = [(0x800, 0x1000, 0), (0x1800, 0x1123, 0), (0x4000, 0x800, 0)];
    Machine { cpus: vec![NodeId(0)], ..Machine::new("large pageblocks", geometry, &memory) }
}

/// Pages of 64 KiB, tiny sections and blocks; pageblocks smaller than what per-CPU lists hold.
fn small_sections() -> Machine {
    let memory = [(3, 500, 0), (0x210, 0x7, 1), (0x230, 1500, 1)];
    Machine {
        cpus: [0, 1].map(NodeId).to_vec(),
        cma: vec![frames(0x250, 0x40)],
        movable: MovableMemory::Pages(PageCount(300)),
        ..Machine::new("small sections", geometry(64, ByteSize::mib(1), 2, 4), &memory)
    }
}

/// Maximum blocks of many pageblocks.
fn large_blocks() -> Machine {
    let memory = [(0x2000, 0x6000, 0), (0x8007, 0x2000, 0)];
    let cma = vec![frames(0x4000, 0x2000)];
    Machine { cma, ..Machine::new("large blocks", geometry(4, ByteSize::mib(32), 3, 13), &memory) }
}

/// Frames of 2 MiB, in all zones.
fn large_frames() -> Machine {
    let geometry = Geometry::of_frames(ByteSize::mib(2)).expect("a size of frames");
    let memory = [(1, 700, 0), (0x7f5, 0x321, 0)];
    let reserved = vec![frames(0x803, 2)];
    Machine { reserved, zone_limits: ZoneLimits::X86_64, ..Machine::new("large frames", geometry, &memory) }
}

/// Every machine. Those behind the first seven are the same machines with deferred or lazy initialisation.
pub(crate) fn machines() -> Vec<Machine> {
    let machines =
        [one_node(), many_nodes(), poisoned(), large_pageblocks(), small_sections(), large_blocks(), large_frames()];
    let late = [InitMode::Deferred, InitMode::Lazy];
    let late = late.into_iter().flat_map(|mode| machines.clone().map(|machine| machine.coming_up(mode)));
    machines.clone().into_iter().chain(late).collect()
}
