//! The counts that a yard reports before, during and after map initialisation.

use std::collections::BTreeSet;

use crate::fixture::{DIRT, Fixture, run_on};
use crate::maps::{Machine, frames, give_back, machine, machines, reference, take_everything, way};
use frameyard::boot::{InitMode, Initialiser, MapInit, PcpReset};
use frameyard::page::{FrameState, MapContent};
use frameyard::units::ZoneKind;
use frameyard::watermarks::{PcpSizing, Watermarks};
use frameyard::{
    ByteSize, CpuId, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, Platform, Yard, YardConfig, ZoneId,
};

/// The counts of a zone, other than event counters.
#[derive(PartialEq, Eq, Debug)]
struct ZoneCounts {
    id: ZoneId,
    span: PfnRange,
    present: PageCount,
    managed: PageCount,
    free: PageCount,
    cma: PageCount,
    free_cma: PageCount,
    watermarks: Watermarks,
    protection: [PageCount; ZoneKind::COUNT],
    blocks: Vec<Vec<u64>>,
    pageblocks: Vec<u64>,
    lists: Vec<Option<[PageCount; 3]>>,
}

fn counts<P: Platform>(yard: &Yard<P>) -> Vec<ZoneCounts> {
    let orders = || (0..=yard.geometry().max_order().0).map(Order);
    yard.stats()
        .zones()
        .map(|zone| ZoneCounts {
            id: zone.id,
            span: zone.span,
            present: zone.present,
            managed: zone.managed,
            free: zone.free,
            cma: zone.cma,
            free_cma: zone.free_cma,
            watermarks: zone.watermarks,
            protection: zone.protection,
            blocks: MigrateType::ALL
                .map(|kind| orders().map(|order| yard.zone(zone.id).free_blocks(order, kind)).collect())
                .to_vec(),
            pageblocks: MigrateType::ALL.map(|kind| yard.zone(zone.id).pageblocks(kind)).to_vec(),
            lists: (0..yard.cpus())
                .map(|cpu| yard.zone(zone.id).pcp(CpuId(cpu)).map(|lists| [lists.count, lists.high, lists.batch]))
                .collect(),
        })
        .collect()
}

fn assert_same_counts(found: &Fixture, expected: &Fixture, what: &str) {
    assert_eq!(found.stats().managed_pages(), expected.stats().managed_pages(), "{what}");
    assert_eq!(found.stats().free_pages(), expected.stats().free_pages(), "{what}");
    assert_eq!(counts(found.yard()), counts(expected.yard()), "{what}");
}

#[test]
fn lazy_yard_counts_untouched_memory() {
    run_on(0);
    for machine in machines().map(Machine::with_free_lists) {
        let expected = machine.create_yard(reference(MapContent::Kernel));
        for initialiser in [Initialiser::None, Initialiser::Stream] {
            let yard = machine.create_yard(MapInit { mode: InitMode::Lazy, initialiser, ..MapInit::default() });
            assert_same_counts(&yard, &expected, machine.name);
            let dirt = if initialiser == Initialiser::None { 0 } else { DIRT };
            let cma = |pfn: Pfn| machine.cma.iter().any(|area| area.contains(pfn));
            let frames = (yard.frame_range().start.0..yard.frame_range().end.0).map(Pfn);
            for pfn in frames.filter(|pfn| yard.map_offset(*pfn).is_some()) {
                let untouched = yard.page_words(pfn) == [u64::from_ne_bytes([dirt; 8]); 8];
                assert!(untouched || cma(pfn), "{pfn} of {} was touched", machine.name);
            }
            let areas: u64 = machine.cma.iter().map(|area| area.count().0).sum();
            assert_eq!(yard.watch().pages(), areas, "creation initialises contiguous areas only");
            assert_eq!(yard.init().deferred_pages(), expected.stats().managed_pages() - PageCount(areas));
        }
    }
}

