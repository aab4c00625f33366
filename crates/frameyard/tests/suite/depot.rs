//! The policy `depot`: batches move between CPUs without the zone lock, and every request that needs their frames gets them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::busy_yard::{FIRST, PAGES, ZONE, at, geometry};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, Moment, order, run_on};
use crate::movers::{KIND, Movers};
use frameyard::boot::{Poisoning, ZoneLimits};
use frameyard::compaction::CompactRequest;
use frameyard::owners::Owners;
use frameyard::page::FrameState;
use frameyard::platform::LockId;
use frameyard::policy::{PolicyError, ZonePolicy};
use frameyard::stats::MechanismCounts;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};

/// The frames of a batch.
pub(crate) const BATCH: u64 = 64;

/// A yard of four CPUs with these shelves in the depot, whose lists hold no more than two batches each.
pub(crate) fn depot_yard(shelves: &[u16], poisoning: Poisoning) -> Fixture {
    depot_yard_of(PAGES, shelves, poisoning)
}

/// As [`depot_yard`], with that many frames.
pub(crate) fn depot_yard_of(pages: u64, shelves: &[u16], poisoning: Poisoning) -> Fixture {
    depot_yard_sized(pages, shelves, poisoning, 128)
}

/// As [`depot_yard_of`], with lists of up to `high` frames.
pub(crate) fn depot_yard_sized(pages: u64, shelves: &[u16], poisoning: Poisoning, high: u32) -> Fixture {
    let cpus = [NodeId(0); 4];
    let config = YardConfig {
        geometry: geometry(),
        zone_limits: ZoneLimits::NONE,
        pcp_sizing: PcpSizing::Fixed(high),
        policy: ZonePolicy::Depot,
        depot_shelves: Some(shelves),
        poisoning,
        ..YardConfig::new(&cpus)
    };
    let memory = [(PfnRange::new(FIRST, PageCount(pages)), NodeId(0))];
    let frames = if poisoning == Poisoning::On { Frames::Real } else { Frames::Phantom };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, frames)
}

pub(crate) fn one_shelf() -> Fixture {
    depot_yard(&[0; 4], Poisoning::Off)
}

pub(crate) fn take(yard: &Fixture, gfp: Gfp, count: u64) -> Vec<Pfn> {
    (0..count).map(|_| yard.alloc(Order::ZERO, gfp).expect("a frame")).collect()
}

fn take_all(yard: &Fixture, gfp: Gfp) -> Vec<Pfn> {
    std::iter::from_fn(|| yard.alloc(Order::ZERO, gfp | Gfp::NOWARN).ok()).collect()
}

pub(crate) fn give(yard: &Fixture, frames: impl IntoIterator<Item = Pfn>) {
    frames.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
}

pub(crate) fn depot(yard: &Fixture) -> MechanismCounts {
    yard.zone(ZONE).mechanism_counts()
}

pub(crate) fn locks(yard: &Fixture) -> u64 {
    yard.zone(ZONE).statistics().lock.acquisitions
}

/// Frees enough frames on CPU 0 to leave about `batches` batches in the depot.
pub(crate) fn stock(yard: &Fixture, gfp: Gfp, batches: u64) {
    run_on(0);
    give(yard, take(yard, gfp, (batches + 2) * BATCH));
    assert!(depot(yard).get("depot_batches") >= batches, "{:?}", depot(yard));
}

#[test]
fn frames_freed_on_one_cpu_are_allocated_on_another_without_the_zone_lock() {
    let yard = one_shelf();
    stock(&yard, Gfp::HIGHUSER_MOVABLE, 12);
    let (before, free) = (locks(&yard), yard.stats().free_pages());
    for round in 0..20 {
        run_on(round % 4);
        let frames = take(&yard, Gfp::HIGHUSER_MOVABLE, 10 * BATCH);
        assert_eq!(yard.stats().free_pages() + PageCount(10 * BATCH), free, "frames in the depot count as free");
        run_on((round + 1) % 4);
        give(&yard, frames);
    }
    assert_eq!(locks(&yard), before);
    yard.validate().unwrap();
}

