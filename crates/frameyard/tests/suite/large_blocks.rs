//! Blocks above the maximum order: where they come from, how they are freed, split and joined, and what is refused.

use std::sync::atomic::Ordering;
use std::thread;

use crate::busy_yard::{FIRST, Made, PAGES, ZONE, assert_same_shape, at, geometry, made, memory, shape};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, STORES, run_on};
use crate::movers::{KIND, Movers};
use crate::page_checks::{OWNER, assert_found, overwrite};
use frameyard::alloc::FreeProblem;
use frameyard::boot::{Initialiser, MapInit, PageChecks, Poisoning, ZoneLimits};
use frameyard::contig::BlockedBy;
use frameyard::owners::{Owners, Ownership};
use frameyard::page::{Counts, FrameState, MapContent};
use frameyard::platform::{BadPage, PageProblem};
use frameyard::policy::ZonePolicy;
use frameyard::{
    AllocError, FreeError, Geometry, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig,
};

/// Above the maximum, 8. The yard has four such places.
const LARGE: Order = Order(10);
const SINGLE: Order = Order(0);
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;

fn yard() -> Fixture {
    run_on(0);
    made(&Made::default())
}

fn block(pfn: Pfn, order: Order) -> PfnRange {
    PfnRange::new(pfn, order.pages())
}

fn assert_one_block(yard: &Fixture, pfn: Pfn, order: Order) {
    assert!(pfn.is_aligned(order), "{pfn}");
    for offset in [0, 1, order.pages().0 / 2, order.pages().0 - 1] {
        let info = yard.stats().frame(pfn + PageCount(offset)).expect("memory");
        assert_eq!((info.head, info.order, info.state), (pfn, order, FrameState::Allocated), "{offset}");
    }
    assert!(yard.stats().is_allocated(pfn, order));
    yard.validate().unwrap();
}

/// The problem of a call that is refused, and which changes nothing.
fn refused(yard: &Fixture, call: impl FnOnce() -> Result<(), FreeError>) -> FreeProblem {
    let before = shape(yard);
    let problem = call().expect_err("a bad call").problem;
    assert_same_shape(&before, &shape(yard));
    yard.validate().unwrap();
    problem
}

/// Allocates a frame in each block of that order, and nothing else.
fn scatter(yard: &Fixture, order: Order) -> Vec<Pfn> {
    let places = (0..PAGES >> order.0).map(|place| at(place << order.0, 1));
    places.map(|frame| yard.request(frame, Gfp::KERNEL).frame().unwrap()).collect()
}

#[test]
fn a_large_block_is_allocated_and_freed_as_one() {
    let yard = yard();
    let before = shape(&yard);
    for order in [Order(9), LARGE, Order(11)] {
        for gfp in [Gfp::KERNEL, MOVABLE, Gfp::ATOMIC] {
            let pfn = yard.alloc(order, gfp).unwrap();
            assert_one_block(&yard, pfn, order);
            assert_eq!(yard.stats().frame(pfn).unwrap().migrate_type, gfp.migrate_type().unwrap());
            assert_eq!(yard.zone(ZONE).statistics().free, before.1.free - order.pages());
            yard.free(pfn, order).unwrap();
            assert_same_shape(&before, &shape(&yard));
        }
    }
    let other = yard.request(LARGE, Gfp::KERNEL).node(NodeId(0)).range().unwrap();
    assert_one_block(&yard, other.start, LARGE);
    yard.free_range(other).unwrap();
    let zeroed = yard.alloc(LARGE, Gfp::KERNEL | Gfp::ZERO).unwrap();
    let bytes = yard.frames(SINGLE, Gfp::KERNEL).unwrap();
    drop(bytes);
    yard.free(zeroed, LARGE).unwrap();
}

