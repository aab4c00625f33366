//! Bounds of a yard's memory that are known before there is a machine.

use std::ptr::NonNull;

use frameyard::boot::{BootError, DeviceSpace, InitMode, MachineBounds, MapInit, MemorySource, ZoneLimits};
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{
    ByteSize, CpuId, Geometry, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, RawRegion,
    Yard, YardConfig,
};

/// One CPU, and frames without bytes.
struct Plain;

impl Platform for Plain {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn spin(&self, _round: u32) {}

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}

/// Plans a machine whose nodes lie side by side, and compares with its bounds.
fn check_bounds(nodes: u64, first: u64, pages: u64, config: YardConfig<'_>, reserved: &[PfnRange]) {
    let node = |at: u64| (PfnRange::new(Pfn(first + at * pages), PageCount(pages)), NodeId(at as u16));
    let memory: Vec<_> = (0..nodes).map(node).collect();
    let cpus: Vec<_> = (0..8 * nodes).map(|cpu| NodeId((cpu % nodes) as u16)).collect();
    let config = YardConfig { cpus: &cpus, ..config };
    let space = config.device_space.unwrap_or_default();
    let table = MemoryTable { memory: &memory, reserved, ..MemoryTable::default() };
    let layout = Layout::plan(&table, &config).expect("a layout");
    let bounds = MachineBounds {
        frames: PageCount((first + nodes * pages).max(space.end.0) - first),
        nodes: nodes as usize,
        cpus: cpus.len(),
        memory_ranges: memory.len(),
        reserved_ranges: reserved.len(),
        pcp_sizing: config.pcp_sizing,
        devices: if space.is_empty() { DeviceSpace::None } else { DeviceSpace::Some },
        ..MachineBounds::of_memory(config.geometry, ByteSize(0))
    };
    let machine = format!("{nodes} nodes of {pages} pages from {first:#x}, {:?}", config.pcp_sizing);
    assert!(layout.map_bytes() <= bounds.map_bytes(), "{machine}");
    assert!(layout.control_bytes() <= bounds.control_bytes(), "{machine}");
    // At most one section more of the map, because memory may begin inside a section.
    let section = config.geometry.section_pages().0 * 64;
    assert!(bounds.map_bytes().0 <= layout.map_bytes().0 + section, "{machine}");
    // Not much more of the control region: the tables of the transfer mechanisms and of one more section are most of the difference.
    let lists = 8192 * 9;
    // The lists of the larger orders, which a yard has only if its free frames are bits.
    let larger = 8 * nodes * 15 * 576;
    let slack = nodes * 5 * (lists + larger) + (1 << 20) + section / 32 + layout.control_bytes().0 / 8;
    assert!(bounds.control_bytes().0 <= layout.control_bytes().0 + slack, "{machine}");
}

#[test]
fn no_layout_needs_more_than_the_bounds_of_its_machine() {
    let small = Geometry::new(ByteSize::kib(4), ByteSize::mib(16), Order(9), Order(10)).expect("a geometry");
    for geometry in [Geometry::X86_64, small] {
        for pcp_sizing in [PcpSizing::Scaled, PcpSizing::Early, PcpSizing::Fixed(0), PcpSizing::Fixed(8)] {
            let config = YardConfig { geometry, pcp_sizing, ..YardConfig::new(&[]) };
            for (nodes, first, pages) in [
                (1, 0, 0x1000),
                (1, 0x100, 0x4000),
                (1, 0x3_f000, 1 << 18),
                (2, 0xf_ff00, 1 << 20),
                (3, 0x8_0001, 0x1_2345),
                (4, 1, (1 << 24) + 77),
                (16, 0x1000, 1 << 20),
                (64, 0, 1 << 16),
            ] {
                let reserved: Vec<_> = (0..40).map(|at| PfnRange::new(Pfn(first + 16 * at), PageCount(3))).collect();
                check_bounds(nodes, first, pages, config, &[]);
                check_bounds(nodes, first, pages, config, &reserved);
                let behind = PfnRange::new(Pfn(first + nodes * pages), PageCount(1 << 16));
                check_bounds(nodes, first, pages, YardConfig { device_space: Some(behind), ..config }, &reserved);
                let without_low_zones = YardConfig { zone_limits: ZoneLimits::NONE, ..config };
                check_bounds(nodes, first, pages, without_low_zones, &[]);
            }
        }
    }
}

#[repr(C, align(128))]
#[derive(Clone)]
struct Line([u8; 128]);

