//! Which memory serves which request: zones and their reserves, nodes by distance, migration types, contiguous areas.

use crate::fixture::{Fixture, Frames, STORES, order, run_on};
use frameyard::boot::{MovableMemory, ZoneLimits};
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::watermarks::PcpSizing;
use frameyard::{
    AllocError, CpuId, Geometry, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig,
    ZoneId,
};

const MIB: u64 = 256;

#[test]
fn zones_keep_their_reserves() {
    let gib = 1u64 << 18;
    let memory = [(PfnRange { start: Pfn(1), end: Pfn(5 * gib) }, NodeId(0))];
    let cpus = [NodeId(0); 2];
    let config = YardConfig { movable: MovableMemory::Percent(10), ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = Fixture::new(&table, &config, Frames::Phantom);
    let kind = |pfn: Pfn| yard.zone_of(pfn).unwrap().kind();
    let mut blocks = Vec::new();
    for (gfp, expected) in [
        (Gfp::KERNEL, ZoneKind::Normal),
        (Gfp::KERNEL | Gfp::DMA32, ZoneKind::Dma32),
        (Gfp::KERNEL | Gfp::DMA, ZoneKind::Dma),
        (Gfp::HIGHUSER_MOVABLE, ZoneKind::Movable),
    ] {
        let pfn = yard.alloc(Order::ZERO, gfp).unwrap();
        assert_eq!(kind(pfn), expected, "{gfp}");
        blocks.push((pfn, Order::ZERO));
    }
    let movable: u64 =
        yard.stats().zones().filter(|zone| zone.id.kind() == ZoneKind::Movable).map(|zone| zone.managed.0).sum();
    assert!((movable as f64 / (5.0 * gib as f64) - 0.1).abs() < 0.01);
    while let Ok(pfn) = yard.alloc(order(10), Gfp::KERNEL | Gfp::NOWARN) {
        blocks.push((pfn, order(10)));
    }
    // Ordinary requests fall back to lower zones but leave those their reserve.
    let dma32 = yard.zone(ZoneId::new(NodeId(0), ZoneKind::Dma32)).statistics();
    assert!(blocks.iter().any(|(pfn, _)| kind(*pfn) == ZoneKind::Dma32));
    assert!(blocks.iter().all(|(pfn, order)| *order == Order::ZERO || kind(*pfn) != ZoneKind::Movable));
    assert!(dma32.free >= dma32.protection[ZoneKind::Normal as usize]);
    assert!(yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::DMA).is_ok_and(|pfn| {
        blocks.push((pfn, Order::ZERO));
        true
    }));
    for (pfn, order) in blocks {
        yard.free(pfn, order).unwrap();
    }
}

#[test]
fn nodes_fall_back_by_distance() {
    let pages = 64 * MIB;
    let memory: Vec<_> = (0..3u16)
        .map(|node| (PfnRange::new(Pfn(0x10000 + u64::from(node) * pages), PageCount(pages)), NodeId(node)))
        .collect();
    let cpus = [NodeId(0), NodeId(1), NodeId(2)];
    let distances = [10, 30, 20, 30, 10, 20, 20, 20, 10];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, distances: Some(&distances), ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = Fixture::new(&table, &config, Frames::Phantom);
    crate::fixture::run_on(0);
    let mut blocks = Vec::new();
    let mut nodes = Vec::new();
    while let Ok(pfn) = yard.alloc(order(10), Gfp::KERNEL | Gfp::THISNODE) {
        assert_eq!(yard.zone_of(pfn).unwrap().node(), NodeId(0));
        blocks.push(pfn);
    }
    while let Ok(pfn) = yard.alloc(order(10), Gfp::KERNEL) {
        nodes.push(yard.zone_of(pfn).unwrap().node().0);
        blocks.push(pfn);
    }
    nodes.dedup();
    assert!(nodes.starts_with(&[2, 1]), "node 2 is nearer to node 0 than node 1: {nodes:?}");
    let on_one = yard.request(Order::ZERO, Gfp::KERNEL).node(NodeId(1)).frame().unwrap();
    assert_eq!(yard.zone_of(on_one).unwrap().node(), NodeId(1));
    yard.free(on_one, Order::ZERO).unwrap();
    let remote = yard.zone(ZoneId::new(NodeId(2), ZoneKind::Normal)).statistics();
    assert!(remote.numa_miss > 0);
    for pfn in blocks {
        yard.free(pfn, order(10)).unwrap();
    }
}