#[test]
fn a_gibibyte_is_the_largest_block() {
    let memory = [(PfnRange::new(Pfn(1 << 18), PageCount(5 << 17)), NodeId(0))];
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let (gib, max) = (Order(18), Geometry::X86_64.max_order());
    let pair = [(); 2].map(|()| yard.alloc(gib, Gfp::KERNEL).unwrap());
    pair.iter().for_each(|pfn| assert_one_block(&yard, *pfn, gib));
    assert_eq!(pair, [Pfn(1 << 18), Pfn(2 << 18)]);
    // The rest is half a block.
    assert!(matches!(yard.alloc(gib, Gfp::KERNEL), Err(AllocError::OutOfMemory { .. })));
    let above = Order(19);
    assert_eq!(yard.alloc(above, Gfp::KERNEL), Err(AllocError::OrderTooLarge { order: above, max: gib }));
    yard.split_at(pair[0] + PageCount(1 << 17)).unwrap();
    yard.free(pair[0], Order(17)).unwrap();
    yard.free(pair[0] + PageCount(1 << 17), Order(17)).unwrap();
    yard.free(pair[1], gib).unwrap();
    let free = yard.zone(ZONE).free_blocks(max, MigrateType::Movable);
    assert_eq!(free + yard.zone(ZONE).blocks_in_bits(max, MigrateType::Movable), (5 << 17) >> max.0);
}

#[test]
fn a_block_may_lie_behind_a_hole_that_the_map_leaves_out() {
    let memory = [PfnRange::new(Pfn(0x8000), PageCount(0x8000)), PfnRange::new(Pfn(1 << 18), PageCount(3 << 17))];
    let memory = memory.map(|range| (range, NodeId(0)));
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let pfn = yard.alloc(Order(18), Gfp::KERNEL).unwrap();
    assert_one_block(&yard, pfn, Order(18));
    yard.free(pfn, Order(18)).unwrap();
    assert_eq!(yard.free(pfn, Order(18)).unwrap_err().pfn, pfn);
}

#[test]
fn without_owners_a_fragmented_yard_has_no_large_block() {
    let yard = yard();
    let frames = scatter(&yard, LARGE);
    let before = shape(&yard);
    let problem = yard.alloc(LARGE, Gfp::KERNEL).unwrap_err();
    assert!(matches!(problem, AllocError::OutOfMemory { order: LARGE, .. }), "{problem}");
    assert!(yard.request(LARGE, Gfp::KERNEL).owners(&Owners::NONE).frame().is_err());
    assert_same_shape(&before, &shape(&yard));
    // One place is free again.
    yard.free(frames[2], SINGLE).unwrap();
    let pfn = yard.alloc(LARGE, Gfp::KERNEL).unwrap();
    assert_eq!(pfn, frames[2]);
    yard.free(pfn, LARGE).unwrap();
    frames.iter().filter(|pfn| **pfn != frames[2]).for_each(|pfn| yard.free(*pfn, SINGLE).unwrap());
}

#[test]
fn a_request_leaves_the_zone_its_watermark() {
    let yard = yard();
    assert!(yard.alloc(Order(12), Gfp::KERNEL).is_err(), "all memory of the zone");
    let movers = Movers::new(&yard);
    let all = yard.request(Order(12), Gfp::KERNEL).owners(&Owners::NONE.with(KIND, &movers)).frame();
    assert!(matches!(all, Err(AllocError::OutOfMemory { .. })));
    let half = yard.alloc(Order(11), Gfp::KERNEL).unwrap();
    yard.free(half, Order(11)).unwrap();
}

