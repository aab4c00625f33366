//! CPU-owned pageblocks: where freed blocks go, what a CPU keeps, and what returns it to the zone.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::busy_yard::{PAGES, ZONE, at, made};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, run_on};
use frameyard::alloc::FreeProblem;
use frameyard::boot::ZoneLimits;
use frameyard::compaction::CompactRequest;
use frameyard::owners::Owners;
use frameyard::page::FrameState;
use frameyard::policy::ZonePolicy;
use frameyard::stats::MechanismCounts;
use frameyard::units::ZoneKind;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId};

const CPUS: usize = 3;
const PAGEBLOCK: u64 = 512;
const NORMAL: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);

/// A yard of 32 pageblocks whose CPUs own some, with lists that hold nothing.
fn owning_yard() -> Fixture {
    let memory = [(PfnRange::new(Pfn(0x1000), PageCount(32 * PAGEBLOCK)), NodeId(0))];
    let cpus = vec![NodeId(0); CPUS];
    let config = YardConfig {
        zone_limits: ZoneLimits::NONE,
        policy: ZonePolicy::OwnedBlocks,
        pcp_sizing: PcpSizing::Fixed(0),
        ..YardConfig::new(&cpus)
    };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

fn take(yard: &Fixture, count: usize, gfp: Gfp) -> Vec<Pfn> {
    (0..count).map(|_| yard.alloc(Order::ZERO, gfp).unwrap()).collect()
}

fn give(yard: &Fixture, frames: &[Pfn]) {
    frames.iter().for_each(|pfn| yard.free(*pfn, Order::ZERO).unwrap());
}

fn owned(yard: &Fixture, cpu: u32) -> MechanismCounts {
    yard.zone(NORMAL).mechanism_counts_of(Some(CpuId(cpu))).unwrap()
}

#[test]
fn a_cpu_claims_a_pageblock_and_serves_itself_from_it() {
    let yard = owning_yard();
    run_on(1);
    let before = yard.zone(NORMAL).statistics().lock.acquisitions;
    let frames = take(&yard, PAGEBLOCK as usize, Gfp::HIGHUSER_MOVABLE);
    assert_eq!(yard.zone(NORMAL).statistics().lock.acquisitions, before + 1, "the zone lock is taken to claim alone");
    assert!(frames.iter().all(|pfn| pfn.align_down(Order(9)) == frames[0]), "all of them are of one pageblock");
    let counts = owned(&yard, 1);
    assert_eq!((counts.get("owned_claims"), counts.get("owned_pageblocks"), counts.get("owned_free_pages")), (1, 1, 0));
    assert_eq!(owned(&yard, 0).get("owned_claims"), 0);
    yard.validate().unwrap();
    give(&yard, &frames);
}

#[test]
fn what_another_cpu_frees_goes_back_to_the_owner_and_merges_there() {
    let yard = owning_yard();
    run_on(0);
    let frames = take(&yard, 100, Gfp::HIGHUSER_MOVABLE);
    run_on(2);
    let before = yard.zone(NORMAL).statistics().lock.acquisitions;
    give(&yard, &frames[..99]);
    assert_eq!(yard.zone(NORMAL).statistics().lock.acquisitions, before, "no zone lock is taken");
    let counts = owned(&yard, 0);
    assert_eq!((counts.get("cross_cpu_frees"), counts.get("owned_pages_freed_local")), (99, 0));
    assert_eq!(counts.get("owned_free_pages"), PAGEBLOCK - 1);
    assert!(counts.get("owned_merges") > 0);
    assert_eq!(yard.stats().frame(frames[0]).unwrap().state, FrameState::HeldFree);
    let refused = yard.free(frames[0], Order::ZERO).unwrap_err();
    assert_eq!(refused.problem, FreeProblem::AlreadyFree(FrameState::HeldFree));
    yard.validate().unwrap();
    run_on(0);
    give(&yard, &frames[99..]);
    let counts = owned(&yard, 0);
    assert_eq!(
        (counts.get("owned_pages_freed_local"), counts.get("owned_free_pages")),
        (1, PAGEBLOCK),
        "one whole is kept"
    );
    assert_eq!((counts.get("owned_returns"), counts.get("owned_pageblocks")), (0, 1));
}

#[test]
fn of_whole_pageblocks_an_owner_keeps_one() {
    let yard = owning_yard();
    run_on(0);
    let frames = take(&yard, 3 * PAGEBLOCK as usize, Gfp::HIGHUSER_MOVABLE);
    give(&yard, &frames);
    let counts = owned(&yard, 0);
    assert_eq!((counts.get("owned_claims"), counts.get("owned_returns"), counts.get("owned_pageblocks")), (3, 2, 1));
    assert_eq!(yard.zone(NORMAL).mechanism_counts().get("owned_free_pages"), PAGEBLOCK);
    assert_eq!(
        yard.stats().free_pages(),
        yard.stats().managed_pages(),
        "free frames of owned pageblocks count as held by CPUs"
    );
}

#[test]
fn types_are_kept_apart() {
    let yard = owning_yard();
    run_on(0);
    let kinds = [Gfp::KERNEL, Gfp::KERNEL | Gfp::RECLAIMABLE, Gfp::HIGHUSER_MOVABLE];
    let taken: Vec<Vec<Pfn>> = kinds.iter().map(|gfp| take(&yard, 70, *gfp)).collect();
    assert_eq!(owned(&yard, 0).get("owned_pageblocks"), 3);
    for (frames, migrate_type) in
        taken.iter().zip([MigrateType::Unmovable, MigrateType::Reclaimable, MigrateType::Movable])
    {
        assert!(frames.iter().all(|pfn| pfn.align_down(Order(9)) == frames[0].align_down(Order(9))));
        assert!(yard.zone(NORMAL).pageblocks(migrate_type) > 0);
    }
    yard.validate().unwrap();
    taken.iter().for_each(|frames| give(&yard, frames));
}

#[test]
fn small_blocks_come_from_owned_pageblocks_too() {
    let yard = owning_yard();
    run_on(0);
    let frame = take(&yard, 1, Gfp::KERNEL);
    let block = yard.alloc(Order(3), Gfp::KERNEL).unwrap();
    assert_eq!(block.align_down(Order(9)), frame[0].align_down(Order(9)));
    assert_eq!(owned(&yard, 0).get("owned_claims"), 1);
    yard.free(block, Order(3)).unwrap();
    give(&yard, &frame);
}

#[test]
fn requests_that_would_fail_take_from_owned_pageblocks() {
    for gfp in [Gfp::KERNEL, Gfp::NOWAIT, Gfp::KERNEL | Gfp::NORETRY] {
        let yard = owning_yard();
        run_on(0);
        let large: Vec<Pfn> = (0..30).map(|_| yard.alloc(Order(9), gfp).unwrap()).collect();
        let frames = take(&yard, 1, Gfp::HIGHUSER_MOVABLE);
        assert_eq!(owned(&yard, 0).get("owned_pageblocks"), 1);
        run_on(1);
        let rest: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(Order(4), gfp | Gfp::NOWARN).ok()).collect();
        assert_eq!(yard.zone(NORMAL).mechanism_counts().get("owned_pageblocks"), 0, "{gfp}: all was given up");
        assert!(rest.len() >= 31, "{gfp}: {} blocks of 16 frames", rest.len());
        rest.iter().for_each(|pfn| yard.free(*pfn, Order(4)).unwrap());
        large.iter().for_each(|pfn| yard.free(*pfn, Order(9)).unwrap());
        give(&yard, &frames);
    }
}

