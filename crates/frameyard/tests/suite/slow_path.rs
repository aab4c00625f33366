//! Allocation with owners to ask: compaction and reclaim for requests that find no block.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, order, run_on};
use crate::mover::{Faults, Mover};
use frameyard::boot::ZoneLimits;
use frameyard::compaction::{CompactEffort, CompactRequest};
use frameyard::owners::{Owners, ReclaimRequest, Reclaimer};
use frameyard::stats::CompactEvent;
use frameyard::units::ZoneKind;
use frameyard::{AllocError, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId};

const ZONE: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const HUGE: Order = Order(9);

fn fill(yard: &Fixture, mover: &Mover<'_>) -> Vec<u64> {
    let mut slots = Vec::new();
    while let Ok(pfn) = yard.alloc(Order::ZERO, MOVABLE | Gfp::NOWARN) {
        slots.push((pfn, mover.own(pfn, Order::ZERO)));
    }
    slots.sort();
    slots.into_iter().map(|(_, slot)| slot).collect()
}

/// A yard in which every other frame is in use.
fn fragment(yard: &Fixture, mover: &Mover<'_>) {
    fill(yard, mover).into_iter().step_by(2).for_each(|slot| mover.free(slot));
    yard.drain_all();
}

/// Releases slots on request, the newest first, and records the requests.
struct Giver<'m, 'y> {
    mover: &'m Mover<'y>,
    slots: Mutex<Vec<u64>>,
    asked: Mutex<Vec<ReclaimRequest>>,
}

impl Reclaimer for Giver<'_, '_> {
    fn reclaim(&self, request: ReclaimRequest) -> PageCount {
        self.asked.lock().unwrap().push(request);
        let mut slots = self.slots.lock().unwrap();
        let rest = slots.len().saturating_sub(request.wanted.0 as usize);
        let given = slots.split_off(rest);
        given.iter().for_each(|slot| self.mover.free(*slot));
        PageCount(given.len() as u64)
    }
}

/// Says that it frees frames, and never does.
#[derive(Default)]
struct Braggart(AtomicU64);

impl Reclaimer for Braggart {
    fn reclaim(&self, request: ReclaimRequest) -> PageCount {
        self.0.fetch_add(1, Ordering::Relaxed);
        request.wanted
    }
}

#[track_caller]
fn assert_out_of_memory(answer: Result<Pfn, AllocError>, order: Order, gfp: Gfp) {
    let Err(AllocError::OutOfMemory { order: failed, gfp: flags, node: NodeId(0), .. }) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((failed, flags), (order, gfp));
}

#[test]
fn compaction_serves_huge_requests() {
    let yard = Fixture::small(1, 1 << 14);
    let mover = Mover::new(&yard);
    fragment(&yard, &mover);
    assert!(yard.alloc(HUGE, MOVABLE | Gfp::NOWARN).is_err(), "not without compaction");
    let huge = yard.request(HUGE, MOVABLE).owners(&mover.owners()).frame().expect("a block made by compaction");
    let statistics = yard.zone(ZONE).compaction();
    assert_eq!(
        (
            statistics.count(CompactEvent::Stall),
            statistics.count(CompactEvent::Success),
            statistics.count(CompactEvent::Fail)
        ),
        (1, 1, 0)
    );
    let moves = mover.moves.load(Ordering::Relaxed);
    assert!(moves > 0);
    assert_eq!(yard.stats().failures(), 0);
    assert_eq!((statistics.count(CompactEvent::Migrated), yard.stats().reclaim_stalls(ZoneKind::Movable)), (moves, 0));
    assert!(
        statistics.count(CompactEvent::Isolated) >= 2 * moves && statistics.count(CompactEvent::MigrateScanned) > moves
    );
    yard.validate().unwrap();
    mover.check_all();
    yard.free(huge, HUGE).unwrap();
    mover.free_all();
}

#[test]
fn a_request_that_must_not_wait_moves_nothing() {
    let yard = Fixture::small(1, 1 << 14);
    let mover = Mover::new(&yard);
    fragment(&yard, &mover);
    let gfp = Gfp::MOVABLE;
    let refused = yard.request(HUGE, gfp).owners(&mover.owners()).frame();
    assert_out_of_memory(refused, HUGE, gfp);
    assert_eq!((mover.moves.load(Ordering::Relaxed), yard.stats().failures()), (0, 1));
    assert_eq!(yard.zone(ZONE).compaction().count(CompactEvent::Stall), 0);
    mover.free_all();
}