#[test]
fn owners_move_their_blocks_out_of_the_way() {
    let yard = yard();
    let movers = Movers::new(&yard);
    let owners = Owners::NONE.with(KIND, &movers);
    let names: Vec<u64> = std::iter::from_fn(|| movers.take(SINGLE).ok()).collect();
    let (kept, given): (Vec<u64>, Vec<u64>) = names.iter().partition(|name| **name % 16 == 0);
    given.iter().for_each(|name| assert!(movers.give_back(*name)));
    yard.drain_all();
    let request = yard.request(LARGE, Gfp::KERNEL);
    assert!(matches!(request.frame(), Err(AllocError::OutOfMemory { .. })), "each place has a frame in use");
    let no_wait = yard.request(LARGE, Gfp::ATOMIC).owners(&owners).frame();
    assert!(matches!(no_wait, Err(AllocError::OutOfMemory { .. })), "the request may not wait");
    assert_eq!(movers.moved.load(Ordering::Relaxed), 0);
    // Every place is pinned.
    kept.iter().for_each(|name| movers.pin(*name));
    assert!(matches!(request.owners(&owners).frame(), Err(AllocError::OutOfMemory { .. })));
    kept.iter().for_each(|name| movers.unpin(*name));
    yard.validate().unwrap();
    let pfn = request.owners(&owners).frame().unwrap();
    assert_one_block(&yard, pfn, LARGE);
    assert!(movers.moved.load(Ordering::Relaxed) > 0);
    movers.check_all();
    let behind = yard.request(block(pfn, LARGE), Gfp::KERNEL).owners(&owners).range().unwrap_err();
    let AllocError::Blocked(blocker) = behind else { panic!("{behind}") };
    assert_eq!((blocker.pfn, blocker.order, blocker.why), (pfn, LARGE, BlockedBy::Unmovable));
    yard.free(pfn, LARGE).unwrap();
    movers.give_all_back();
}

#[test]
fn bad_frees_change_nothing() {
    let config = YardConfig { geometry: geometry(), zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0)]) };
    let memory = [(memory(), NodeId(0))];
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let pfn = yard.alloc(LARGE, Gfp::KERNEL).unwrap();
    let inside = FreeProblem::InsideBlock { head: pfn, order: LARGE, state: FrameState::Allocated };
    for order in [0, 6, 8, 9, 11, 18, 19, 255].map(Order) {
        let is_misaligned = order <= yard.geometry().largest_order() && !pfn.is_aligned(order);
        let wrong = if is_misaligned { FreeProblem::Misaligned } else { FreeProblem::OtherOrder { allocated: LARGE } };
        assert_eq!(refused(&yard, || yard.free(pfn, order)), wrong, "{order}");
        assert_eq!(refused(&yard, || yard.split(pfn, order)), wrong, "{order}");
        for offset in [1, 64, 256, 512, 1023] {
            assert_eq!(refused(&yard, || yard.free(pfn + PageCount(offset), order)), inside, "{offset}");
        }
    }
    let ownership = Ownership { counts: Counts::default(), owner: 9, index: 0 };
    let counted = refused(&yard, || yard.counted().init_refs(pfn, LARGE, ownership));
    assert_eq!(counted, FreeProblem::OrderTooLarge { max: Order(8) });
    yard.free(pfn, LARGE).unwrap();
    let twice = refused(&yard, || yard.free(pfn, LARGE));
    assert!(matches!(twice, FreeProblem::AlreadyFree(_)), "{twice:?}");
}

#[test]
fn a_large_block_is_freed_in_parts() {
    let yard = yard();
    let before = shape(&yard);
    let pfn = yard.alloc(Order(11), Gfp::KERNEL).unwrap();
    // Parts above and below the maximum order.
    let cut = pfn + PageCount(1024 + 300);
    yard.free_range(PfnRange { start: cut, end: pfn + PageCount(2048) }).unwrap();
    assert_one_block(&yard, pfn, LARGE);
    yard.free(pfn, LARGE).unwrap();
    yard.validate().unwrap();
    let rest = PfnRange { start: pfn + PageCount(1024), end: cut };
    assert_eq!(yard.zone(ZONE).statistics().free, before.1.free - rest.count() - yard.zone(ZONE).statistics().per_cpu);
    yard.free_range(rest).unwrap();
    assert_same_shape(&before, &shape(&yard));
}

