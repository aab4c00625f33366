//! Growth: allocations initialise only the deferred memory that they need.

use std::collections::BTreeSet;

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, STORES, order, run_on};
use crate::maps::{LATE, Machine, frames, give_back, listed, machine, machines, plain, take_everything, way};
use frameyard::AllocError;
use frameyard::alloc::FreeProblem;
use frameyard::boot::{InitError, InitMode, MapInit, Poisoning, ZoneLimits};
use frameyard::page::FrameState;
use frameyard::policy::ZonePolicy;
use frameyard::stats::FrameInfo;
use frameyard::watermarks::{PcpSizing, WatermarkOptions};
use frameyard::{
    ByteSize, CpuId, Geometry, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig,
};

/// One zone with holes and reserved frames.
fn one_zone() -> Machine {
    machine("holes")
}

#[test]
fn growth_initialises_one_section_when_empty() {
    run_on(0);
    for mode in LATE {
        for machine in [one_zone(), plain()] {
            let yard = machine.create_yard(way(mode));
            let section = machine.geometry.section_pages();
            let (mut taken, mut seen) = (Vec::new(), yard.watch().written().len());
            loop {
                let before = listed(&yard);
                let Ok(pfn) = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) else { break };
                let written = yard.watch().written();
                if written.len() > seen {
                    assert_eq!(before, 0, "{mode}: {before} frames were still free");
                    let starts: BTreeSet<u64> = written[seen..].iter().map(|range| range.start.0 / section.0).collect();
                    let free = |start: &&u64| {
                        let frames = PfnRange::new(Pfn(**start * section.0), section);
                        (frames.start.0..frames.end.0).any(|pfn| {
                            yard.stats().frame(Pfn(pfn)).is_some_and(|info| {
                                matches!(info.state, FrameState::BuddyFree | FrameState::PerCpu | FrameState::Allocated)
                            })
                        })
                    };
                    assert_eq!(starts.iter().filter(free).count(), 1, "{mode}: {written:?}");
                    seen = written.len();
                }
                assert!(written.iter().any(|range| range.contains(pfn)), "{pfn} is not initialised");
                taken.push(pfn);
            }
            assert_eq!(taken.len() as u64, yard.stats().managed_pages().0);
            assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), taken.len(), "a frame was allocated twice");
            give_back(&yard, &taken);
        }
    }
}

#[test]
fn one_frame_costs_one_section() {
    run_on(0);
    let yard = plain().create_yard(way(InitMode::Lazy));
    for at in [Order::ZERO, order(5), order(2)] {
        let pfn = yard.alloc(at, Gfp::KERNEL).unwrap();
        assert_eq!(yard.watch().written(), [frames(0x800, 0x900)]);
        yard.free(pfn, at).unwrap();
    }
}

#[test]
fn fallback_before_growth_takes_whole_blocks_only() {
    run_on(0);
    let kinds = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL | Gfp::RECLAIMABLE, Gfp::ATOMIC, Gfp::NOWAIT];
    for (seed, mode) in (1..40).flat_map(|seed| LATE.map(|mode| (seed, mode))) {
        let machine = if seed % 2 == 0 { one_zone() } else { plain() }.with_free_lists();
        let yard = machine.create_yard(way(mode));
        yard.lists().resize(PcpSizing::Fixed(if seed % 3 == 0 { 0 } else { 8 }));
        let mut random = Random::new(seed);
        let mut held: Vec<(Pfn, Order)> = Vec::new();
        let blocks = machine.geometry.max_order().pages().0 / machine.geometry.pageblock_order().pages().0;
        while yard.init().deferred_pages().0 > 0 {
            let before = yard.stats().zones().next().unwrap();
            let deferred = yard.init().deferred_pages();
            let (at, gfp) = (order(random.pick(&[0, 0, 0, 0, 1, 1, 2, 3, 4, 5])), random.pick(&kinds));
            if random.below(4) == 0 && !held.is_empty() {
                let (pfn, at) = held.swap_remove(random.below(held.len() as u64) as usize);
                yard.free(pfn, at).unwrap();
            } else if let Ok(pfn) = yard.alloc(at, gfp | Gfp::NOWARN) {
                held.push((pfn, at));
            }
            let after = yard.stats().zones().next().unwrap();
            let left = yard.init().deferred_pages();
            // A remainder below a section may have no whole block, so the allocation takes another type's block.
            if left > machine.geometry.section_pages() {
                let stolen = after.fallbacks - before.fallbacks;
                let converted = after.conversions - before.conversions;
                assert_eq!(converted, stolen * blocks, "{at}, {gfp}, {mode}: {deferred} to {left}");
            }
        }
        yard.validate().unwrap();
        for (pfn, at) in held {
            yard.free(pfn, at).unwrap();
        }
    }
}

