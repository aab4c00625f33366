//! Yards whose memory lies far apart, or has many holes.

use crate::fixture::{Fixture, Frames, order, run_on};
use crate::mover::Mover;
use frameyard::alloc::FreeProblem;
use frameyard::boot::{InitMode, MapInit, ZoneLimits};
use frameyard::compaction::CompactRequest;
use frameyard::devices::{DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::{
    ByteSize, CpuId, Geometry, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId,
};

const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
/// 2^44 bytes, and 2^52.
const DISTANCES: [u64; 2] = [1 << 32, 1 << 40];

/// Sections of 2 MiB, so that memory of a few MiB has several.
fn geometry() -> Geometry {
    Geometry::new(ByteSize::kib(4), ByteSize::mib(2), Order(8), Order(9)).unwrap()
}

fn frames(start: u64, count: u64) -> PfnRange {
    PfnRange::new(Pfn(start), PageCount(count))
}

fn config(cpus: &[NodeId]) -> YardConfig<'_> {
    YardConfig { geometry: geometry(), zone_limits: ZoneLimits::NONE, ..YardConfig::new(cpus) }
}

/// Two nodes. The second has more memory, so the first lies outside the largest run.
fn two_nodes(distance: u64) -> [(PfnRange, NodeId); 2] {
    [(frames(0x1010, 0xff0), NodeId(0)), (frames(distance + 0x1000, 0x1800), NodeId(1))]
}

/// One node, whose zone spans the hole.
fn one_node(distance: u64) -> Vec<(PfnRange, NodeId)> {
    two_nodes(distance).map(|(range, _)| (range, NodeId(0))).to_vec()
}

/// One node with memory in every other section. The largest run is in the middle.
fn many_holes() -> Vec<(PfnRange, NodeId)> {
    // Runs of whole sections: the places of their ends follow each other without a gap.
    let run =
        |at: u64| frames(0x1000 + 0x800 * at, [0x400, 0x400, 0x3f0][at as usize % 3] + 0x200 * u64::from(at == 7));
    (0..24).map(|at| (run(at), NodeId(0))).collect()
}

fn machines() -> Vec<Vec<(PfnRange, NodeId)>> {
    DISTANCES
        .map(|distance| two_nodes(distance).to_vec())
        .into_iter()
        .chain([many_holes(), one_node(1 << 40)])
        .collect()
}

fn yard(memory: &[(PfnRange, NodeId)], config: &YardConfig<'_>) -> Fixture {
    run_on(0);
    Fixture::new(&MemoryTable { memory, ..MemoryTable::default() }, config, Frames::Phantom)
}

/// Allocates all memory in blocks of an order.
fn take_all(yard: &Fixture, order: Order) -> Vec<Pfn> {
    std::iter::from_fn(|| yard.alloc(order, MOVABLE | Gfp::NOWARN).ok()).collect()
}

fn is_memory(memory: &[(PfnRange, NodeId)], pfn: Pfn, order: Order) -> bool {
    memory.iter().any(|(range, _)| range.contains(pfn) && pfn + order.pages() <= range.end)
}