#[test]
fn nothing_is_claimed_below_the_high_watermark() {
    let yard = owning_yard();
    run_on(0);
    let high = yard.zone(NORMAL).statistics().watermarks.high;
    let mut held = Vec::new();
    while yard.zone(NORMAL).statistics().free > high + PageCount(PAGEBLOCK) {
        held.push(yard.alloc(Order(6), Gfp::HIGHUSER_MOVABLE).unwrap());
    }
    let frames = take(&yard, 10, Gfp::HIGHUSER_MOVABLE);
    assert_eq!(owned(&yard, 0).get("owned_claims"), 0);
    give(&yard, &frames);
    held.iter().for_each(|pfn| yard.free(*pfn, Order(6)).unwrap());
}

#[test]
fn draining_a_zone_and_changing_the_policy_give_everything_up() {
    let yard = owning_yard();
    let bring_back: [&dyn Fn(); 3] =
        [&|| yard.zone(NORMAL).drain(), &|| yard.set_policy(ZonePolicy::Vanilla).unwrap(), &|| {
            yard.compaction().zone(NORMAL, CompactRequest::WHOLE_ZONE, &Owners::NONE);
        }];
    for bring_back in bring_back {
        yard.set_policy(ZonePolicy::OwnedBlocks).unwrap();
        for cpu in 0..CPUS as u32 {
            run_on(cpu);
            let frames = take(&yard, 40, Gfp::KERNEL);
            give(&yard, &frames);
        }
        assert!(yard.zone(NORMAL).mechanism_counts().get("owned_pageblocks") >= CPUS as u64);
        bring_back();
        assert_eq!(yard.zone(NORMAL).mechanism_counts().get("owned_pageblocks"), 0);
        assert_eq!(yard.zone(NORMAL).statistics().free, yard.stats().managed_pages());
        yard.validate().unwrap();
    }
}