#[test]
fn growth_exhausts_a_node_first() {
    run_on(0);
    for mode in LATE {
        let memory = vec![(frames(0x105, 0x7f0), NodeId(0)), (frames(0x7f0, 0xf00), NodeId(1))];
        let yard = Machine { memory, reserved: Vec::new(), ..one_zone() }.create_yard(way(mode));
        let mut taken = Vec::new();
        while let Ok(pfn) = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) {
            taken.push(pfn);
        }
        assert_eq!(taken.len(), 0xf00 - 0x105);
        let remote = taken.iter().position(|pfn| pfn.0 >= 0x7f0).unwrap();
        // Local frames first, down to the low watermark. The rest is the last resort.
        let kept = yard.stats().zones().next().unwrap().watermarks.low.0 as usize;
        assert!((0x7f0 - 0x105 - kept..=0x7f0 - 0x105).contains(&remote), "{mode}: {remote}, {kept} kept");
        give_back(&yard, &taken);
    }
}

#[test]
fn usable_memory_does_not_depend_on_init_mode() {
    // The least that a list fetches, in frames: a word of bits.
    for (policy, least) in [(ZonePolicy::Vanilla, 0), (ZonePolicy::Bits, 64)] {
        usable_memory_under(policy, least);
    }
}

fn usable_memory_under(policy: ZonePolicy, least: usize) {
    run_on(0);
    let machine = Machine { memory: vec![(frames(0x1003, 0x4f05), NodeId(0))], ..one_zone() };
    for gfp in [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC, Gfp::NOWAIT] {
        for at in [0, 3, 5].map(order) {
            let mut batch = least >> at.0;
            let had = InitMode::ALL.iter().map(|mode| {
                let config =
                    YardConfig { watermarks: WatermarkOptions::default(), policy, ..machine.config(way(*mode)) };
                let yard = Fixture::new(&machine.table(), &config, Frames::Phantom);
                let blocks: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(at, gfp | Gfp::NOWARN).ok()).collect();
                yard.validate().unwrap();
                let minimum = yard.stats().zones().next().unwrap().watermarks.min;
                let id = yard.stats().zones().next().unwrap().id;
                batch = batch.max(yard.zone(id).pcp(CpuId(0)).unwrap().batch.0 as usize);
                for pfn in &blocks {
                    yard.free(*pfn, at).unwrap();
                }
                (*mode, minimum, blocks.len())
            });
            let had: Vec<_> = had.collect();
            let [(_, minimum, eager), (_, _, deferred), (_, late_minimum, lazy)] = had[..] else { panic!("{had:?}") };
            assert!(minimum.0 > 0 && minimum == late_minimum);
            // The last batch that a list fetches may reach below the watermark.
            assert!(eager.abs_diff(lazy) <= batch, "{gfp}, {at}: {had:?}");
            // The watermarks of the deferred yard are those of the memory initialised at creation.
            assert!(deferred + batch >= eager, "{gfp}, {at}: {had:?}");
        }
    }
}