/// The stack below a caller that is painted before its use is measured, in bytes, and the paint.
const ROOM: usize = 64 << 10;
const PAINT: u64 = 0x5a5a_1234_9876_a5a5;

/// Paints the stack below the caller; returns the lowest painted address.
#[inline(never)]
fn paint() -> usize {
    std::hint::black_box(&mut [PAINT; ROOM / 8]).as_mut_ptr().expose_provenance()
}

/// Runs `work`; returns its result, and how many bytes of stack the functions that it calls used.
#[inline(never)]
fn stack_used<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let lowest = paint();
    let result = work();
    // SAFETY: the words lie in this thread's stack, below all frames that are in use, where `paint` wrote before.
    let word = |at: usize| unsafe { std::ptr::with_exposed_provenance::<u64>(lowest + 8 * at).read_volatile() };
    let touched = (0..ROOM / 8).find(|at| word(*at) != PAINT).unwrap_or(ROOM / 8);
    (result, ROOM - 8 * touched)
}

type Plan = fn(&dyn MemorySource, &YardConfig<'_>) -> Result<Layout, BootError>;
type Create = unsafe fn(
    &dyn MemorySource,
    &YardConfig<'_>,
    &Layout,
    RawRegion,
    RawRegion,
    Plain,
) -> Result<Yard<Plain>, BootError>;

/// The stack that a yard of 64 MiB needs for its plan and for its creation, and what `work` with it returns.
fn with_yard<T>(config: &YardConfig<'_>, work: impl FnOnce(&Yard<Plain>) -> T) -> (usize, usize, T) {
    // Called through pointers: the compiler cannot inline them, and their frames count.
    let (plan, create) = std::hint::black_box((Layout::plan as Plan, Yard::create as Create));
    let memory = [(PfnRange::new(Pfn(0x100), PageCount(0x4000)), NodeId(0))];
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let regions = MachineBounds::of_memory(Geometry::X86_64, ByteSize::mib(64));
    let region = |size: ByteSize| std::vec![Line([0; 128]); size.0.div_ceil(128) as usize];
    let mut memories = [region(regions.map_bytes()), region(regions.control_bytes())];
    let [map, control] = memories.each_mut().map(|lines| RawRegion {
        base: NonNull::from(lines.as_mut_slice()).cast(),
        size: ByteSize(size_of_val(lines.as_slice()) as u64),
    });
    let (layout, planning) = stack_used(|| plan(&table, config));
    let layout = layout.expect("a layout");
    // SAFETY: zeroed memory of sufficient size, that outlives the yard.
    let (yard, creating) = stack_used(|| unsafe { create(&table, config, &layout, map, control, Plain) });
    (planning, creating, work(&yard.expect("a yard")))
}

#[test]
fn planning_and_creating_need_less_than_8_kib_of_stack() {
    for mode in InitMode::ALL {
        let map_init = MapInit { mode, ..MapInit::default() };
        let config = YardConfig { zone_limits: ZoneLimits::NONE, map_init, ..YardConfig::new(&[NodeId(0)]) };
        let (planning, creating, ()) = with_yard(&config, |yard| {
            let frame = yard.alloc(Order::ZERO, Gfp::KERNEL).expect("a frame");
            yard.free(frame, Order::ZERO).expect("the frame is allocated");
        });
        println!("{mode}: {planning} bytes to plan, {creating} to create");
        assert!(planning < 8 << 10 && creating < 8 << 10, "{mode}: {planning} to plan, {creating} to create");
    }
}

#[test]
fn allocating_and_freeing_need_less_than_14_kib_of_stack() {
    for policy in ZonePolicy::ALL {
        let config = YardConfig { zone_limits: ZoneLimits::NONE, policy, ..YardConfig::new(&[NodeId(0)]) };
        let (_, _, used) = with_yard(&config, |yard| {
            let mut frames = Vec::with_capacity(0x4000);
            // The second round finds what the first one has left on lists.
            stack_used(|| {
                for order in [Order::ZERO, Order(3), Order(9), Order::ZERO] {
                    while let Ok(frame) = yard.alloc(order, Gfp::KERNEL | Gfp::NOWARN) {
                        frames.push(frame);
                    }
                    frames.drain(..).for_each(|frame| yard.free(frame, order).expect("the frame is allocated"));
                }
            })
            .1
        });
        println!("{policy}: {used} bytes");
        assert!(used < 14 << 10, "{policy}: {used}");
    }
}
