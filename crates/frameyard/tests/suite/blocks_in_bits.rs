//! The policy `bits`: what requests of all orders get of free frames that are bits of their pageblock, and what these count as.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::busy_yard::{FIRST, PAGES, ZONE, geometry};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, Moment, order, run_on};
use frameyard::alloc::FreeProblem;
use frameyard::boot::ZoneLimits;
use frameyard::compaction::CompactRequest;
use frameyard::owners::Owners;
use frameyard::platform::LockId;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{
    CpuId, Geometry, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId,
};

const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
/// Whole pageblocks.
const HUGE: Order = Order(6);

/// The policies under which free frames are bits.
const POLICIES: [ZonePolicy; 2] = [ZonePolicy::Bits, ZonePolicy::BitsTrees];

/// Something that needs memory to be whole.
type End = fn(&Fixture);

/// A yard of four CPUs with pageblocks of 64 frames, and lists of up to `high` frames.
pub(crate) fn bits_yard(pages: u64, high: u32) -> Fixture {
    yard_of(ZonePolicy::Bits, geometry(), pages, high)
}

pub(crate) fn yard_of(policy: ZonePolicy, geometry: Geometry, pages: u64, high: u32) -> Fixture {
    run_on(0);
    let config = YardConfig {
        geometry,
        zone_limits: ZoneLimits::NONE,
        pcp_sizing: PcpSizing::Fixed(high),
        policy,
        ..YardConfig::new(&[NodeId(0); 4])
    };
    let memory = [(PfnRange::new(FIRST, PageCount(pages)), NodeId(0))];
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

pub(crate) fn take(yard: &Fixture, gfp: Gfp, count: u64) -> Vec<Pfn> {
    take_blocks(yard, Order::ZERO, gfp, count)
}

fn take_blocks(yard: &Fixture, of: Order, gfp: Gfp, count: u64) -> Vec<Pfn> {
    (0..count).map(|_| yard.alloc(of, gfp).expect("a block")).collect()
}

/// Allocates blocks of an order until none is left.
pub(crate) fn take_all(yard: &Fixture, of: Order, gfp: Gfp) -> Vec<Pfn> {
    std::iter::from_fn(|| yard.alloc(of, gfp | Gfp::NOWARN).ok()).collect()
}

pub(crate) fn give(yard: &Fixture, frames: impl IntoIterator<Item = Pfn>) {
    give_blocks(yard, Order::ZERO, frames);
}

fn give_blocks(yard: &Fixture, of: Order, blocks: impl IntoIterator<Item = Pfn>) {
    blocks.into_iter().for_each(|pfn| yard.free(pfn, of).unwrap());
}

pub(crate) fn locks(yard: &Fixture, zone: ZoneId) -> u64 {
    yard.zone(zone).statistics().lock.acquisitions
}

/// The frames of free blocks of at least an order, on free lists and as bits.
pub(crate) fn frames_in_blocks(yard: &Fixture, zone: ZoneId, least: Order) -> u64 {
    let zone = yard.zone(zone);
    let blocks = |of, at| zone.free_blocks(of, at) + zone.blocks_in_bits(of, at);
    let of_order = |of: Order| MigrateType::ALL.map(|at| blocks(of, at) << of.0).iter().sum::<u64>();
    (least.0..=yard.geometry().max_order().0).map(Order).map(of_order).sum()
}

/// A yard of 32768 frames, all of which were allocated as blocks of an order and freed again.
fn all_freed(policy: ZonePolicy, of: Order) -> Fixture {
    let yard = yard_of(policy, geometry(), 8 * PAGES, 128);
    let blocks = take_all(&yard, of, MOVABLE | Gfp::HIGH);
    assert!((blocks.len() as u64) << of.0 > 8 * PAGES - PAGES / 4, "{of}: {} blocks", blocks.len());
    give_blocks(&yard, of, blocks);
    assert_eq!(yard.stats().free_pages(), yard.stats().managed_pages(), "blocks on lists and in bits count as free");
    yard
}

#[test]
fn blocks_move_between_cpus_without_the_zone_lock_and_touch_no_page() {
    for gfp in [MOVABLE, Gfp::KERNEL] {
        let pairs = |of| [of, order(0), HUGE].map(|wanted| (of, wanted));
        for (of, wanted) in [0, 2, 4, 5, 6].map(order).into_iter().flat_map(pairs) {
            let yard = bits_yard(8 * PAGES, 512);
            // They become pageblocks of the type.
            let blocks = take_blocks(&yard, of, gfp, (6 * PAGES) >> of.0);
            give_blocks(&yard, of, blocks);
            let free = yard.stats().free_pages();
            yard.watch().spy_with(|moment| match moment {
                Moment::Lock(LockId::Zone(_)) => panic!("the zone lock is taken"),
                Moment::Touch(pfn, _) => panic!("the page of {pfn} is touched"),
                _ => {}
            });
            for round in 0..8 {
                run_on(round % 4);
                let blocks = take_blocks(&yard, wanted, gfp, (2 * PAGES) >> wanted.0);
                assert_eq!(yard.stats().free_pages() + PageCount(2 * PAGES), free, "{wanted} of {of}");
                run_on((round + 1) % 4);
                give_blocks(&yard, wanted, blocks);
            }
            yard.watch().calm();
            yard.validate().unwrap();
        }
    }
}

#[test]
fn blocks_of_several_pageblocks_come_and_go_without_the_zone_lock() {
    for of in [7, 8].map(order) {
        let yard = all_freed(ZonePolicy::Bits, HUGE);
        yard.drain_all();
        let free = yard.stats().free_pages();
        yard.watch().spy_with(|moment| {
            assert!(!matches!(moment, Moment::Lock(LockId::Zone(_))), "the zone lock is taken");
        });
        for round in 0..4 {
            run_on(round % 4);
            let blocks = take_blocks(&yard, of, MOVABLE, (4 * PAGES) >> of.0);
            assert!(blocks.iter().all(|block| block.is_aligned(of)));
            assert_eq!(yard.stats().free_pages() + PageCount(4 * PAGES), free);
            // A part of a block is no block, and neither is a frame of its second half.
            assert!(yard.free(blocks[0], HUGE).is_err());
            assert!(yard.free(blocks[0] + HUGE.pages(), HUGE).is_err());
            run_on((round + 1) % 4);
            give_blocks(&yard, of, blocks);
            assert_eq!(yard.stats().free_pages(), free);
        }
        yard.watch().calm();
        yard.validate().unwrap();
        // What one half of a place lacks, no block has.
        let frames = take(&yard, MOVABLE, 1);
        let blocks = take_all(&yard, of, MOVABLE | Gfp::HIGH);
        assert!(blocks.iter().all(|block| !PfnRange::new(*block, of.pages()).contains(frames[0])));
        give_blocks(&yard, of, blocks);
        give(&yard, frames);
        yard.validate().unwrap();
        let statistics = yard.zone(ZONE).statistics();
        assert_eq!(statistics.pages_allocated, statistics.pages_freed);
    }
}

#[test]
fn lists_keep_huge_blocks_in_proportion_to_the_zone() {
    // Of 64 blocks two, since the lists of single frames keep as many.
    for (frames, most) in [(0x1000, 2), (0x1_0000, 8), (0x2_0000, 16), (0x4_0000, 32), (0x8_0000, 32)] {
        let yard = bits_yard(frames, 128);
        let blocks = take_blocks(&yard, HUGE, MOVABLE, 60);
        yard.drain_all();
        give_blocks(&yard, HUGE, blocks);
        let held = yard.zone(ZONE).statistics().per_cpu.0 >> HUGE.0;
        assert!(held <= most && held + most / 2 >= most, "{held} of {most} in a zone of {frames} frames");
    }
}

#[test]
fn a_request_that_finds_the_lists_of_its_cpu_locked_takes_from_those_of_another() {
    let yard = Arc::new(bits_yard(8 * PAGES, 128));
    let (inner, ran) = (Arc::downgrade(&yard), Arc::new(AtomicBool::new(false)));
    let has_run = Arc::clone(&ran);
    yard.watch().spy_with(move |moment| {
        // The thread has the lists of its CPU, and not the zone lock yet. An interrupt handler makes a request.
        if matches!(moment, Moment::Lock(LockId::Zone(_))) && !has_run.swap(true, Ordering::Relaxed) {
            let yard = inner.upgrade().unwrap();
            let before = locks(&yard, ZONE);
            let pfn = yard.alloc(Order::ZERO, Gfp::ATOMIC | Gfp::MOVABLE).unwrap();
            assert_eq!(locks(&yard, ZONE), before);
            yard.free(pfn, Order::ZERO).unwrap();
        }
    });
    // No pageblock has this type yet.
    let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    yard.watch().calm();
    assert!(ran.load(Ordering::Relaxed), "the request took no zone lock");
    yard.free(pfn, Order::ZERO).unwrap();
    yard.validate().unwrap();
}

#[test]
fn requests_of_every_order_and_type_are_served_from_blocks_of_any_order() {
    for (policy, of) in [0, 4, 6].map(order).into_iter().flat_map(|of| POLICIES.map(|policy| (policy, of))) {
        for wanted in [0, 3, 6, 8].map(order) {
            for gfp in [Gfp::ATOMIC, Gfp::KERNEL, MOVABLE | Gfp::NORETRY] {
                let yard = all_freed(policy, of);
                run_on(1);
                let blocks = take_all(&yard, wanted, gfp);
                let got = (blocks.len() as u64) << wanted.0;
                assert!(got > 8 * PAGES - PAGES / 2, "{gfp}, {wanted} of {of}: {got} frames");
                yard.validate().unwrap();
                give_blocks(&yard, wanted, blocks);
            }
        }
    }
}

#[test]
fn the_last_free_blocks_are_found_by_another_cpu_without_the_zone_lock() {
    for (policy, of) in [0, 1, 2, 3, 4, 5].map(order).into_iter().flat_map(|of| POLICIES.map(|policy| (policy, of))) {
        let yard = yard_of(policy, geometry(), 8 * PAGES, 128);
        let mut all = take_all(&yard, of, MOVABLE | Gfp::HIGH);
        give_blocks(&yard, of, all.split_off(all.len() - 320));
        let before = locks(&yard, ZONE);
        run_on(1);
        all.extend(take_blocks(&yard, of, MOVABLE | Gfp::HIGH, 64));
        assert_eq!(locks(&yard, ZONE), before, "{of}");
        give_blocks(&yard, of, all);
    }
}

#[test]
fn freed_blocks_count_as_free_at_once_and_are_not_freed_twice() {
    let yard = bits_yard(8 * PAGES, 128);
    let counts = || {
        let zone = yard.zone(ZONE).statistics();
        let flow = [zone.allocations, zone.pages_allocated, zone.frees, zone.pages_freed];
        (yard.stats().free_pages(), zone.free + zone.per_cpu, flow)
    };
    for of in [0, 2, 4, 5, 6, 7, 8].map(order) {
        let (free, in_zone, flow) = counts();
        assert_eq!(free, in_zone);
        let blocks = take_blocks(&yard, of, MOVABLE, PAGES >> of.0);
        let (number, pages) = (blocks.len() as u64, PageCount(PAGES));
        let taken = [flow[0] + number, flow[1] + PAGES, flow[2], flow[3]];
        assert_eq!(counts(), (free - pages, free - pages, taken), "{of}");
        give_blocks(&yard, of, blocks.iter().copied());
        let given = (free, free, [flow[0] + number, flow[1] + PAGES, flow[2] + number, flow[3] + PAGES]);
        assert_eq!(counts(), given, "{of}");
        for pfn in blocks {
            let refused = yard.free(pfn, of).expect_err("a second free").problem;
            assert!(!matches!(refused, FreeProblem::NotAllocated(_)), "{of}: {refused:?}");
        }
        assert_eq!(counts(), given, "the refused frees changed nothing");
        yard.drain_all();
        assert_eq!(counts(), given);
    }
}

#[test]
fn all_memory_is_whole_again_once_it_is_free() {
    for (policy, of) in [0, 2, 4, 6].map(order).into_iter().flat_map(|of| POLICIES.map(|policy| (policy, of))) {
        let yard = all_freed(policy, of);
        let whole = frames_in_blocks(&yard, ZONE, HUGE);
        assert!(whole > 8 * PAGES * 7 / 8, "{of}: {whole} frames, but for what a list holds");
        let ends: [(&str, End); 3] = [
            ("drain", |yard| yard.drain_all()),
            ("compaction", |yard| _ = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE)),
            ("the policy again", |yard| yard.set_policy(yard.policy()).unwrap()),
        ];
        for (name, end) in ends {
            give_blocks(&yard, of, take_blocks(&yard, of, MOVABLE, PAGES >> of.0));
            end(&yard);
            yard.drain_all();
            assert_eq!(frames_in_blocks(&yard, ZONE, order(8)), 8 * PAGES, "{of}, {name}");
            let zone = yard.zone(ZONE).statistics();
            assert_eq!((zone.free, zone.per_cpu), (zone.managed, PageCount(0)), "{of}, {name}");
        }
    }
}

