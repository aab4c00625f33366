//! Bounds of a yard's memory that are known before there is a machine.

use std::ptr::NonNull;

use frameyard::boot::{MachineBounds, ZoneLimits};
use frameyard::platform::{MapBacking, Probe};
use frameyard::watermarks::PcpSizing;
use frameyard::{
    ByteSize, CpuId, Geometry, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, RawRegion,
    Yard, YardConfig,
};

/// One CPU, and frames without bytes.
struct Plain;

impl MapBacking for Plain {}

impl Probe for Plain {}

impl Platform for Plain {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn relax(&self, _round: u32) {}

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}

#[test]
fn no_layout_needs_more_than_the_bounds_of_its_machine() {
    let sizings = [PcpSizing::Scaled, PcpSizing::Early, PcpSizing::Fixed(0), PcpSizing::Fixed(8)];
    let machines = [(1, 0x100, 0x4000), (1, 0x3_f000, 1 << 18), (2, 0xf_ff00, 1 << 20), (4, 1, (1 << 24) + 77)];
    for (nodes, first, pages) in machines {
        for pcp_sizing in sizings {
            let memory: Vec<_> = (0..nodes)
                .map(|node| (PfnRange::new(Pfn(first + node * pages), PageCount(pages)), NodeId(node as u16)))
                .collect();
            let cpus: Vec<_> = (0..8 * nodes).map(|cpu| NodeId((cpu % nodes) as u16)).collect();
            let config = YardConfig { pcp_sizing, ..YardConfig::new(&cpus) };
            let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
            let layout = Layout::plan(&table, &config).expect("a layout");
            let bounds = MachineBounds {
                frames: PageCount(nodes * pages),
                nodes: nodes as usize,
                cpus: cpus.len(),
                memory_ranges: memory.len(),
                reserved_ranges: 0,
                pcp_sizing,
                ..MachineBounds::of_memory(Geometry::X86_64, ByteSize(0))
            };
            assert!(layout.map_bytes() <= bounds.map_bytes());
            assert!(layout.control_bytes() <= bounds.control_bytes(), "{nodes} nodes of {pages} pages, {pcp_sizing:?}");
            // Not wildly more: what each zone has once per batch are the largest part of what is too much.
            let slack = nodes * 5 * 8192 * 9 + (1 << 20) + layout.control_bytes().0 / 8;
            assert!(bounds.control_bytes().0 <= layout.control_bytes().0 + slack);
        }
    }
}

/// Bytes of stack that creating a yard may use, the test's own frames included.
const STACK: usize = 16 << 10;

#[repr(C, align(128))]
#[derive(Clone)]
struct Line([u8; 128]);

#[test]
fn a_yard_is_created_on_a_small_stack() {
    let memory = [(PfnRange::new(Pfn(0x100), PageCount(0x4000)), NodeId(0))];
    let regions = MachineBounds::of_memory(Geometry::X86_64, ByteSize::mib(64));
    let region = |size: ByteSize| std::vec![Line([0; 128]); size.0.div_ceil(128) as usize];
    let mut memories = [region(regions.map_bytes()), region(regions.control_bytes())];
    let create = move || {
        let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0)]) };
        let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
        let layout = Layout::plan(&table, &config).expect("a layout");
        let [map, control] = memories.each_mut().map(|lines| RawRegion {
            base: NonNull::from(lines.as_mut_slice()).cast(),
            size: ByteSize(size_of_val(lines.as_slice()) as u64),
        });
        // SAFETY: zeroed memory of sufficient size, that outlives the yard.
        let yard = unsafe { Yard::create(&table, &config, &layout, map, control, Plain) }.expect("a yard");
        let frame = yard.alloc(Order::ZERO, Gfp::KERNEL).expect("a frame");
        yard.free(frame, Order::ZERO).expect("the frame is allocated");
    };
    std::thread::Builder::new().stack_size(STACK).spawn(create).expect("a thread").join().expect("the stack suffices");
}