#[test]
fn frames_freed_last_are_allocated_first() {
    // Lists that hold little, and lists that hold batches before the depot gets any.
    for high in [128, 4096] {
        let yard = depot_yard_sized(4 * PAGES, &[0; 4], Poisoning::Off, high);
        run_on(0);
        let freed = take(&yard, Gfp::HIGHUSER_MOVABLE, 3 * PAGES);
        give(&yard, freed.iter().copied());
        let mut free = freed.clone();
        for _ in 0..free.len() {
            let pfn = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
            let place = free.iter().rposition(|of| *of == pfn).expect("one of the freed frames");
            let newer = free.len() - 1 - place;
            // Batches are exact, and so is the order within one but for its direction.
            assert!((newer as u64) < 2 * BATCH, "lists of {high}: {newer} frames freed later are free");
            free.remove(place);
        }
        give(&yard, freed);
    }
}

#[test]
fn pages_are_not_touched_under_the_zone_lock_when_batches_move() {
    let yard = one_shelf();
    stock(&yard, Gfp::HIGHUSER_MOVABLE, 12);
    let touched = Arc::new(AtomicU64::new(0));
    let counter = touched.clone();
    yard.watch().spy_with(move |moment| match moment {
        Moment::Lock(LockId::Zone(_)) => panic!("the zone lock is taken"),
        Moment::Touch(..) => _ = counter.fetch_add(1, Ordering::Relaxed),
        _ => {}
    });
    let frames = take(&yard, Gfp::HIGHUSER_MOVABLE, 8 * BATCH);
    run_on(1);
    give(&yard, frames);
    yard.watch().calm();
    assert!(touched.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_block_cut_up_gives_several_batches_under_one_hold_of_the_lock() {
    let yard = one_shelf();
    run_on(0);
    let before = locks(&yard);
    let frames = take(&yard, Gfp::HIGHUSER_MOVABLE, 512);
    assert_eq!(locks(&yard), before + 1);
    assert!(frames.chunks(256).all(|block| block.is_sorted()), "frames of a block come in ascending order");
    assert_eq!(depot(&yard).get("depot_pushes"), 6, "the list had room for two of eight batches");
    give(&yard, frames);
}

#[test]
fn a_large_block_is_merged_from_batches_of_the_depot() {
    for gfp in [Gfp::ATOMIC | Gfp::NOWARN, Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE | Gfp::NORETRY] {
        let yard = one_shelf();
        run_on(0);
        // All that can be had by single frames, so that no large block is left anywhere else.
        give(&yard, take_all(&yard, Gfp::HIGHUSER_MOVABLE | Gfp::HIGH));
        let kept = depot(&yard).get("depot_batches");
        assert!(kept > 0);
        run_on(1);
        let large: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(order(8), gfp).ok()).collect();
        assert!(large.len() as u64 >= PAGES / 256 / 2, "{gfp}: {} of {kept} batches", large.len());
        large.into_iter().for_each(|pfn| yard.free(pfn, order(8)).unwrap());
        yard.validate().unwrap();
    }
}

/// The most batches that one request merges if it must not wait, and if it may.
const MOST: [u64; 2] = [64, 1024];

/// A depot that has more batches than any request may merge, all movable, and a zone without a whole pageblock.
fn full_depot() -> (Fixture, Vec<Pfn>) {
    let yard = depot_yard_of(0x28000, &[0; 4], Poisoning::Off);
    run_on(0);
    give(&yard, take_all(&yard, Gfp::HIGHUSER_MOVABLE | Gfp::HIGH));
    let whole = || -> u64 { (6..=8).map(|of| yard.zone(ZONE).free_blocks(order(of), MigrateType::Movable)).sum() };
    let large = std::iter::from_fn(|| (whole() > 0).then(|| yard.alloc(order(6), Gfp::HIGHUSER_MOVABLE).unwrap()));
    let large: Vec<Pfn> = large.collect();
    assert!(depot(&yard).get("depot_batches") > 2 * MOST[1], "{:?}", depot(&yard));
    (yard, large)
}

#[test]
fn a_request_merges_a_bounded_number_of_batches() {
    let (yard, large) = full_depot();
    run_on(1);
    let mut most_merged = 0;
    for gfp in [Gfp::NOWAIT, Gfp::ATOMIC, Gfp::MOVABLE, Gfp::NOWAIT | Gfp::NOFRAGMENT, Gfp::KERNEL, Gfp::RECLAIMABLE] {
        for of in [0, 3, 8] {
            let before = depot(&yard).get("depot_collected");
            let had = yard.alloc(order(of), gfp | Gfp::NOWARN);
            let merged = depot(&yard).get("depot_collected") - before;
            let most = MOST[usize::from(gfp.contains(Gfp::DIRECT_RECLAIM))];
            assert!(merged <= most, "{gfp}, order {of}: {merged} batches, {had:?}");
            most_merged = most_merged.max(merged);
            had.into_iter().for_each(|pfn| yard.free(pfn, order(of)).unwrap());
        }
    }
    assert!(most_merged > 1, "no request merged batches");
    large.into_iter().for_each(|pfn| yard.free(pfn, order(6)).unwrap());
}

#[test]
fn a_request_of_another_type_takes_a_whole_pageblock_rather_than_merge_the_depot() {
    let (yard, large) = full_depot();
    large.into_iter().for_each(|pfn| yard.free(pfn, order(6)).unwrap());
    yard.zone(ZONE).drain_cpu(CpuId(0));
    run_on(1);
    let collected = || depot(&yard).get("depot_collected");
    for gfp in [Gfp::KERNEL, Gfp::RECLAIMABLE] {
        let before = collected();
        let pfn = yard.alloc(Order::ZERO, gfp).unwrap();
        assert_eq!(collected() - before, 0, "{gfp}");
        yard.free(pfn, Order::ZERO).unwrap();
    }
}

#[test]
fn the_common_stack_is_bounded() {
    /// The batches of a full common stack.
    const FULL: u64 = 0x4000;
    for shelves in [[0; 4], [0, 0, 1, 1]] {
        let yard = depot_yard_of((FULL + 0x800) * BATCH * 2, &shelves, Poisoning::Off);
        run_on(0);
        let frames = take(&yard, Gfp::HIGHUSER_MOVABLE, (FULL + 0x800) * BATCH);
        let before = locks(&yard);
        give(&yard, frames);
        let found = depot(&yard);
        assert!((FULL - 8..=FULL + 1024).contains(&found.get("depot_batches")), "{found:?}");
        let merged = FULL + 0x800 - found.get("depot_batches");
        assert!(
            locks(&yard) - before <= merged.div_ceil(8) + 2,
            "{} locks for {merged} batches",
            locks(&yard) - before
        );
    }
}

#[test]
fn a_request_of_another_type_takes_from_the_depot_before_it_fails() {
    let yard = one_shelf();
    run_on(0);
    let frames = take_all(&yard, Gfp::HIGHUSER_MOVABLE | Gfp::HIGH);
    let count = frames.len() as u64;
    give(&yard, frames);
    let kept = depot(&yard).get("depot_batches") * BATCH;
    run_on(1);
    let got = take_all(&yard, Gfp::NOWAIT | Gfp::HIGH);
    assert!(got.len() as u64 + 2 * BATCH >= kept.min(count), "{} of {kept}", got.len());
    assert_eq!(depot(&yard).get("depot_batches"), 0);
    give(&yard, got);
}

#[test]
fn large_blocks_are_merged_from_the_depot_before_another_type_is_taken() {
    let yard = one_shelf();
    run_on(0);
    // Pageblocks of another type, nearly all of them free.
    let unmovable = take(&yard, Gfp::KERNEL, 1);
    let movable_blocks = |yard: &Fixture, least| -> u64 {
        (least..=geometry().max_order().0).map(|of| yard.zone(ZONE).free_blocks(order(of), MigrateType::Movable)).sum()
    };
    let taken = std::iter::from_fn(|| {
        (movable_blocks(&yard, 0) > 0).then(|| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::HIGH).unwrap())
    });
    let taken: Vec<Pfn> = taken.collect();
    give(&yard, taken);
    let (kept, fallbacks) = (depot(&yard).get("depot_batches"), yard.zone(ZONE).statistics().fallbacks);
    run_on(1);
    let large = std::iter::from_fn(|| (movable_blocks(&yard, 6) > 0).then_some(()));
    let mut large: Vec<Pfn> = large.map(|()| yard.alloc(order(6), Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    assert_eq!(depot(&yard).get("depot_batches"), kept, "free lists come first");
    large.extend((0..4).map(|_| yard.alloc(order(6), Gfp::HIGHUSER_MOVABLE).unwrap()));
    assert!(depot(&yard).get("depot_batches") < kept, "the depot comes next: {kept}");
    assert_eq!(yard.zone(ZONE).statistics().fallbacks, fallbacks, "and other types last");
    large.into_iter().for_each(|pfn| yard.free(pfn, order(6)).unwrap());
    give(&yard, unmovable);
}

#[test]
fn a_cpu_steals_from_another_before_it_goes_to_the_zone() {
    let yard = depot_yard(&[0, 0, 1, 1], Poisoning::Off);
    stock(&yard, Gfp::HIGHUSER_MOVABLE, 4);
    let (before, batches) = (locks(&yard), depot(&yard).get("depot_batches"));
    run_on(2);
    let frames = take(&yard, Gfp::HIGHUSER_MOVABLE, batches * BATCH);
    assert_eq!((locks(&yard), depot(&yard).get("depot_steals")), (before, batches));
    give(&yard, frames);
}

#[test]
fn each_cpu_gets_the_frames_back_that_it_freed() {
    let yard = depot_yard(&[0, 1, 2, 3], Poisoning::Off);
    let held = [0, 1].map(|cpu| {
        run_on(cpu);
        take(&yard, Gfp::HIGHUSER_MOVABLE, 16 * BATCH)
    });
    for (cpu, frames) in held.iter().enumerate() {
        run_on(cpu as u32);
        give(&yard, frames.iter().copied());
    }
    // Each in turn: a common stack would give out what the other CPU has freed.
    for (cpu, freed) in held.iter().enumerate() {
        run_on(cpu as u32);
        let got = take(&yard, Gfp::HIGHUSER_MOVABLE, 12 * BATCH);
        assert!(got.iter().all(|frame| freed.contains(frame)), "CPU {cpu}");
        give(&yard, got);
    }
    assert_eq!(depot(&yard).get("depot_steals"), 0);
}

#[test]
fn a_thief_takes_one_batch() {
    let yard = depot_yard(&[0, 1, 2, 3], Poisoning::Off);
    stock(&yard, Gfp::HIGHUSER_MOVABLE, 12);
    let batches = depot(&yard).get("depot_batches");
    run_on(1);
    let frames = take(&yard, Gfp::HIGHUSER_MOVABLE, 1);
    let found = depot(&yard);
    assert_eq!((found.get("depot_steals"), batches - found.get("depot_batches")), (1, 1), "{found:?}");
    give(&yard, frames);
}

#[test]
fn batches_are_merged_several_at_once_as_long_as_whole_pageblocks_are_few() {
    let yard = depot_yard(&[0, 0, 1, 1], Poisoning::Off);
    run_on(0);
    let frames = take_all(&yard, Gfp::HIGHUSER_MOVABLE | Gfp::HIGH);
    let (before, drained) = (locks(&yard), frames.len() as u64 / BATCH);
    give(&yard, frames);
    let found = depot(&yard);
    let merged = drained - found.get("depot_batches");
    assert!(found.get("depot_collected") > 0, "all of memory was taken: {found:?}");
    assert!(locks(&yard) - before <= merged.div_ceil(4), "{} locks for {merged} batches", locks(&yard) - before);
    let pageblock = geometry().pageblock_order();
    let whole: u64 = (pageblock.0..=geometry().max_order().0)
        .map(|of| yard.zone(ZONE).free_blocks(order(of), MigrateType::Movable) << of)
        .sum();
    assert!(whole >= PAGES / 8, "as much as is to be there whole: {whole} frames");
    yard.validate().unwrap();
}

#[test]
fn a_full_stack_overflows_to_that_of_the_whole_zone() {
    let yard = depot_yard_of(0x40000, &[0, 0, 1, 1], Poisoning::Off);
    run_on(0);
    let frames = take(&yard, Gfp::HIGHUSER_MOVABLE, 0x18000);
    let before = locks(&yard);
    give(&yard, frames);
    let found = depot(&yard);
    assert_eq!((locks(&yard), found.get("depot_collected")), (before, 0), "{found:?}");
    assert!(
        found.get("depot_overflows") > 0
            && found.get("depot_batches") - found.get("depot_overflows") >= 0x10000 / BATCH,
        "{found:?}"
    );
    // Another CPU finds what overflowed before it steals.
    run_on(2);
    let frames = take(&yard, Gfp::HIGHUSER_MOVABLE, found.get("depot_overflows") * BATCH);
    assert_eq!(depot(&yard).get("depot_steals"), 0);
    give(&yard, frames);
}

#[test]
fn draining_and_another_policy_leave_nothing_in_the_depot() {
    let yard = one_shelf();
    for end in [|yard: &Fixture| yard.drain_all(), |yard: &Fixture| yard.set_policy(ZonePolicy::Vanilla).unwrap()] {
        stock(&yard, Gfp::HIGHUSER_MOVABLE, 12);
        stock(&yard, Gfp::KERNEL, 2);
        end(&yard);
        assert_eq!(depot(&yard).get("depot_batches"), 0);
        let zone = yard.zone(ZONE).statistics();
        assert_eq!((zone.free, zone.per_cpu), (zone.managed, PageCount(0)));
        let whole: u64 = MigrateType::ALL.map(|of| yard.zone(ZONE).free_blocks(order(8), of)).iter().sum();
        assert_eq!(whole, PAGES / 256, "all has merged");
    }
    let pushed = depot(&yard).get("depot_pushes");
    run_on(0);
    give(&yard, take(&yard, Gfp::HIGHUSER_MOVABLE, 16 * BATCH));
    assert_eq!(depot(&yard).get("depot_pushes"), pushed, "a batch was pushed under another policy");
}

#[test]
fn the_background_compactor_brings_batches_back_where_whole_pageblocks_are_few() {
    let yard = one_shelf();
    stock(&yard, Gfp::HIGHUSER_MOVABLE, 12);
    let kept = depot(&yard).get("depot_batches");
    yard.compaction().background(NodeId(0), &Owners::NONE);
    assert_eq!(depot(&yard).get("depot_batches"), kept, "most of the zone is free and whole");
    run_on(0);
    let frames = take_all(&yard, Gfp::HIGHUSER_MOVABLE | Gfp::HIGH);
    give(&yard, frames);
    assert!(depot(&yard).get("depot_batches") * BATCH > PAGES / 16 * 2);
    run_on(1);
    // All whole pageblocks but a few.
    let large: Vec<Pfn> = std::iter::from_fn(|| {
        let whole: u64 =
            [6, 7, 8].map(|of| yard.zone(ZONE).free_blocks(order(of), MigrateType::Movable) << of).iter().sum();
        (whole >= PAGES / 16).then(|| yard.alloc(order(6), Gfp::HIGHUSER_MOVABLE).unwrap())
    })
    .collect();
    let kept = depot(&yard).get("depot_batches");
    assert!(kept * BATCH > PAGES / 16);
    yard.compaction().background(NodeId(0), &Owners::NONE);
    assert!(depot(&yard).get("depot_batches") < kept);
    large.into_iter().for_each(|pfn| yard.free(pfn, order(6)).unwrap());
}

#[test]
fn compaction_merges_batches_of_the_depot() {
    let yard = one_shelf();
    stock(&yard, Gfp::HIGHUSER_MOVABLE, 12);
    yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE);
    assert_eq!(depot(&yard).get("depot_batches"), 0);
}

#[test]
fn a_contiguous_range_takes_frames_from_the_depot() {
    let yard = one_shelf();
    run_on(0);
    give(&yard, take_all(&yard, Gfp::HIGHUSER_MOVABLE | Gfp::HIGH));
    assert!(depot(&yard).get("depot_batches") > 0);
    let range = at(1, PAGES - 2);
    assert_eq!(yard.request_range(range, Gfp::KERNEL).owners(&Owners::NONE).range(), Ok(range));
    yard.free_range(range).unwrap();
}

#[test]
fn frames_go_back_to_the_type_that_their_pageblock_has_when_they_leave() {
    let yard = one_shelf();
    stock(&yard, Gfp::HIGHUSER_MOVABLE, 12);
    // Unmovable requests turn pageblocks over meanwhile.
    run_on(1);
    let unmovable = take(&yard, Gfp::KERNEL, 900);
    yard.drain_all();
    yard.validate().unwrap();
    give(&yard, unmovable);
}

#[test]
fn lists_that_may_hold_next_to_nothing_have_no_stock() {
    let yard = one_shelf();
    yard.lists().resize(PcpSizing::Fixed(100));
    run_on(0);
    give(&yard, take(&yard, Gfp::HIGHUSER_MOVABLE, 1000));
    assert_eq!(depot(&yard).get("depot_pushes"), 0);
}

/// Runs `meanwhile` while a thread is stopped that has taken the batches of the depot to bring them back to the zone.
pub(crate) fn with_a_collector_stopped(yard: &Fixture, meanwhile: impl FnOnce()) {
    thread_local! {
        static COLLECTS: Cell<bool> = const { Cell::new(false) };
        static HAS_DRAINED: Cell<bool> = const { Cell::new(false) };
    }
    let (stopped, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    yard.watch().spy_with({
        let (stopped, goes_on) = (Arc::clone(&stopped), Arc::clone(&goes_on));
        move |moment| match moment {
            // The last lists, which are empty: whatever is touched next is of the depot.
            Moment::Lock(LockId::PerCpu(_, CpuId(3))) => HAS_DRAINED.set(COLLECTS.get()),
            Moment::Touch(..) if HAS_DRAINED.take() => {
                stopped.wait();
                goes_on.wait();
            }
            _ => {}
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            COLLECTS.set(true);
            yard.zone(ZONE).drain();
        });
        stopped.wait();
        meanwhile();
        goes_on.wait();
    });
    yard.watch().calm();
    yard.validate().unwrap();
}

#[test]
fn a_wait_for_a_stopped_collector_ends_and_is_counted() {
    let yard = one_shelf();
    stock(&yard, Gfp::HIGHUSER_MOVABLE, 8);
    let counted = || yard.zone(ZONE).mechanism_counts();
    with_a_collector_stopped(&yard, || {
        assert_eq!(counted().get("cut_waits"), 0);
        assert_eq!(yard.set_policy(ZonePolicy::Vanilla), Err(PolicyError::Stalled(ZONE)));
        assert_eq!((counted().get("cut_waits"), counted().get("cut_stalls")), (1, 1));
        assert!(counted().get("cut_wait_rounds") > 1);
    });
    yard.set_policy(ZonePolicy::Vanilla).unwrap();
    assert_eq!((counted().get("cut_stalls"), depot(&yard).get("depot_batches")), (1, 0));
}

#[test]
fn frames_in_the_depot_are_refused_when_they_are_freed_again() {
    let yard = one_shelf();
    run_on(0);
    let frames = take(&yard, Gfp::HIGHUSER_MOVABLE, 8 * BATCH);
    give(&yard, frames.iter().copied());
    let before = depot(&yard);
    for pfn in frames {
        let problem = yard.free(pfn, Order::ZERO).unwrap_err().problem;
        assert_eq!(problem, frameyard::alloc::FreeProblem::AlreadyFree(FrameState::PerCpu));
    }
    assert_eq!(depot(&yard), before);
}

#[test]
fn movable_blocks_move_and_the_depot_keeps_its_books() {
    let yard = one_shelf();
    let movers = Movers::new(&yard);
    let owners = Owners::NONE.with(KIND, &movers);
    crate::busy_yard::fill(&yard, &movers, &mut Random::new(3), 50);
    yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &owners);
    let range = at(1024, 1024);
    assert_eq!(yard.request_range(range, Gfp::KERNEL).owners(&owners).range(), Ok(range));
    movers.check_all();
    yard.free_range(range).unwrap();
    movers.give_all_back();
}