#[test]
fn all_memory_is_allocated_and_freed_under_every_policy() {
    for (memory, policy) in machines().iter().flat_map(|memory| ZonePolicy::ALL.map(|policy| (memory, policy))) {
        let cpus = [NodeId(0), NodeId(memory.last().unwrap().1.0)];
        let yard = yard(memory, &YardConfig { policy, ..config(&cpus) });
        let managed = yard.stats().managed_pages();
        for at in [0, 3, 8, 9].map(order) {
            run_on(u32::from(at.0 == 3));
            let mut blocks = take_all(&yard, at);
            assert!(at.0 > 0 || blocks.len() as u64 >= managed.0 * 9 / 10, "{policy}: {} blocks", blocks.len());
            assert!(blocks.iter().all(|pfn| is_memory(memory, *pfn, at)), "{policy}");
            yard.validate().unwrap();
            // In an order that puts the last frames before a hole beside the first behind it.
            blocks.sort();
            let ends = blocks.iter().filter(|pfn| !is_memory(memory, **pfn + at.pages(), at)).count();
            assert!(at.0 > 3 || ends > 0, "{policy}: blocks lie at the ends of runs");
            blocks.into_iter().for_each(|pfn| yard.free(pfn, at).unwrap());
            yard.drain_all();
            yard.validate().unwrap();
            assert_eq!(yard.stats().free_pages(), managed, "{policy}");
        }
        let view = yard.attach();
        let pfn = view.alloc(Order::ZERO, MOVABLE).unwrap();
        yard.free(pfn, Order::ZERO).unwrap();
        drop(view);
        // Returns everything to the free lists.
        yard.set_policy(policy).unwrap();
        let largest: u64 = (0..2)
            .map(|node| {
                let zone = ZoneId::new(NodeId(node), ZoneKind::Normal);
                let blocks = yard.zone(zone).free_blocks(order(9), frameyard::MigrateType::Movable);
                if node < yard.nodes() { blocks } else { 0 }
            })
            .sum();
        let whole = |range: &PfnRange| (range.end.0 >> 9) - range.start.0.div_ceil(512);
        let expected: u64 = memory.iter().map(|(range, _)| whole(range)).sum();
        // Without deferred merges all free memory is in the largest blocks again.
        assert!(largest + 8 >= expected, "{policy}: {largest} of {expected} blocks");
    }
}

/// What the table of sections of a machine with holes has at most for each section, and what the map has.
const SECTION_BYTES: u64 = 80;
const SECTION_MAP_BYTES: u64 = 512 * 64;

#[test]
fn holes_cost_no_map_and_hardly_any_tables() {
    let cpus = [NodeId(0); 2];
    let sizes = |memory: &[(PfnRange, NodeId)]| {
        let layout = Layout::plan(&MemoryTable { memory, ..MemoryTable::default() }, &config(&cpus)).unwrap();
        (layout.map_bytes(), layout.control_bytes().0)
    };
    let side_by_side = [(frames(0x1000, 0x1000), NodeId(0)), (frames(0x2000, 0x1800), NodeId(1))];
    let (map, control) = sizes(&side_by_side);
    assert_eq!(map, ByteSize(0x2800 * 64));
    for distance in DISTANCES {
        let (sparse_map, sparse_control) = sizes(&two_nodes(distance));
        assert_eq!(sparse_map, map, "all of the map must be zero before boot, so a hole adds nothing to it");
        // A bit for each frame of the hole would be 2^29 bytes.
        let most = 128 + SECTION_BYTES * map.0 / SECTION_MAP_BYTES;
        assert!(sparse_control - control <= most, "{} bytes for a hole of {distance} frames", sparse_control - control);
    }
    // A hole of one section.
    let holes = many_holes();
    let mut end = 0x1000;
    let closed: Vec<_> = holes
        .iter()
        .map(|(range, node)| {
            let start = end;
            end += range.count().0.next_multiple_of(512);
            (frames(start, range.count().0), *node)
        })
        .collect();
    let frames_in_holes = 23 * 0x400;
    let ((map, control), (map_with_holes, with_holes)) = (sizes(&closed), sizes(&holes));
    assert_eq!(map_with_holes, map);
    let most = frames_in_holes / 8 + SECTION_BYTES * map.0 / SECTION_MAP_BYTES;
    assert!(with_holes - control <= most, "{} bytes", with_holes - control);
}

#[test]
fn frames_of_a_hole_are_no_frames_of_the_yard() {
    for memory in machines() {
        let yard = yard(&memory, &config(&[NodeId(0), NodeId(0)]));
        let hole = Pfn(memory[0].0.end.0.next_multiple_of(0x400));
        assert!(yard.frame_range().contains(hole) && yard.map_offset(hole).is_none());
        assert_eq!(yard.map_frames().0 % 512, 0);
        for pfn in [hole, hole + PageCount(7)] {
            assert_eq!(yard.free(pfn, Order::ZERO).unwrap_err().problem, FreeProblem::Hole, "{pfn}");
            assert!(yard.stats().frame(pfn).is_none());
        }
        let across = PfnRange { start: Pfn(memory[0].0.end.0 - 8), end: hole + PageCount(8) };
        yard.request(across, Gfp::KERNEL).range().unwrap_err();
        for (range, _) in &memory {
            let inside = PfnRange { start: Pfn(range.end.0 - 200), end: range.end };
            let taken = yard.request(inside, Gfp::KERNEL).range().unwrap();
            yard.validate().unwrap();
            yard.free_range(taken).unwrap();
        }
        yard.drain_all();
        yard.validate().unwrap();
    }
}