#[test]
fn a_drain_of_full_lists_takes_no_zone_lock() {
    let yard = bits_yard(8 * PAGES, 512);
    for of in [0, 3, 5, 6].map(order) {
        for cpu in 0..4 {
            run_on(cpu);
            give_blocks(&yard, of, take_blocks(&yard, of, MOVABLE, 200));
        }
    }
    assert!(yard.zone(ZONE).statistics().per_cpu > PageCount(4 * 128));
    let before = locks(&yard, ZONE);
    yard.drain_all();
    assert_eq!((locks(&yard, ZONE), yard.zone(ZONE).statistics().per_cpu), (before, PageCount(0)));
    yard.validate().unwrap();
}

#[test]
fn a_contiguous_range_takes_frames_that_are_bits() {
    for of in [0, 4, 6].map(order) {
        let yard = all_freed(ZonePolicy::Bits, of);
        let range = PfnRange::new(FIRST + PageCount(1), PageCount(8 * PAGES - 2));
        assert_eq!(yard.request(range, Gfp::KERNEL).owners(&Owners::NONE).range(), Ok(range));
        yard.free_range(range).unwrap();
    }
}

#[test]
fn a_request_of_another_type_gets_a_pageblock_of_its_own() {
    let yard = all_freed(ZonePolicy::Bits, order(5));
    for of in [0, 4, 5, 6].map(order) {
        let pfn = yard.alloc(of, Gfp::KERNEL).unwrap();
        assert_eq!(yard.stats().pageblock_type(pfn), Some(MigrateType::Unmovable));
        yard.free(pfn, of).unwrap();
    }
    let zone = yard.zone(ZONE);
    let (mixed, whole) = (
        zone.fallbacks(MigrateType::Unmovable, MigrateType::Movable),
        zone.conversions(MigrateType::Unmovable, MigrateType::Movable),
    );
    assert_eq!(mixed, whole, "all fallbacks took whole pageblocks");
}