#[test]
fn types_are_kept_apart_until_one_runs_out() {
    let yard = Fixture::small(1, 64 * MIB);
    yard.lists().resize(PcpSizing::Fixed(0));
    let zone = ZoneId::new(NodeId(0), ZoneKind::Normal);
    let unmovable = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    assert_eq!(yard.zone(zone).statistics().fallbacks, 1, "all pageblocks begin as movable");
    assert!(yard.zone(zone).statistics().conversions > 0);
    let movable = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    assert_ne!(unmovable.align_down(order(9)), movable.align_down(order(9)), "another pageblock");
    assert_eq!(yard.stats().frame(unmovable).unwrap().migrate_type, MigrateType::Unmovable);
    let blocks = yard.zone(zone).pageblocks(MigrateType::Unmovable);
    assert!((1..=2).contains(&blocks), "a block of maximum order was turned over: {blocks}");
    let more: Vec<Pfn> = (0..400).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
    assert_eq!(yard.zone(zone).pageblocks(MigrateType::Unmovable), blocks);
    for pfn in more.into_iter().chain([unmovable, movable]) {
        yard.free(pfn, Order::ZERO).unwrap();
    }
}

#[test]
fn high_atomic_reserve_serves_atomic_requests() {
    let yard = Fixture::small(1, 1024 * MIB);
    let zone = ZoneId::new(NodeId(0), ZoneKind::Normal);
    let first = yard.alloc(order(4), Gfp::ATOMIC).unwrap();
    assert_eq!(yard.zone(zone).statistics().reserved_highatomic, PageCount(0), "taken above the low watermark");
    let mut blocks = Vec::new();
    while let Ok(pfn) = yard.alloc(order(4), Gfp::KERNEL | Gfp::NORETRY) {
        blocks.push((pfn, order(4)));
    }
    while let Ok(pfn) = yard.alloc(order(4), Gfp::ATOMIC) {
        blocks.push((pfn, order(4)));
        if blocks.len() > 100_000 {
            break;
        }
    }
    let reserved = yard.zone(zone).statistics().reserved_highatomic;
    assert!(reserved.0 > 0 && reserved.0 <= (1024 * MIB / 100).next_multiple_of(512));
    yard.validate().unwrap();
    for (pfn, order) in blocks.into_iter().chain([(first, order(4))]) {
        yard.free(pfn, order).unwrap();
    }
    // A request that may wait gets the reserve before it fails.
    let mut all = Vec::new();
    while let Ok(pfn) = yard.alloc(order(9), Gfp::KERNEL) {
        all.push(pfn);
    }
    assert!(yard.zone(zone).statistics().reserved_highatomic.0 < reserved.0);
    for pfn in all {
        yard.free(pfn, order(9)).unwrap();
    }
}

#[test]
fn cma_serves_movable_requests_only() {
    let memory = [(PfnRange::new(Pfn(0x1000), PageCount(64 * MIB)), NodeId(0))];
    let cma = [PfnRange::new(Pfn(0x2000), PageCount(16 * MIB))];
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &memory, reserved: &[], cma: &cma };
    let yard = Fixture::new(&table, &config, Frames::Phantom);
    let zone = ZoneId::new(NodeId(0), ZoneKind::Normal);
    assert_eq!(yard.zone(zone).statistics().free_cma, PageCount(16 * MIB));
    let particular = PfnRange::new(Pfn(0x2005), PageCount(7));
    assert!(matches!(yard.request(particular, Gfp::KERNEL).range(), Err(AllocError::InUse { .. })));
    yard.free_range(yard.request(particular, Gfp::HIGHUSER_MOVABLE).range().unwrap()).unwrap();
    let mut unmovable = Vec::new();
    while let Ok(pfn) = yard.alloc(order(3), Gfp::KERNEL) {
        assert!(!cma[0].contains(pfn));
        unmovable.push(pfn);
    }
    let mut movable = Vec::new();
    while let Ok(pfn) = yard.alloc(order(3), Gfp::HIGHUSER_MOVABLE) {
        movable.push(pfn);
    }
    assert!(movable.iter().filter(|pfn| cma[0].contains(**pfn)).count() as u64 > 14 * MIB / 8);
    yard.validate().unwrap();
    for pfn in unmovable.into_iter().chain(movable) {
        yard.free(pfn, order(3)).unwrap();
    }
}