#[test]
fn lazy_counts_do_not_depend_on_progress() {
    run_on(0);
    for machine in machines().map(Machine::with_free_lists) {
        let expected = machine.create_yard(reference(MapContent::Zero));
        let yard = machine.create_yard(MapInit { mode: InitMode::Lazy, ..way(InitMode::Lazy) });
        for node in (0..yard.nodes()).map(NodeId) {
            while let Some(left) = yard.init().next_section(node).unwrap() {
                assert_same_counts(&yard, &expected, machine.name);
                yard.validate().unwrap();
                let zones = yard.stats().zones().filter(|zone| zone.id.node() == node);
                assert!(left <= zones.map(|zone| zone.managed).sum());
            }
        }
        assert_eq!(yard.init().deferred_pages(), PageCount(0), "{}", machine.name);
    }
}

#[test]
fn deferred_counts_follow_progress() {
    run_on(0);
    for machine in machines() {
        let expected = machine.create_yard(reference(MapContent::Kernel));
        let yard = machine.create_yard(way(InitMode::Deferred));
        assert_eq!(
            yard.stats().managed_pages() + yard.init().deferred_pages(),
            expected.stats().managed_pages(),
            "{}",
            machine.name
        );
        let is_free = |pfn: Pfn| yard.stats().frame(pfn).is_some_and(|info| info.state == FrameState::BuddyFree);
        for zone in yard.stats().zones() {
            let frames = (zone.span.start.0..zone.span.end.0).map(Pfn);
            let free = frames.filter(|pfn| yard.zone_of(*pfn) == Some(zone.id) && is_free(*pfn)).count() as u64;
            assert_eq!((zone.managed.0, zone.free.0), (free, free), "{} of {}", zone.id, machine.name);
        }
        yard.init().finish().unwrap();
        assert_same_counts(&yard, &expected, machine.name);
        yard.init().finish().unwrap();
        assert_same_counts(&yard, &expected, machine.name);
    }
}

#[test]
fn freed_deferred_memory_counts_as_eager() {
    run_on(0);
    for machine in machines().map(Machine::with_free_lists) {
        let expected = machine.create_yard(reference(MapContent::Zero));
        for mode in [InitMode::Deferred, InitMode::Lazy] {
            let yard = machine.create_yard(MapInit { content: MapContent::Zero, ..way(mode) });
            let mut taken = Vec::new();
            take_everything(&yard, |pfn| taken.push(pfn));
            give_back(&yard, &taken);
            yard.init().finish().unwrap();
            assert_eq!(yard.stats().managed_pages(), expected.stats().managed_pages());
            for (found, expected) in counts(yard.yard()).iter().zip(counts(expected.yard())) {
                assert_eq!(*found, expected, "{}, {mode}", machine.name);
            }
        }
    }
}

/// A machine large enough for lists of different sizes: more than one section of the default size.
fn large(sizing: PcpSizing, map_init: MapInit) -> Fixture {
    let memory = [(frames(0x1_0000, 0x4_1234), NodeId(0))];
    let cpus = [NodeId(0); 4];
    let table = frameyard::MemoryTable { memory: &memory, ..frameyard::MemoryTable::default() };
    let zone_limits = frameyard::boot::ZoneLimits::NONE;
    let config = YardConfig { pcp_sizing: sizing, map_init, zone_limits, ..YardConfig::new(&cpus) };
    Fixture::new(&table, &config, crate::fixture::Frames::Phantom)
}

#[test]
fn lists_are_resized_after_initialisation() {
    run_on(0);
    for sizing in [PcpSizing::Classic, PcpSizing::Scaled] {
        let init = |mode, pcp_reset| MapInit { mode, pcp_reset, ..MapInit::default() };
        let lists = |yard: &Fixture| {
            let id = yard.stats().zones().next().unwrap().id;
            (0..4).map(|cpu| yard.zone(id).pcp(CpuId(cpu)).unwrap()).collect::<Vec<_>>()
        };
        let marks = |yard: &Fixture| yard.stats().zones().map(|zone| zone.watermarks).collect::<Vec<_>>();
        let eager = large(sizing, init(InitMode::Eager, PcpReset::On));
        let on = large(sizing, init(InitMode::Deferred, PcpReset::On));
        let off = large(sizing, init(InitMode::Deferred, PcpReset::Off));
        let early = lists(&off);
        assert!(early.iter().zip(lists(&eager)).all(|(early, eager)| early.high < eager.high), "{early:?}");
        assert_eq!(lists(&on), early);
        on.init().finish().unwrap();
        off.init().finish().unwrap();
        assert_eq!(lists(&on), lists(&eager));
        assert_eq!(lists(&off), early, "the memory initialised at creation determines the sizes");
        assert_eq!((marks(&on), marks(&off)), (marks(&eager), marks(&eager)));
        assert_eq!(counts(on.yard()), counts(eager.yard()));
    }
}