#[test]
fn frames_go_back_to_the_type_that_their_pageblock_has_when_they_leave_a_list() {
    let yard = bits_yard(PAGES, 400);
    give(&yard, take(&yard, MOVABLE, PAGES / 2));
    // Unmovable requests turn pageblocks over meanwhile.
    run_on(1);
    let unmovable = take(&yard, Gfp::KERNEL, 900);
    yard.drain_all();
    yard.validate().unwrap();
    give(&yard, unmovable);
}

#[test]
fn lists_of_large_blocks_are_bounded() {
    const FRAMES: u64 = 1 << 18;
    for (of, cpus) in (4..9).flat_map(|of| [2, 28].map(|cpus| (Order(of), cpus))) {
        let yard = Fixture::small_under(ZonePolicy::Bits, cpus, FRAMES);
        let take = |count| take_blocks(&yard, of, MOVABLE, count);
        give_blocks(&yard, of, take(1));
        let zone = yard.stats().zones().max_by_key(|zone| zone.managed).unwrap().id;
        let before = locks(&yard, zone);
        (0..100).for_each(|_| give_blocks(&yard, of, take(1)));
        assert_eq!(locks(&yard, zone), before, "{of}, {cpus} CPUs");
        give_blocks(&yard, of, take((1 << 14) >> of.0));
        let kept = yard.zone(zone).statistics().per_cpu;
        assert!(kept <= PageCount(FRAMES / 128 / cpus as u64), "{of}, {cpus} CPUs: {kept}");
    }
}