#[test]
fn single_frames_of_a_large_block_join_again() {
    let yard = yard();
    let pfn = yard.alloc(LARGE, Gfp::KERNEL | Gfp::ZERO).unwrap();
    yard.split(pfn, LARGE).unwrap();
    yard.validate().unwrap();
    yard.free(pfn + PageCount(5), SINGLE).unwrap();
    let free = refused(&yard, || yard.join(pfn, LARGE));
    assert!(matches!(free, FreeProblem::AlreadyFree(_)), "{free:?}");
    yard.request(PfnRange::new(pfn + PageCount(5), PageCount(1)), Gfp::KERNEL).frame().unwrap();
    // Ordinary orders first, then one of parts of several orders.
    yard.join(pfn, Order(3)).unwrap();
    assert_one_block(&yard, pfn, Order(3));
    yard.join(pfn + PageCount(512), Order(9)).unwrap();
    yard.join(pfn, LARGE).unwrap();
    assert_one_block(&yard, pfn, LARGE);
    yard.join(pfn, LARGE).unwrap();
    yard.free(pfn, LARGE).unwrap();
}

#[test]
fn allocations_of_their_own_join() {
    run_on(0);
    for policy in STORES {
        let yard = made(&Made { policy, ..Made::default() });
        let frames: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(SINGLE, MOVABLE | Gfp::NOWARN).ok()).collect();
        let place = |order: Order| {
            let held = |pfn: Pfn| (0..order.pages().0).all(|offset| frames.contains(&(pfn + PageCount(offset))));
            (0..PAGES >> order.0).map(|at| FIRST + PageCount(at << order.0)).find(|pfn| held(*pfn)).expect("a place")
        };
        let pfn = place(Order(9));
        yard.join(pfn, Order(9)).unwrap();
        assert_one_block(&yard, pfn, Order(9));
        assert_eq!(yard.stats().frame(pfn).unwrap().migrate_type, MigrateType::Movable);
        let joined = block(pfn, Order(9));
        frames.iter().filter(|pfn| !joined.contains(**pfn)).for_each(|pfn| yard.free(*pfn, SINGLE).unwrap());
        yard.free(pfn, Order(9)).unwrap();
    }
}

#[test]
fn the_parts_decide_the_type_of_a_joined_block() {
    let yard = yard();
    let pfn = yard.request(at(0, 512), MOVABLE).frame().unwrap();
    yard.request(at(512, 512), Gfp::KERNEL).frame().unwrap();
    yard.join(pfn, LARGE).unwrap();
    assert_eq!(yard.stats().frame(pfn).unwrap().migrate_type, MigrateType::Unmovable);
    yard.free(pfn, LARGE).unwrap();
}

#[test]
fn a_join_of_what_is_not_all_the_callers_is_refused() {
    let yard = made(&Made { reserved: &[at(2048 + 100, 1)], ..Made::default() });
    let join = |pfn, order| refused(&yard, || yard.join(pfn, order));
    let part = yard.request(at(0, 512), Gfp::KERNEL).frame().unwrap();
    assert_eq!(join(part, Order(19)), FreeProblem::OrderTooLarge { max: Order(18) });
    assert_eq!(join(part + PageCount(64), Order(9)), FreeProblem::Misaligned);
    assert_eq!(join(part, Order(13)), FreeProblem::Misaligned);
    assert!(matches!(join(part, LARGE), FreeProblem::AlreadyFree(_)), "the other half is free");
    assert_eq!(join(part, Order(7)), FreeProblem::PartOfBlock { order: Order(8) });
    let inside = FreeProblem::InsideBlock { head: part, order: Order(8), state: FrameState::Allocated };
    assert_eq!(join(part + PageCount(64), Order(6)), inside);
    // A part is a guard's, or counted.
    let guard = yard.request(at(512, 256), Gfp::KERNEL).guard().unwrap();
    let rest = yard.request(at(768, 256), Gfp::KERNEL).frame().unwrap();
    assert_eq!(join(part, LARGE), FreeProblem::NotAllocated(FrameState::Owned));
    yard.free_range(guard.into_range()).unwrap();
    let counted = yard.request(at(512, 256), MOVABLE).frame().unwrap();
    let counts = Counts { references: 1, mappings: 0 };
    yard.counted().init_refs(counted, Order(8), Ownership { counts, owner: 9, index: 0 }).unwrap();
    assert_eq!(join(part, LARGE), FreeProblem::NotAllocated(FrameState::Counted));
    // SAFETY: the test alone has the block and put its reference.
    unsafe {
        yard.counted().page(counted).unwrap().set_counts(Counts::default());
        yard.counted().free(counted, Order(8)).unwrap();
    }
    yard.free_range(block(part, Order(9))).unwrap();
    yard.free(rest, Order(8)).unwrap();
    // A reserved frame, and memory that ends.
    let before = yard.request(at(2048, 100), Gfp::KERNEL).frame().unwrap();
    assert_eq!(join(before, LARGE), FreeProblem::NotAllocated(FrameState::Reserved));
    yard.free_range(PfnRange::new(before, PageCount(100))).unwrap();
    assert_eq!(join(Pfn(0), LARGE), FreeProblem::OutOfRange);
}