/// The frames that the kernel's `defer_init` does not defer, page by page.
fn early_frames(machine: &Machine, yard: &Fixture) -> BTreeSet<u64> {
    let section = machine.geometry.section_pages().0;
    let mut early = BTreeSet::new();
    for node in (0..yard.nodes()).map(NodeId) {
        let node_end = yard.stats().zones().filter(|zone| zone.id.node() == node).map(|zone| zone.span.end).max();
        let Some(node_end) = node_end else { continue };
        for zone in yard.stats().zones().filter(|zone| zone.id.node() == node) {
            let mut initialised = 0;
            let frames = (zone.span.start.0..zone.span.end.0).filter(|pfn| yard.zone_of(Pfn(*pfn)) == Some(zone.id));
            for pfn in frames {
                if zone.span.end == node_end {
                    initialised += 1;
                    if initialised > section && pfn % section == 0 {
                        break;
                    }
                }
                early.insert(pfn);
            }
        }
    }
    early
}

#[test]
fn deferred_yard_starts_with_the_kernels_early_frames() {
    run_on(0);
    let mut awkward = machines().to_vec();
    // Memory that begins right before a section, and memory within one section or just past it.
    for (start, end) in [(0x1ff, 0x700), (0x200, 0x280), (0x200, 0x300), (0x200, 0x301), (0x101, 0x202)] {
        awkward.push(Machine { memory: vec![(frames(start, end), NodeId(0))], cma: Vec::new(), ..machine("holes") });
    }
    for machine in awkward {
        let yard = machine.create_yard(way(InitMode::Deferred));
        let block = machine.geometry.max_order();
        let mut blocks: BTreeSet<Pfn> =
            early_frames(&machine, &yard).into_iter().map(|pfn| Pfn(pfn).align_down(block)).collect();
        for area in &machine.cma {
            blocks.extend((area.start.0..area.end.0).map(|pfn| Pfn(pfn).align_down(block)));
        }
        let mut written = BTreeSet::new();
        for range in yard.watch().written() {
            written.extend((range.start.0..range.end.0).map(|pfn| Pfn(pfn).align_down(block)));
        }
        assert_eq!(written, blocks, "{}", machine.name);
        for (memory, _) in yard.memory_ranges() {
            for pfn in (memory.start.0..memory.end.0).map(Pfn) {
                let initialised = yard.stats().frame(pfn).unwrap().state != FrameState::Uninitialised;
                assert_eq!(initialised, blocks.contains(&pfn.align_down(block)), "{pfn} of {}", machine.name);
            }
        }
    }
}

#[test]
fn aligned_highest_zone_starts_with_one_section() {
    run_on(0);
    let memory = vec![(frames(0x100, 0x900), NodeId(0))];
    let machine = Machine { memory, reserved: Vec::new(), cma: Vec::new(), ..machine("zones") };
    let machine = Machine { movable: frameyard::boot::MovableMemory::None, ..machine };
    let limits = frameyard::units::PhysAddr(ByteSize::kib(4 * 0x300).0);
    let zone_limits = frameyard::boot::ZoneLimits { dma: frameyard::units::PhysAddr(0), dma32: limits };
    let yard = Machine { zone_limits, ..machine }.create_yard(way(InitMode::Deferred));
    assert_eq!(yard.stats().managed_pages(), PageCount(0x200 + 0x100));
    let normal = yard.zone(ZoneId::new(NodeId(0), ZoneKind::Normal)).statistics();
    assert_eq!((normal.present, normal.managed), (PageCount(0x600), PageCount(0x100)));
}