/// Takes and gives blocks in tides, so that whole batches come and go, on a CPU that changes. Checks that no other thread has them.
fn work(yard: &Fixture, owners: &[AtomicU64], orders: &[u8], seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    let kinds = [MOVABLE, MOVABLE, Gfp::KERNEL, Gfp::KERNEL | Gfp::RECLAIMABLE, Gfp::ATOMIC];
    let owners_of = |pfn: Pfn, of: Order| {
        let first = (pfn.0 - FIRST.0) as usize;
        &owners[first..first + of.pages().0 as usize]
    };
    let give_one = |(pfn, of): (Pfn, Order)| {
        owners_of(pfn, of).iter().for_each(|owner| assert_eq!(owner.swap(0, Ordering::Relaxed), seed));
        yard.free(pfn, of).unwrap();
    };
    for step in 0..steps {
        if step % 256 == 0 {
            run_on(random.below(4) as u32);
        }
        if step / 600 % 2 == 0 {
            let of = Order(random.pick(orders));
            if let Ok(pfn) = yard.alloc(of, random.pick(&kinds) | Gfp::NOWARN) {
                for owner in owners_of(pfn, of) {
                    assert_eq!(owner.swap(seed, Ordering::Relaxed), 0, "{pfn}, {of} has another owner");
                }
                held.push((pfn, of));
            }
        } else if !held.is_empty() {
            give_one(held.swap_remove(random.below(held.len() as u64) as usize));
        }
    }
    held.into_iter().for_each(give_one);
}