#[test]
fn bulk_allocation_grows_several_sections() {
    run_on(0);
    for mode in LATE {
        for machine in machines() {
            let yard = machine.create_yard(way(mode));
            let mut taken = Vec::new();
            let mut some = [Pfn(0); 301];
            while let Ok(count) = yard.alloc_bulk(Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN, &mut some) {
                taken.extend_from_slice(&some[..count]);
                yard.validate().unwrap();
            }
            let distinct: BTreeSet<Pfn> = taken.iter().copied().collect();
            assert_eq!(distinct.len(), taken.len());
            // The bulk request may not use the reserves of lower zones. Requests for each zone reach them.
            take_everything(&yard, |pfn| taken.push(pfn));
            assert_eq!(taken.len() as u64, yard.stats().managed_pages().0, "{}", machine.name);
            assert_eq!(yard.init().deferred_pages(), PageCount(0));
            give_back(&yard, &taken);
        }
    }
}

#[test]
fn counts_are_served_from_deferred_memory() {
    run_on(0);
    for mode in LATE {
        let yard = plain().create_yard(way(mode));
        let mut ranges = Vec::new();
        for count in [1, 3, 17, 31, 32, 5].map(PageCount).into_iter().cycle() {
            let Ok(range) = yard.request(count, Gfp::KERNEL | Gfp::NOWARN).range() else { break };
            assert_eq!(range.count(), count);
            ranges.push(range);
        }
        assert_eq!(yard.init().deferred_pages(), PageCount(0), "{mode}");
        yard.validate().unwrap();
        for range in ranges {
            yard.free_range(range).unwrap();
        }
    }
}

#[test]
fn single_ranges_are_initialised_block_by_block() {
    run_on(0);
    for mode in LATE {
        let yard = plain().create_yard(way(mode));
        let before = yard.watch().pages();
        let range = frames(0xde5, 0xe03);
        let taken = yard.request(range, Gfp::KERNEL).range().unwrap();
        assert_eq!((taken, yard.watch().pages() - before), (range, 0x40), "{mode}: the blocks that overlap the range");
        yard.validate().unwrap();
        assert!(matches!(yard.request(frames(0xde0, 0xdf0), Gfp::KERNEL).range(), Err(AllocError::InUse { .. })));
        {
            let mut owned = yard.request(frames(0xf21, 0xfff), Gfp::HIGHUSER_MOVABLE).guard().unwrap();
            assert_eq!(owned.count(), PageCount(0xde));
            assert!(owned.bytes_mut().is_none());
            yard.validate().unwrap();
        }
        // A request that needs the rest of a partly initialised block completes it.
        let mut all = Vec::new();
        take_everything(&yard, |pfn| all.push(pfn));
        assert_eq!(all.len() as u64 + range.count().0, 0x800);
        assert_eq!(yard.watch().pages(), 0x800, "{mode}");
        give_back(&yard, &all);
        yard.free_range(taken).unwrap();
    }
}

#[test]
fn ranges_over_holes_and_reserved_frames() {
    run_on(0);
    for mode in LATE {
        let yard = one_zone().create_yard(way(mode));
        let refused = |range| yard.request(range, Gfp::KERNEL).range().unwrap_err();
        assert_eq!(refused(frames(0x570, 0x580)), AllocError::NotOneZone(frames(0x570, 0x580)));
        let reserved = refused(frames(0xaa0, 0xab0));
        let expected = AllocError::InUse { head: Pfn(0xaaa), order: Order::ZERO, state: FrameState::Reserved };
        assert_eq!(reserved, expected, "{mode}");
        let across = yard.request(frames(0x4f1, 0x51f), Gfp::KERNEL).range().unwrap();
        yard.validate().unwrap();
        yard.free_range(across).unwrap();
    }
}