#[test]
fn pairs_need_no_search_while_nearer_zones_are_full() {
    const PAGES: u64 = 32 * MIB;
    let memory =
        [0, 1, 2].map(|node| (PfnRange::new(Pfn(0x10000 + node * PAGES), PageCount(PAGES)), NodeId(node as u16)));
    let cpus = [NodeId(0), NodeId(1), NodeId(2)];
    let distances = [10, 20, 30, 20, 10, 20, 30, 20, 10];
    for policy in STORES {
        run_on(0);
        let config =
            YardConfig { zone_limits: ZoneLimits::NONE, distances: Some(&distances), policy, ..YardConfig::new(&cpus) };
        let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
        let yard = Fixture::new(&table, &config, Frames::Phantom);
        let node_of = |pfn: Pfn| yard.zone_of(pfn).unwrap().node();
        // Pairs of the node that serves them, and how many of them had to search other zones.
        let pairs = || {
            let misses = || yard.stats().zones().map(|zone| zone.numa_miss).sum::<u64>();
            let before = misses();
            for _ in 0..1000 {
                yard.free(yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap(), Order::ZERO).unwrap();
            }
            let last = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
            yard.free(last, Order::ZERO).unwrap();
            (node_of(last), misses() - before)
        };
        let mut held: Vec<Vec<Pfn>> = Vec::new();
        for node in [0, 1, 2].map(NodeId) {
            let (served, searched) = pairs();
            assert!(served == node && searched < 10, "{policy}: {searched} searches for frames of {served}");
            // Until the first frame of another node.
            let mut of_node: Vec<Pfn> = Vec::new();
            while node < NodeId(2) && of_node.last().is_none_or(|pfn| node_of(*pfn) == node) {
                of_node.push(yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap());
            }
            held.push(of_node);
        }
        // The nearest one that has frames again serves as soon as a list is empty.
        held.remove(1).into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        yard.lists().drain_cpu(CpuId(0));
        assert_eq!(pairs().0, NodeId(1), "{policy}");
        held.remove(0).into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        yard.lists().drain_cpu(CpuId(0));
        assert_eq!(pairs().0, NodeId(0), "{policy}");
        yard.drain_all();
        yard.validate().unwrap();
    }
}

#[test]
fn nodes_whose_memory_alternates_serve_their_own_frames_as_bits() {
    run_on(0);
    let section = Geometry::X86_64.section_pages().0;
    // Six parts of three quarters of a section: most sections have memory of both nodes.
    let part = section * 3 / 4;
    let memory: Vec<_> = (0..6)
        .map(|at| (PfnRange::new(Pfn(0x10_0000 + at * part), PageCount(part)), NodeId((at % 2) as u16)))
        .collect();
    let cpus = [NodeId(0), NodeId(1)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, policy: ZonePolicy::Bits, ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = Fixture::new(&table, &config, Frames::Phantom);
    let free = yard.stats().free_pages();
    for at in [Order::ZERO, order(4), order(9)] {
        for node in [NodeId(0), NodeId(1)] {
            let locks = || yard.stats().zones().map(|zone| zone.lock.acquisitions).sum::<u64>();
            let (before, mut held) = (locks(), Vec::new());
            for _ in 0..section >> at.0 {
                let pfn = yard.request(at, Gfp::KERNEL).exact_node(node).frame().unwrap();
                assert_eq!(yard.zone_of(pfn).unwrap().node(), node);
                held.push(pfn);
            }
            // The free lists give pageblocks, not blocks.
            assert!(locks() - before <= section >> 9, "order {at}: {} locks", locks() - before);
            held.into_iter().for_each(|pfn| yard.free(pfn, at).unwrap());
            yard.validate().unwrap();
        }
    }
    yard.drain_all();
    assert_eq!(yard.stats().free_pages(), free);
}

#[test]
fn pageblocks_come_from_the_free_lists_many_at_a_time_as_bits() {
    run_on(0);
    let memory = [(PfnRange::new(Pfn(0x10_0000), PageCount(0x4_0000)), NodeId(0))];
    let config =
        YardConfig { zone_limits: ZoneLimits::NONE, policy: ZonePolicy::Bits, ..YardConfig::new(&[NodeId(0)]) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = Fixture::new(&table, &config, Frames::Phantom);
    let take = |at, most| -> Vec<Pfn> {
        (0..most).map_while(|_| yard.alloc(at, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).ok()).collect()
    };
    // Blocks of more than a pageblock are freed to the free lists.
    take(order(10), usize::MAX).into_iter().for_each(|pfn| yard.free(pfn, order(10)).unwrap());
    let locks = || yard.stats().zones().map(|zone| zone.lock.acquisitions).sum::<u64>();
    let before = locks();
    let held = take(order(9), 256);
    assert_eq!(held.len(), 256);
    assert!(locks() - before <= 256 / 16, "{} locks", locks() - before);
    held.into_iter().for_each(|pfn| yard.free(pfn, order(9)).unwrap());
    yard.drain_all();
    yard.validate().unwrap();
}