#[test]
fn a_joined_block_ends_with_the_memory_of_its_zone() {
    let memory = [(at(0, 512), NodeId(0)), (at(512, 3584), NodeId(1))];
    let cpus = [NodeId(0), NodeId(1)];
    let config = YardConfig { geometry: geometry(), zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let parts = [at(0, 512), at(512, 512)].map(|range| yard.request(range, Gfp::KERNEL).range().unwrap());
    assert_eq!(yard.join(parts[0].start, LARGE).unwrap_err().problem, FreeProblem::NotOneZone);
    let pfn = yard.request(Order(9), Gfp::KERNEL).exact_node(NodeId(1)).frame().unwrap();
    assert!(pfn >= parts[1].end);
    yard.free(pfn, Order(9)).unwrap();
    parts.into_iter().for_each(|part| yard.free_range(part).unwrap());
}

#[test]
fn a_block_joined_of_two_types_is_unmovable() {
    let yard = yard();
    let (movable, unmovable) = ((MOVABLE, MigrateType::Movable), (Gfp::KERNEL, MigrateType::Unmovable));
    for (first, second) in [(movable, movable), (movable, unmovable), (unmovable, movable), (unmovable, unmovable)] {
        for (range, (gfp, _)) in [(at(0, 512), first), (at(512, 512), second)] {
            yard.request(range, gfp).range().unwrap();
        }
        yard.join(FIRST, LARGE).unwrap();
        let joined = yard.stats().frame(FIRST).unwrap().migrate_type;
        assert_eq!(joined, if first == second { first.1 } else { unmovable.1 });
        yard.free(FIRST, LARGE).unwrap();
    }
}

#[test]
fn only_the_part_with_a_bad_page_goes_out_of_use() {
    for checks in [PageChecks::Transfer, PageChecks::All] {
        let mut yard = checked(Poisoning::Off, checks, Frames::Phantom);
        yard.watch().expect_damage();
        let pfn = yard.alloc(LARGE, MOVABLE).unwrap();
        yard.free(pfn, LARGE).unwrap();
        let bad = pfn + PageCount(300);
        overwrite(&yard, bad, OWNER, |_| 9);
        let other = yard.alloc(LARGE, MOVABLE).unwrap();
        assert_ne!(other, pfn);
        let problem = PageProblem::Words;
        assert_found(&mut yard, BadPage { pfn: bad, problem }, pfn + PageCount(256), Order(8));
        yard.free(other, LARGE).unwrap();
        for good in [PfnRange::new(pfn, PageCount(256)), PfnRange::new(pfn + PageCount(512), PageCount(512))] {
            yard.request(good, MOVABLE).range().unwrap();
            yard.free_range(good).unwrap();
        }
    }
}

#[test]
fn a_guard_owns_a_large_block() {
    let yard = yard();
    let before = shape(&yard);
    let guard = yard.frames(LARGE, Gfp::KERNEL).unwrap();
    let pfn = guard.pfn();
    assert_eq!(guard.range(), block(pfn, LARGE));
    assert!(yard.free(pfn, LARGE).is_err());
    drop(guard);
    assert_same_shape(&before, &shape(&yard));
    let range = yard.request(LARGE, MOVABLE).guard().unwrap().into_range();
    yard.validate().unwrap();
    yard.join(range.start, LARGE).unwrap();
    assert_one_block(&yard, range.start, LARGE);
    yard.offline(block(range.start, LARGE), &Owners::NONE).unwrap_err();
    yard.free(range.start, LARGE).unwrap();
}

#[test]
fn areas_serve_movable_large_blocks_only() {
    let yard = made(&Made { cma: &[at(0, 2048)], ..Made::default() });
    let held = yard.alloc(Order(11), Gfp::KERNEL);
    assert!(held.is_err() || held.is_ok_and(|pfn| pfn == FIRST + PageCount(2048)));
    held.iter().for_each(|pfn| yard.free(*pfn, Order(11)).unwrap());
    let block = yard.alloc(LARGE, Gfp::KERNEL).unwrap();
    assert_eq!(block, FIRST + PageCount(2048));
    let movable = yard.alloc(LARGE, MOVABLE).unwrap();
    assert_eq!(movable, FIRST);
    yard.validate().unwrap();
    yard.free(block, LARGE).unwrap();
    yard.free(movable, LARGE).unwrap();
    assert_eq!(shape(&yard).1.free_cma, PageCount(2048));
}

fn checked(poisoning: Poisoning, checks: PageChecks, frames: Frames) -> Fixture {
    let config = YardConfig {
        geometry: geometry(),
        zone_limits: ZoneLimits::NONE,
        poisoning,
        checks,
        map_init: MapInit { content: MapContent::Kernel, initialiser: Initialiser::Stream, ..MapInit::default() },
        ..YardConfig::new(&[NodeId(0)])
    };
    let memory = [(memory(), NodeId(0))];
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, frames)
}