#[test]
fn uninitialised_frames_are_reported_as_such() {
    run_on(0);
    let yard = one_zone().create_yard(way(InitMode::Lazy));
    let written = yard.watch().pages();
    let zones: Vec<_> = yard.stats().zones().collect();
    let uninitialised = FrameState::Uninitialised;
    for pfn in [0x106, 0x15f, 0x171, 0x300, 0x572, 0x805, 0xc80].map(Pfn) {
        let info =
            FrameInfo { head: pfn, state: uninitialised, order: Order::ZERO, migrate_type: MigrateType::Movable };
        assert_eq!(yard.stats().frame(pfn), Some(info), "{pfn}");
        for at in [0, 1, 5, 200].map(order) {
            assert_eq!(yard.free(pfn, at).unwrap_err().problem, FreeProblem::NotAllocated(uninitialised));
            assert_eq!(yard.split(pfn, at).unwrap_err().problem, FreeProblem::NotAllocated(uninitialised));
        }
        let range = PfnRange::new(pfn, PageCount(1));
        assert_eq!(yard.free_range(range).unwrap_err().problem, FreeProblem::NotAllocated(uninitialised));
    }
    for hole in [0x100, 0x160, 0x170, 0x900, 0xdfe].map(Pfn) {
        assert_eq!(yard.stats().frame(hole), None, "{hole}");
        assert_eq!(yard.free(hole, Order::ZERO).unwrap_err().problem, FreeProblem::Hole);
    }
    assert_eq!(yard.free(Pfn(0xe00), Order::ZERO).unwrap_err().problem, FreeProblem::OutOfRange);
    assert_eq!((yard.watch().pages(), yard.stats().zones().collect::<Vec<_>>()), (written, zones));
    assert_eq!(yard.stats().failures(), 0);
}

#[test]
fn a_caller_can_initialise_any_range() {
    run_on(0);
    for mode in LATE {
        let machine = Machine { memory: vec![(frames(0x605, 0xe00), NodeId(0))], ..one_zone() };
        let yard = machine.create_yard(way(mode));
        let before = yard.init().deferred_pages();
        // Initialising one frame initialises its block.
        assert_eq!(yard.init().range(frames(0xc05, 0xc06)), Ok(PageCount(0x20)));
        assert_eq!(yard.init().range(frames(0xd01, 0xd45)), Ok(PageCount(0x60)));
        assert_eq!(yard.init().deferred_pages() + PageCount(0x80), before);
        let again = yard.init().range(frames(0xd00, 0xe00)).unwrap_err();
        assert_eq!(again, InitError::AlreadyInitialised(frames(0xd00, 0xd20)));
        let again = yard.init().range(frames(0xcf0, 0xd10)).unwrap_err();
        assert_eq!(again, InitError::AlreadyInitialised(frames(0xd00, 0xd20)), "{mode}");
        assert_eq!(yard.init().range(frames(0xce0, 0xd00)), Ok(PageCount(0x1f)), "one of them is reserved");
        yard.validate().unwrap();
        let map = yard.frame_range();
        for outside in [frames(0xdff, 0xe01), frames(0, 1), frames(0xf00, 0xf01), frames(7, 7), frames(9, 3)] {
            assert_eq!(yard.init().range(outside), Err(InitError::OutsideMap(outside)), "{map}");
        }
        yard.init().finish().unwrap();
        assert_eq!(yard.init().next_section(NodeId(0)), Ok(None));
        for node in [7, u16::MAX / 2, u16::MAX].map(NodeId) {
            assert_eq!(yard.init().next_section(node), Ok(None), "{node}");
        }
    }
}

#[test]
fn sections_without_memory_cannot_be_initialised() {
    run_on(0);
    let yard = one_zone().create_yard(way(InitMode::Lazy));
    assert_eq!(yard.init().range(frames(0x700, 0x701)), Err(InitError::OutsideMap(frames(0x700, 0x800))));
    assert_eq!(yard.init().range(frames(0x5f0, 0x900)), Err(InitError::OutsideMap(frames(0x600, 0x700))));
    assert_eq!(yard.init().deferred_pages(), yard.stats().managed_pages());
    assert_eq!(yard.init().range(frames(0x5e0, 0x600)), Ok(PageCount(0)), "a hole in a section with memory");
}

