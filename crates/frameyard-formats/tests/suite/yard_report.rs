//! The `/proc` formats of a yard.

use crate::fixture::{Fixture, Frames, run_on};
use frameyard::boot::{InitMode, MapInit};
use frameyard::compaction::CompactRequest;
use frameyard::owners::Owners;
use frameyard::stats::CompactEvent;
use frameyard::units::ZoneKind;
use frameyard::{
    ByteSize, CpuId, Geometry, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId,
};
use frameyard_formats::{
    GlobalStat, KernelFormat, NumaEvent, ReportSource, VmEvent, write_buddyinfo, write_pagetypeinfo, write_vmstat,
    write_zoneinfo,
};

const NORMAL: [ZoneId; 2] = [ZoneId::new(NodeId(0), ZoneKind::Normal), ZoneId::new(NodeId(1), ZoneKind::Normal)];

/// Two nodes with a CPU each; memory of the first has holes at 16 MiB and below 4 GiB.
fn two_nodes() -> Fixture {
    let range = |start, end| PfnRange { start: Pfn(start), end: Pfn(end) };
    let memory = [
        (range(0x1, 0x9f), NodeId(0)),
        (range(0x100, 0x800), NodeId(0)),
        (range(0x2000, 0xc000), NodeId(0)),
        (range(0x10_0000, 0x10_8000), NodeId(0)),
        (range(0x11_0000, 0x11_8000), NodeId(1)),
    ];
    let config = YardConfig::new(&[NodeId(0), NodeId(1)]);
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

#[test]
fn zone_span_includes_holes_at_its_ends() {
    let yard = two_nodes();
    let span = |node, kind| {
        let zone = ReportSource::zone(yard.yard(), ZoneId::new(NodeId(node), kind));
        (zone.start, zone.spanned, zone.present)
    };
    assert_eq!(span(0, ZoneKind::Dma), (Pfn(1), PageCount(0xfff), PageCount(0x9e + 0x700)));
    assert_eq!(span(0, ZoneKind::Dma32), (Pfn(0x1000), PageCount(0xf_f000), PageCount(0xa000)));
    assert_eq!(span(0, ZoneKind::Normal), (Pfn(0x10_0000), PageCount(0x8000), PageCount(0x8000)));
    assert_eq!(span(1, ZoneKind::Normal), (Pfn(0x11_0000), PageCount(0x8000), PageCount(0x8000)));
    assert_eq!(span(1, ZoneKind::Dma32), (Pfn(0), PageCount(0), PageCount(0)));
}

#[test]
fn allocations_count_by_zone_and_node_of_the_cpu() {
    let yard = two_nodes();
    run_on(0);
    let count = |zone, event| yard.yard().numa_event(zone, event);
    let local: Vec<Pfn> = (0..10).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
    let remote: Vec<Pfn> =
        (0..3).map(|_| yard.request(Order::ZERO, Gfp::KERNEL).node(NodeId(1)).frame().unwrap()).collect();
    let of = |zone| {
        [NumaEvent::NumaHit, NumaEvent::NumaMiss, NumaEvent::NumaLocal, NumaEvent::NumaOther]
            .map(|event| count(zone, event))
    };
    assert_eq!(of(NORMAL[0]), [10, 0, 10, 0]);
    assert_eq!(of(NORMAL[1]), [3, 0, 0, 3]);
    assert_eq!((yard.yard().event(VmEvent::PgallocNormal), yard.yard().event(VmEvent::Pgfree)), (13, 0));
    for pfn in local.into_iter().chain(remote) {
        yard.free(pfn, Order::ZERO).unwrap();
    }
    assert_eq!(yard.yard().event(VmEvent::Pgfree), 13);
    assert_eq!(yard.yard().event(VmEvent::PgallocDma32), 0);
    // Blocks are counted by their frames, those that come straight from the zone too.
    for order in [Order(2), Order(5), Order(9)] {
        let before = yard.yard().event(VmEvent::PgallocNormal);
        let block = yard.alloc(order, Gfp::KERNEL).unwrap();
        assert_eq!(yard.yard().event(VmEvent::PgallocNormal), before + order.pages().0);
        let before = yard.yard().event(VmEvent::Pgfree);
        yard.free(block, order).unwrap();
        assert_eq!(yard.yard().event(VmEvent::Pgfree), before + order.pages().0);
    }
}

#[test]
fn buddyinfo_has_eleven_columns_whatever_blocks_are_allocated() {
    let yard = two_nodes();
    run_on(0);
    // Of the memory from 4 GiB on: its place is free up to the maximum order.
    let large = Order(13);
    let columns = || {
        let mut text = String::new();
        write_buddyinfo(yard.yard(), &mut text).unwrap();
        let counts =
            text.lines().map(|line| line.split_whitespace().skip(4).map(|count| count.parse().unwrap()).collect());
        counts.collect::<Vec<Vec<u64>>>()
    };
    let pages = |columns: &[Vec<u64>]| {
        let of_zone = |counts: &Vec<u64>| counts.iter().enumerate().map(|(order, count)| count << order).sum::<u64>();
        columns.iter().map(of_zone).sum::<u64>()
    };
    yard.drain_all();
    let before = columns();
    let block = yard.alloc(large, Gfp::HIGHUSER_MOVABLE).unwrap();
    let allocated = columns();
    assert!(allocated.iter().all(|counts| counts.len() == 11), "{allocated:?}");
    assert_eq!(pages(&before) - pages(&allocated), large.pages().0);
    yard.free(block, large).unwrap();
    yard.drain_all();
    assert_eq!(columns(), before, "a large block is free as blocks of the maximum order");
}

#[test]
fn texts_agree_with_statistics() {
    let yard = two_nodes();
    run_on(1);
    let held = yard.frames(Order(3), Gfp::KERNEL).unwrap();
    let mut text = String::new();
    write_buddyinfo(yard.yard(), &mut text).unwrap();
    assert_eq!(text.lines().count(), 4);
    let pages = |line: &str| -> u64 {
        let counts = line.split_whitespace().skip(4).map(|count| count.parse::<u64>().unwrap());
        counts.enumerate().map(|(order, count)| count << order).sum()
    };
    for (line, zone) in text.lines().zip(yard.stats().zones()) {
        assert_eq!(pages(line), zone.free.0, "{line}");
    }
    let mut text = String::new();
    write_zoneinfo(yard.yard(), KernelFormat::V6_12, &mut text).unwrap();
    let lists = yard.yard().per_cpu(NORMAL[1], CpuId(1));
    assert!(lists.count.0 > 0 && lists.stat_threshold > 0, "{lists:?}");
    assert!(text.contains(&format!("    cpu: 1\n              count: {}\n", lists.count.0)), "{text}");
    drop(held);
}

/// As a kernel with pages of that size prints: its numbers of pages are numbers of frames.
#[test]
fn large_frames_count_as_pages() {
    let geometry = Geometry::of_frames(ByteSize::mib(2)).unwrap();
    let memory = [(PfnRange::new(Pfn(0x800), PageCount(0x300)), NodeId(0))];
    let config = YardConfig { geometry, ..YardConfig::new(&[NodeId(0)]) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    run_on(0);
    let held = [yard.frames(Order(0), Gfp::KERNEL).unwrap(), yard.frames(Order(5), Gfp::KERNEL).unwrap()];
    yard.drain_all();
    let zone = ReportSource::zone(yard.yard(), NORMAL[0]);
    assert_eq!((zone.start, zone.present, zone.managed), (Pfn(0x800), PageCount(0x300), PageCount(0x300)));
    assert_eq!(zone.free, PageCount(0x300 - 33));
    // sqrt(16 * 1.5 GiB in KiB) = 5016 KiB are two frames.
    assert_eq!(zone.watermarks.min, PageCount(2));
    assert_eq!(yard.yard().event(VmEvent::PgallocNormal), 33);
    // 64 KiB.
    assert_eq!(yard.yard().global_stat(GlobalStat::NrMemmapBootPages), 1);
    assert!(yard.yard().per_cpu(NORMAL[0], CpuId(0)).stat_threshold > 0);
    let mut text = String::new();
    write_buddyinfo(yard.yard(), &mut text).unwrap();
    assert_eq!(text.split_whitespace().count(), 4 + 10, "orders 0 to 9: {text}");
    drop(held);
}

#[test]
fn lazy_and_eager_yards_print_the_same_files() {
    run_on(0);
    let texts = |mode| {
        let memory = [(PfnRange { start: Pfn(0x1000), end: Pfn(0x9000) }, NodeId(0))];
        let map_init = MapInit { mode, ..MapInit::default() };
        let config = YardConfig { map_init, ..YardConfig::new(&[NodeId(0)]) };
        let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
        let mut text = String::new();
        write_buddyinfo(yard.yard(), &mut text).unwrap();
        write_pagetypeinfo(yard.yard(), &mut text).unwrap();
        for format in [KernelFormat::V6_1, KernelFormat::V6_12] {
            write_zoneinfo(yard.yard(), format, &mut text).unwrap();
            write_vmstat(yard.yard(), format, &mut text).unwrap();
        }
        text
    };
    assert_eq!(texts(InitMode::Lazy), texts(InitMode::Eager));
}

#[test]
fn events_come_from_the_statistics_of_compaction_and_reclaim() {
    let yard = two_nodes();
    run_on(0);
    for zone in NORMAL {
        yard.compaction().zone(zone, CompactRequest::WHOLE_ZONE, &Owners::NONE);
    }
    let statistics = NORMAL.map(|zone| yard.zone(zone).compaction());
    let event = |event| yard.yard().event(event);
    assert_eq!(
        event(VmEvent::CompactFreeScanned),
        statistics.iter().map(|zone| zone.count(CompactEvent::FreeScanned)).sum::<u64>()
    );
    assert_eq!(
        event(VmEvent::CompactMigrateScanned),
        statistics.iter().map(|zone| zone.count(CompactEvent::MigrateScanned)).sum::<u64>()
    );
    assert_eq!(event(VmEvent::AllocstallNormal), yard.stats().reclaim_stalls(ZoneKind::Normal));
}