#[test]
fn poisoned_and_checked_yards_have_large_blocks() {
    for (poisoning, checks) in [(Poisoning::On, PageChecks::None), (Poisoning::Off, PageChecks::All)] {
        let yard = checked(poisoning, checks, Frames::Real);
        for _ in 0..3 {
            let pfn = yard.alloc(LARGE, MOVABLE).unwrap();
            assert_one_block(&yard, pfn, LARGE);
            yard.split(pfn, LARGE).unwrap();
            yard.join(pfn, LARGE).unwrap();
            yard.free(pfn, LARGE).unwrap();
        }
        assert_eq!((yard.stats().poison_hits(), yard.watch().bad_pages().len()), (0, 0));
    }
}

#[test]
fn every_policy_gives_its_frames_up_for_a_large_block() {
    run_on(0);
    for policy in ZonePolicy::ALL {
        let yard = made(&Made { policy, ..Made::default() });
        let mut random = Random::new(5);
        for _ in 0..3 {
            let mut frames: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(SINGLE, MOVABLE | Gfp::NOWARN).ok()).collect();
            while !frames.is_empty() {
                run_on(random.below(4) as u32);
                yard.free(frames.swap_remove(random.below(frames.len() as u64) as usize), SINGLE).unwrap();
            }
            let pfn = yard.alloc(Order(11), Gfp::KERNEL).unwrap_or_else(|problem| panic!("{policy}: {problem}"));
            assert_one_block(&yard, pfn, Order(11));
            yard.free(pfn, Order(11)).unwrap();
        }
    }
}