#[test]
fn idle_worker_initialises_all_sections() {
    run_on(0);
    let yard = plain().create_yard(way(InitMode::Lazy));
    for left in (0..8).rev() {
        assert_eq!(yard.init().next_section(NodeId(0)), Ok(Some(PageCount(left * 0x100))));
    }
    assert_eq!(yard.init().next_section(NodeId(0)), Ok(None));
    assert_eq!(yard.watch().pages(), 0x800);
}

#[test]
fn initialisation_poisons_free_frames() {
    run_on(0);
    let machine = Machine { memory: vec![(frames(0x805, 0xd02), NodeId(0))], ..one_zone() };
    for mode in InitMode::ALL {
        let config = YardConfig { poisoning: Poisoning::On, ..machine.config(way(mode)) };
        let yard = Fixture::new(&machine.table(), &config, Frames::Real);
        let byte = |pfn: Pfn| first_byte(&yard, pfn);
        let range = yard.request(frames(0xb05, 0xb15), Gfp::KERNEL).range().unwrap();
        assert_eq!(byte(range.start), 0xaa);
        yard.free_range(range).unwrap();
        let zeroed = yard.alloc(order(3), Gfp::KERNEL | Gfp::ZERO).unwrap();
        assert_eq!(byte(zeroed + PageCount(7)), 0);
        yard.free(zeroed, order(3)).unwrap();
        let mut taken = Vec::new();
        take_everything(&yard, |pfn| taken.push(pfn));
        assert!(taken.iter().all(|pfn| byte(*pfn) == 0xaa), "{mode}");
        assert_eq!(taken.len() as u64, yard.stats().managed_pages().0);
        give_back(&yard, &taken);
        yard.init().finish().unwrap();
        assert_eq!(yard.stats().poison_hits(), 0);
    }
}

/// The first byte of a frame that this thread holds.
fn first_byte(yard: &Fixture, pfn: Pfn) -> u8 {
    use frameyard::Platform;
    let byte = yard.platform().frame_bytes(pfn).expect("a frame with memory");
    // SAFETY: the fixture maps all frames, and no other thread uses the yard.
    unsafe { byte.read() }
}

#[test]
fn poisoning_detects_damage_after_initialisation() {
    run_on(0);
    let machine = plain();
    let config = YardConfig { poisoning: Poisoning::On, ..machine.config(way(InitMode::Lazy)) };
    let mut yard = Fixture::new(&machine.table(), &config, Frames::Real);
    yard.init().range(frames(0x900, 0x920)).unwrap();
    let byte = frameyard::Platform::frame_bytes(yard.platform(), Pfn(0x911)).unwrap();
    // SAFETY: the fixture maps all frames. The frame is free, and the write is the damage that the test needs.
    unsafe { byte.write(1) };
    let refused = yard.request(frames(0x910, 0x912), Gfp::KERNEL).range().unwrap_err();
    assert!(matches!(refused, AllocError::Poisoned { pfn: Pfn(0x911), .. }), "{refused}");
    yard.keep(PageCount(2));
}

#[test]
fn only_the_creator_finishes_initialisation() {
    run_on(0);
    for machine in machines() {
        for mode in LATE {
            let yard = machine.create_yard(way(mode));
            let other = yard.attach();
            assert_eq!(other.init().mode(), mode);
            assert_eq!(other.init().finish(), Err(InitError::NotTheCreator));
            let mut taken = Vec::new();
            take_everything(&other, |pfn| taken.push(pfn));
            assert_eq!(taken.len() as u64, yard.stats().managed_pages().0, "{}", machine.name);
            other.validate().unwrap();
            yard.validate().unwrap();
            give_back(&yard, &taken);
            other.validate().unwrap();
            yard.init().finish().unwrap();
        }
    }
}