#[test]
fn impossible_requests_are_refused() {
    let yard = Fixture::small(1, 1 << 12);
    let too_large = yard.request(order(19), MOVABLE).owners(&Owners::NONE).frame();
    assert_eq!(too_large, Err(AllocError::OrderTooLarge { order: order(19), max: order(18) }));
    let bad = Gfp::MOVABLE | Gfp::RECLAIMABLE;
    assert!(matches!(yard.request(HUGE, bad).owners(&Owners::NONE).frame(), Err(AllocError::BadFlags(_))));
    assert_eq!(
        yard.request(HUGE, MOVABLE).node(NodeId(3)).owners(&Owners::NONE).frame(),
        Err(AllocError::NoSuchNode(NodeId(3)))
    );
}

#[test]
fn single_frames_come_from_reclaim() {
    let yard = Fixture::small(1, 1 << 12);
    let mover = Mover::new(&yard);
    let giver = Giver { mover: &mover, slots: Mutex::new(fill(&yard, &mover)), asked: Mutex::default() };
    let owners = mover.owners().with_reclaimer(&giver);
    for _ in 0..100 {
        let pfn = yard.request(Order::ZERO, MOVABLE).owners(&owners).frame().expect("a reclaimed frame");
        mover.own(pfn, Order::ZERO);
    }
    let asked = giver.asked.lock().unwrap().clone();
    assert!((1..=100).contains(&asked.len()), "{} times", asked.len());
    let expected =
        ReclaimRequest { node: NodeId(0), highest_zone: ZoneKind::Movable, order: Order::ZERO, wanted: PageCount(32) };
    assert!(asked.iter().all(|request| *request == expected));
    assert_eq!(yard.stats().reclaim_stalls(ZoneKind::Movable), asked.len() as u64);
    assert_eq!(yard.stats().failures(), 0);
    mover.free_all();
}

#[test]
fn reclaim_and_compaction_serve_huge_requests() {
    let yard = Fixture::small(1, 1 << 13);
    let mover = Mover::new(&yard);
    let mut slots = fill(&yard, &mover);
    // Given up in no order, so that what is freed is scattered.
    let mut random = Random::new(3);
    (1..slots.len()).rev().for_each(|at| slots.swap(at, random.below(at as u64 + 1) as usize));
    let giver = Giver { mover: &mover, slots: Mutex::new(slots), asked: Mutex::default() };
    let owners = mover.owners().with_reclaimer(&giver);
    let huge = yard.request(HUGE, MOVABLE).owners(&owners).frame().expect("a huge block");
    assert!(mover.moves.load(Ordering::Relaxed) > 0 && !giver.asked.lock().unwrap().is_empty());
    yard.validate().unwrap();
    mover.check_all();
    yard.free(huge, HUGE).unwrap();
    mover.free_all();
}

#[test]
fn out_of_memory_despite_reclaim_claims() {
    let yard = Fixture::small(1, 1 << 12);
    let mover = Mover::new(&yard);
    fill(&yard, &mover);
    for (order, gfp, rounds) in [
        (Order::ZERO, MOVABLE, 16),
        (order(2), MOVABLE, 16),
        (HUGE, MOVABLE, 10),
        (Order::ZERO, MOVABLE | Gfp::NORETRY, 1),
        (HUGE, MOVABLE | Gfp::NORETRY, 0),
    ] {
        let braggart = Braggart::default();
        let owners = mover.owners().with_reclaimer(&braggart);
        let before = yard.stats().failures();
        let refused = yard.request(order, gfp).owners(&owners).frame();
        assert_out_of_memory(refused, order, gfp);
        assert_eq!(braggart.0.load(Ordering::Relaxed), rounds, "{order} {gfp}");
        assert_eq!(yard.stats().failures(), before + 1, "a failure is counted once");
    }
    // Nothing to give up at all.
    let giver = Giver { mover: &mover, slots: Mutex::default(), asked: Mutex::default() };
    let owners = mover.owners().with_reclaimer(&giver);
    assert!(yard.request(Order::ZERO, MOVABLE).owners(&owners).frame().is_err());
    assert_eq!(giver.asked.lock().unwrap().len(), 1, "without progress it gives up");
    mover.free_all();
}