#[test]
fn threads_use_large_blocks_and_single_frames_together() {
    let yard = yard();
    let got: u32 = thread::scope(|scope| {
        let large = |cpu: u32| {
            let yard = &yard;
            scope.spawn(move || {
                run_on(cpu);
                let mut got = 0;
                for round in 0..400 {
                    let Ok(pfn) = yard.alloc(LARGE, Gfp::KERNEL | Gfp::NOWARN) else { continue };
                    got += 1;
                    match round % 3 {
                        0 => yard.free(pfn, LARGE).unwrap(),
                        1 => {
                            yard.split_at(pfn + PageCount(300)).unwrap();
                            yard.join(pfn, LARGE).unwrap();
                            yard.free(pfn, LARGE).unwrap();
                        }
                        _ => {
                            yard.split_at(pfn + PageCount(700)).unwrap();
                            yard.free_range(block(pfn, LARGE)).unwrap();
                        }
                    }
                }
                got
            })
        };
        let threads = [large(0), large(1)];
        for cpu in [2, 3] {
            let yard = &yard;
            scope.spawn(move || {
                run_on(cpu);
                let mut random = Random::new(cpu.into());
                let mut held = Vec::new();
                for _ in 0..40_000 {
                    if held.len() < 200 && random.below(2) == 0 {
                        held.extend(yard.alloc(SINGLE, MOVABLE));
                    } else if !held.is_empty() {
                        yard.free(held.swap_remove(random.below(held.len() as u64) as usize), SINGLE).unwrap();
                    }
                }
                held.into_iter().for_each(|pfn| yard.free(pfn, SINGLE).unwrap());
            });
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(got > 0, "no large block was allocated");
    yard.validate().unwrap();
}

/// Random allocations, frees, splits and joins against a list of the blocks held.
#[test]
fn random_splits_and_joins_keep_the_blocks_held() {
    let yard = yard();
    let mut random = Random::new(21);
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    for round in 0..6_000 {
        let pick = random.below(held.len().max(1) as u64) as usize;
        match random.below(6) {
            0 | 1 => {
                let order = Order(random.below(12) as u8);
                held.extend(yard.alloc(order, Gfp::KERNEL | Gfp::NOWARN).ok().map(|pfn| (pfn, order)));
            }
            _ if held.is_empty() => {}
            2 => {
                let (pfn, order) = held.swap_remove(pick);
                yard.free(pfn, order).unwrap();
            }
            3 => {
                let (pfn, order) = held.swap_remove(pick);
                let cut = pfn + PageCount(random.below(order.pages().0));
                yard.split_at(cut).unwrap();
                let parts = [PfnRange { start: pfn, end: cut }, PfnRange { start: cut, end: pfn + order.pages() }];
                for mut part in parts {
                    while let Some(order) = part.first_block(geometry().largest_order()) {
                        held.push((part.start, order));
                        part.start = part.start + order.pages();
                    }
                }
            }
            _ => {
                let (pfn, order) = held[pick];
                let larger = Order(order.0 + 1 + random.below(3) as u8);
                let whole = block(pfn.align_down(larger), larger);
                let (inside, outside): (Vec<_>, Vec<_>) = held
                    .iter()
                    .partition(|(pfn, order)| whole.contains(*pfn) && pfn.0 + order.pages().0 <= whole.end.0);
                let pages: u64 = inside.iter().map(|(_, order)| order.pages().0).sum();
                let joined = yard.join(whole.start, larger);
                assert_eq!(joined.is_ok(), pages == whole.count().0, "{whole}: {joined:?}");
                if joined.is_ok() {
                    held = outside;
                    held.push((whole.start, larger));
                }
            }
        }
        if round % 64 == 0 {
            yard.validate().unwrap();
            held.iter().for_each(|(pfn, order)| assert!(yard.stats().is_allocated(*pfn, *order), "{pfn}, {order}"));
        }
    }
    held.into_iter().for_each(|(pfn, order)| yard.free(pfn, order).unwrap());
}