/// Drains, compacts, resizes lists, and takes ranges, in which no frame may have an owner.
fn disturb(yard: &Fixture, owners: &[AtomicU64], random: &mut Random) {
    match random.below(12) {
        0 => yard.drain_all(),
        1 => _ = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE),
        2 => yard.set_policy(yard.policy()).unwrap(),
        3 => yard.zone(ZONE).drain_cpu(CpuId(random.below(4) as u32)),
        4 => yard.lists().resize(PcpSizing::Fixed(random.pick(&[0, 100, 128, 500, 2000]))),
        _ => {
            let first = random.below(owners.len() as u64 - 512);
            let range = PfnRange::new(FIRST + PageCount(first), PageCount(random.pick(&[1, 64, 128, 256])));
            let request = yard.request(range, Gfp::KERNEL);
            let request = if random.below(2) == 0 { request } else { request.owners(&Owners::NONE) };
            if let Ok(range) = request.range() {
                let mut of_range = owners[first as usize..][..range.count().0 as usize].iter();
                assert!(of_range.all(|owner| owner.load(Ordering::Relaxed) == 0), "{range} has an owner");
                yard.free_range(range).unwrap();
            }
        }
    }
    thread::yield_now();
}

fn live(yard: &Fixture, pages: u64, orders: &[u8], steps: u64) {
    let owners: Vec<AtomicU64> = (0..pages).map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (owners, over) = (&owners[..], &over);
        scope.spawn(move || {
            let mut random = Random::new(50);
            while !over.load(Ordering::Relaxed) {
                disturb(yard, owners, &mut random);
            }
        });
        let workers: Vec<_> =
            (1..=4).map(|seed| scope.spawn(move || work(yard, owners, orders, seed, steps))).collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    yard.validate().unwrap();
}

#[test]
fn no_frame_is_lost_while_threads_collect_compact_and_isolate() {
    let steps = if std::env::var_os("FRAMEYARD_LONG_RUNS").is_some() { 20_000_000 } else { 200_000 };
    for policy in POLICIES {
        let live_in = |geometry, pages, orders| live(&yard_of(policy, geometry, pages, 128), pages, orders, steps);
        live_in(geometry(), PAGES, &[0, 0, 0, 0, 0, 0, 0, 1, 3, 6]);
        live_in(geometry(), 4 * PAGES, &[6, 6, 6, 6, 6, 6, 6, 6, 8, 0]);
        live_in(Geometry::X86_64, 4 * PAGES, &[0, 0, 0, 0, 0, 0, 2, 4, 5, 9]);
    }
}