#[test]
fn frames_in_use_while_the_policy_changes_are_freed_to_the_zone() {
    let yard = owning_yard();
    run_on(0);
    let frames = take(&yard, 40, Gfp::KERNEL);
    yard.set_policy(ZonePolicy::Vanilla).unwrap();
    give(&yard, &frames);
    yard.drain_all();
    assert_eq!(yard.zone(NORMAL).statistics().free, yard.stats().managed_pages());
}

#[test]
fn a_range_in_an_owned_pageblock_is_taken_by_number() {
    let yard = owning_yard();
    run_on(0);
    let frames = take(&yard, 1, Gfp::HIGHUSER_MOVABLE);
    let behind = frames[0] + PageCount(1);
    let range = PfnRange::new(behind, PageCount(PAGEBLOCK - 1));
    assert_eq!(yard.request_range(range, Gfp::KERNEL).range(), Ok(range));
    yard.free_range(range).unwrap();
    let frames_of_another = take(&yard, 1, Gfp::HIGHUSER_MOVABLE);
    assert_eq!(
        yard.request_range(range, Gfp::KERNEL).owners(&Owners::NONE).range().map(|range| range.start),
        Ok(behind)
    );
    yard.free_range(range).unwrap();
    give(&yard, &frames);
    give(&yard, &frames_of_another);
}

/// Threads allocate and free on every CPU, in pairs; a few work on the whole yard.
#[test]
fn nothing_is_lost_while_blocks_change_hands_and_pageblocks_owners() {
    let yard = made(&crate::busy_yard::Made::default());
    yard.set_policy(ZonePolicy::OwnedBlocks).unwrap();
    let mailbox: Mutex<VecDeque<(Pfn, Order)>> = Mutex::default();
    let (done, claims) = (AtomicBool::new(false), AtomicU64::new(0));
    let (yard, mailbox, done, claims) = (&yard, &mailbox, &done, &claims);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4u64)
            .map(|seed| {
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    // Most runs see a claim within the first rounds. Without one, the workers go on.
                    for round in 0..600_000 {
                        if round >= 30_000 && claims.load(Ordering::Relaxed) > 0 {
                            break;
                        }
                        run_on(random.below(3) as u32);
                        let order = Order(random.pick(&[0, 0, 0, 0, 1, 2, 3, 4]));
                        let gfp = random.pick(&[Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC, Gfp::NOWAIT]);
                        if random.below(2) == 0
                            && let Ok(pfn) = yard.alloc(order, gfp | Gfp::NOWARN)
                        {
                            mailbox.lock().unwrap().push_back((pfn, order));
                        } else if let Some((pfn, order)) = {
                            let mut blocks = mailbox.lock().unwrap();
                            let at = random.below(blocks.len().max(1) as u64) as usize;
                            blocks.swap_remove_back(at)
                        } {
                            yard.free(pfn, order).unwrap();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            let mut random = Random::new(9);
            while !done.load(Ordering::Relaxed) {
                run_on(random.below(3) as u32);
                match random.below(7) {
                    0 => yard.zone(ZONE).drain(),
                    1 => yard.lists().drain_cpu(CpuId(random.below(3) as u32)),
                    2 => drop(yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE)),
                    3 | 4 => {
                        let range = at(random.below(PAGES - 40), 1 + random.below(40));
                        if yard.request_range(range, Gfp::KERNEL).owners(&Owners::NONE).range().is_ok() {
                            yard.free_range(range).unwrap();
                        }
                    }
                    5 => yard.lists().resize(PcpSizing::Fixed(random.pick(&[0, 8, 100]))),
                    _ => {
                        let policy = random.pick(&[ZonePolicy::Vanilla, ZonePolicy::OwnedBlocks]);
                        yard.set_policy(policy).unwrap();
                        yard.set_policy(ZonePolicy::OwnedBlocks).unwrap();
                    }
                }
                claims.fetch_max(yard.zone(ZONE).mechanism_counts().get("owned_claims"), Ordering::Relaxed);
                thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert!(claims.load(Ordering::Relaxed) > 0, "no CPU claimed a pageblock");
    yard.validate().unwrap();
    run_on(0);
    mailbox.lock().unwrap().drain(..).for_each(|(pfn, order)| yard.free(pfn, order).unwrap());
    yard.drain_all();
    assert_eq!(yard.zone(ZONE).mechanism_counts().get("owned_pageblocks"), 0);
    assert_eq!(yard.zone(ZONE).statistics().free, yard.stats().managed_pages());
}