#[test]
fn growth_finds_distant_maximum_order_blocks() {
    run_on(0);
    for mode in LATE {
        // Only one block is free of reserved frames. It lies in the last section but one.
        let reserved = (0x800..0x1000).step_by(0x20).filter(|pfn| *pfn != 0xe40).map(|pfn| frames(pfn, pfn + 1));
        let yard = Machine { reserved: reserved.collect(), ..plain() }.create_yard(way(mode));
        let pfn = yard.alloc(order(5), Gfp::KERNEL).unwrap();
        assert_eq!(pfn, Pfn(0xe40));
        assert!(yard.alloc(order(5), Gfp::KERNEL).is_err());
        yard.free(pfn, order(5)).unwrap();
        yard.validate().unwrap();
    }
}

#[test]
fn allocation_in_huge_memory_initialises_one_section() {
    run_on(0);
    // 64 GiB of frames need 1 GiB of map. The test must not fault it in.
    let memory = [(frames(0x10_0000, 0x110_0000), NodeId(0))];
    let cpus = [NodeId(0)];
    let map_init = MapInit { mode: InitMode::Lazy, ..MapInit::default() };
    let config = YardConfig { map_init, zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let layout = frameyard::Layout::plan(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config).unwrap();
    assert_eq!(layout.map_bytes(), ByteSize::gib(1));
    let yard = Fixture::watched(
        &MemoryTable { memory: &memory, ..MemoryTable::default() },
        &config,
        Frames::Phantom,
        Default::default(),
    )
    .unwrap();
    let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    assert_eq!(yard.watch().written(), [frames(0x10_0000, 0x10_8000)]);
    yard.free(pfn, Order::ZERO).unwrap();
}

#[test]
fn fragmented_deferred_memory_serves_no_large_block() {
    run_on(0);
    // Every second frame is reserved.
    let reserved = (0x800..0x1000).step_by(2).map(|pfn| frames(pfn, pfn + 1)).collect();
    let yard = Machine { reserved, ..plain() }.create_yard(way(InitMode::Lazy));
    let locked = || yard.stats().zones().map(|zone| zone.lock.acquisitions).sum::<u64>();
    let before = locked();
    for at in [1, 3, 5].map(order) {
        assert!(yard.alloc(at, Gfp::NOWAIT).is_err());
    }
    assert_eq!((locked(), yard.watch().pages()), (before, 0), "the failed requests lock and initialise nothing");
    let pfn = yard.alloc(Order::ZERO, Gfp::NOWAIT).unwrap();
    yard.free(pfn, Order::ZERO).unwrap();
}

#[test]
fn a_request_of_any_type_and_order_finds_memory_that_is_not_initialised() {
    run_on(0);
    let section = Geometry::X86_64.section_pages();
    let memory = [(PfnRange::new(Pfn(0x10_0000), PageCount(8 * section.0)), NodeId(0))];
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let cpus = [NodeId(0)];
    for policy in STORES {
        for of_type in [Gfp::KERNEL, Gfp::KERNEL | Gfp::RECLAIMABLE, Gfp::HIGHUSER_MOVABLE] {
            for at in (0..=10).map(order) {
                let map_init = MapInit { mode: InitMode::Lazy, ..MapInit::default() };
                let config = YardConfig { zone_limits: ZoneLimits::NONE, map_init, policy, ..YardConfig::new(&cpus) };
                let yard = Fixture::new(&table, &config, Frames::Phantom);
                let all = yard.init().deferred_pages();
                let pfn = yard.alloc(at, of_type | Gfp::NORETRY).unwrap_or_else(|error| panic!("{policy}: {error}"));
                let initialised = all - yard.init().deferred_pages();
                assert!(initialised <= section, "{policy}, {of_type}, {at}: {initialised}");
                yard.free(pfn, at).unwrap();
                yard.validate().unwrap();
            }
        }
    }
}