#[test]
fn compaction_moves_blocks_in_each_run() {
    for memory in machines() {
        let yard = yard(&memory, &config(&[NodeId(0), NodeId(0)]));
        let mover = Mover::new(&yard);
        let mut slots: Vec<_> =
            take_all(&yard, Order::ZERO).into_iter().map(|pfn| (pfn, mover.own(pfn, Order::ZERO))).collect();
        slots.sort();
        slots.iter().filter(|(pfn, _)| pfn.0 % 4 != 0).for_each(|(_, slot)| mover.free(*slot));
        yard.drain_all();
        for node in 0..yard.nodes() {
            let zone = ZoneId::new(NodeId(node), ZoneKind::Normal);
            yard.compaction().zone(zone, CompactRequest::WHOLE_ZONE, &mover.owners());
            assert!(yard.zone(zone).compaction().skipped_pageblocks <= 0x10000);
        }
        assert!(mover.moves.load(std::sync::atomic::Ordering::Relaxed) > 100);
        yard.validate().unwrap();
        mover.check_all();
        mover.free_all();
        yard.drain_all();
        yard.validate().unwrap();
    }
}

#[test]
fn deferred_memory_on_both_sides_of_a_hole_is_initialised() {
    for (memory, mode) in
        machines().iter().flat_map(|memory| [InitMode::Deferred, InitMode::Lazy].map(|mode| (memory, mode)))
    {
        let map_init = MapInit { mode, ..MapInit::default() };
        let cpus = [NodeId(0), NodeId(0)];
        let yard = yard(memory, &YardConfig { map_init, ..config(&cpus) });
        let all: PageCount = memory.iter().map(|(range, _)| range.count()).sum();
        let some = yard.alloc(Order::ZERO, MOVABLE).unwrap();
        yard.validate().unwrap();
        yard.init().finish().unwrap();
        assert_eq!(yard.init().deferred_pages(), PageCount(0));
        yard.free(some, Order::ZERO).unwrap();
        yard.drain_all();
        yard.validate().unwrap();
        assert_eq!(yard.stats().free_pages(), all);
    }
}

#[test]
fn device_memory_may_lie_far_from_memory() {
    for (distance, first) in [(1 << 32, 0x1000), (0, 1 << 40)] {
        let space = frames(distance + 0x40_0000, 0x2000);
        let memory = [(frames(first, 0x1000), NodeId(0)), (frames(first + 0x1400, 0x800), NodeId(0))];
        let cpus = [NodeId(0)];
        let yard = yard(&memory, &YardConfig { device_space: Some(space), ..config(&cpus) });
        for layout in MapLayout::ALL {
            let request = DeviceRequest {
                range: space,
                node: NodeId(0),
                order: Order(9),
                layout,
                placement: MapPlacement::Memory,
            };
            let id = yard.devices().map(request).unwrap();
            yard.validate().unwrap();
            drop(yard.attach());
            let page = yard.devices().page(space.start + PageCount(0x1234)).unwrap();
            assert_eq!(page.head(), space.start + PageCount(0x1200));
            assert!(yard.devices().page(space.end).is_none() && yard.devices().page(Pfn(first)).is_none());
            yard.devices().unmap(id, Removal::Refuse).unwrap();
            yard.validate().unwrap();
        }
    }
}

#[test]
fn lists_of_one_cpu_hold_frames_of_several_runs() {
    let memory = many_holes();
    let yard = yard(&memory, &config(&[NodeId(0)]));
    let blocks = take_all(&yard, Order::ZERO);
    // From both ends, so that neighbours on the list are no neighbours in memory.
    let from_both_ends = blocks.iter().zip(blocks.iter().rev()).flat_map(|(first, last)| [first, last]);
    from_both_ends.take(blocks.len()).for_each(|pfn| yard.free(*pfn, Order::ZERO).unwrap());
    yard.validate().unwrap();
    yard.zone(ZoneId::new(NodeId(0), ZoneKind::Normal)).drain_cpu(CpuId(0));
    yard.validate().unwrap();
}