#[test]
fn slow_path_drains_other_cpus() {
    let yard = Fixture::small(2, 1 << 12);
    let mover = Mover::new(&yard);
    let slots = fill(&yard, &mover);
    run_on(1);
    slots.iter().take(3).for_each(|slot| mover.free(*slot));
    run_on(0);
    let pfn =
        yard.request(Order::ZERO, MOVABLE).owners(&mover.owners()).frame().expect("a frame from the other CPU's list");
    yard.free(pfn, Order::ZERO).unwrap();
    mover.free_all();
}

#[test]
fn exact_node_excludes_other_nodes() {
    let memory = [
        (PfnRange::new(Pfn(0x8000), PageCount(1 << 13)), NodeId(0)),
        (PfnRange::new(Pfn(0x10000), PageCount(1 << 13)), NodeId(1)),
    ];
    let cpus = [NodeId(0), NodeId(1)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let mover = Mover::new(&yard);
    fragment(&yard, &mover);
    // Node 0 is pinned from end to end.
    for slot in mover.slots() {
        if mover.place(slot) < Pfn(0x10000) {
            mover.pin(slot);
        }
    }
    let one = yard.request(HUGE, MOVABLE | Gfp::THISNODE).node(NodeId(0)).owners(&mover.owners()).frame();
    assert!(matches!(one, Err(AllocError::OutOfMemory { node: NodeId(0), .. })), "{one:?}");
    let any =
        yard.request(HUGE, MOVABLE).node(NodeId(0)).owners(&mover.owners()).frame().expect("a block of the other node");
    assert!(any >= Pfn(0x10000));
    yard.free(any, HUGE).unwrap();
    mover.free_all();
}

/// Threads that allocate, free and compact on one yard, and owners that refuse at random.
#[test]
fn concurrent_compaction_loses_nothing() {
    const THREADS: u64 = 6;
    let memory = [(PfnRange::new(Pfn(0x1003), PageCount(9_000)), NodeId(0))];
    let cpus = [NodeId(0); 3];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let cma = [PfnRange::new(Pfn(0x2000), PageCount(0x400))];
    let table = MemoryTable { memory: &memory, cma: &cma, ..MemoryTable::default() };
    for seed in 0..3 {
        let yard = Fixture::new(&table, &config, Frames::Real);
        let mover = Mover::new(&yard);
        mover.fail(Faults { isolate: 30, migrate: 30 }, seed);
        let owners = mover.owners();
        let barrier = Barrier::new(THREADS as usize);
        let work = |thread: u64| {
            run_on(thread as u32);
            let mut random = Random::new(seed * 100 + thread);
            let mut slots = Vec::new();
            let mut plain = Vec::new();
            barrier.wait();
            // Memory is full, and then half full and fragmented.
            slots.extend((0..1_450).filter_map(|_| mover.alloc(Order::ZERO, MOVABLE | Gfp::NORETRY).ok()));
            barrier.wait();
            for at in (0..slots.len()).rev().step_by(2) {
                mover.free(slots.swap_remove(at));
            }
            for _ in 0..4_000 {
                match random.below(100) {
                    0..45 => {
                        if let Ok(slot) = mover.alloc(order(random.pick(&[0, 0, 0, 0, 1, 3])), MOVABLE | Gfp::NORETRY) {
                            slots.push(slot);
                        }
                    }
                    45..90 if !slots.is_empty() => {
                        mover.free(slots.swap_remove(random.below(slots.len() as u64) as usize));
                    }
                    90..94 => plain.extend(yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NORETRY)),
                    94..96 => {
                        if let Ok(huge) = yard.request(HUGE, MOVABLE).owners(&owners).frame() {
                            yard.free(huge, HUGE).unwrap();
                        }
                    }
                    96 => drop(yard.compaction().background(NodeId(0), &owners)),
                    97 if random.below(8) == 0 => {
                        yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &owners);
                    }
                    _ => {
                        let effort = random.pick(&CompactEffort::ALL);
                        yard.compaction().zone(
                            ZONE,
                            CompactRequest::for_order(order(random.pick(&[2, 9])), effort),
                            &owners,
                        );
                    }
                }
                if plain.len() > 50 {
                    plain.drain(..).for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
                }
            }
            plain.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        };
        thread::scope(|scope| (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread)))));
        assert!(mover.moves.load(Ordering::Relaxed) > 0, "something moved");
        yard.validate().unwrap();
        mover.check_all();
        mover.free_all();
    }
}
