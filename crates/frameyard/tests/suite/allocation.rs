//! What a yard does for one caller: allocation, freeing, refusal of bad frees, exact sizes, ranges, reserves.

use std::collections::BTreeSet;

use crate::fixture::{Fixture, Frames, STORES, order};
use frameyard::alloc::FreeProblem;
use frameyard::boot::{Poisoning, ZoneLimits};
use frameyard::page::FrameState;
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::watermarks::{PcpSizing, WatermarkOptions};
use frameyard::{
    AllocError, ByteSize, CpuId, Geometry, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange,
    YardConfig, ZoneId,
};

const MIB: u64 = 256;

#[test]
fn blocks_are_aligned_and_disjoint() {
    let yard = Fixture::small(2, 64 * MIB);
    let mut blocks = Vec::new();
    let mut frames = BTreeSet::new();
    for _ in 0..3 {
        for order in (0..=10).map(Order) {
            let pfn = yard.alloc(order, Gfp::KERNEL).unwrap();
            assert!(pfn.is_aligned(order));
            for offset in 0..order.pages().0 {
                assert!(frames.insert(pfn + PageCount(offset)), "{pfn} was allocated twice");
            }
            blocks.push((pfn, order));
        }
    }
    yard.validate().unwrap();
    for (pfn, order) in blocks {
        yard.free(pfn, order).unwrap();
    }
}

#[test]
fn fresh_yard_allocates_in_ascending_order() {
    let yard = Fixture::small(1, 64 * MIB);
    let frames: Vec<Pfn> = (0..2000).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
    assert!(frames.windows(2).filter(|pair| pair[1].0 == pair[0].0 + 1).count() > 1900);
    for pfn in frames {
        yard.free(pfn, Order::ZERO).unwrap();
    }
}

#[test]
fn frames_freed_last_are_allocated_first() {
    // Under `vanilla`, most of them are in packed batches.
    for (policy, count) in [(ZonePolicy::Bits, 60), (ZonePolicy::Vanilla, 500)] {
        let yard = Fixture::small_under(policy, 1, 64 * MIB);
        yard.lists().resize(PcpSizing::Fixed(1000));
        let take = || (0..count).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect::<Vec<Pfn>>();
        let freed = take();
        freed.iter().for_each(|pfn| yard.free(*pfn, Order::ZERO).unwrap());
        let again = take();
        assert!(again.iter().eq(freed.iter().rev()), "{policy}");
        again.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    }
}

#[test]
fn memory_runs_out_with_an_error_and_comes_back() {
    for policy in STORES {
        let yard = Fixture::small_under(policy, 1, 16 * MIB);
        for order in [0, 3, 9, 10].map(Order) {
            let mut blocks = Vec::new();
            let problem = loop {
                match yard.alloc(order, Gfp::KERNEL) {
                    Ok(pfn) => blocks.push(pfn),
                    Err(problem) => break problem,
                }
            };
            let AllocError::OutOfMemory { order: failed, gfp: Gfp::KERNEL, node: NodeId(0), zone } = problem else {
                panic!("{problem}")
            };
            assert_eq!((failed, zone.free), (order, yard.stats().free_pages()));
            assert!(!blocks.is_empty());
            yard.validate().unwrap();
            for pfn in blocks {
                yard.free(pfn, order).unwrap();
            }
            yard.drain_all();
        }
        assert_eq!(yard.stats().failures(), 4);
    }
}

#[test]
fn all_frames_of_the_own_list_are_allocated_below_the_watermark() {
    let yard = Fixture::small_under(ZonePolicy::Vanilla, 1, 16 * MIB);
    // A list that keeps all frames: few in its array, most in packed batches.
    yard.lists().resize(PcpSizing::Fixed(100_000));
    let all = || {
        let alloc = || yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NORETRY | Gfp::NOWARN).ok();
        std::iter::from_fn(alloc).collect::<Vec<Pfn>>()
    };
    let first = all();
    for pfn in &first {
        yard.free(*pfn, Order::ZERO).unwrap();
    }
    let second = all();
    assert_eq!(second.len(), first.len());
    assert_eq!(yard.stats().drains_for_allocation(), 0);
    for pfn in second {
        yard.free(pfn, Order::ZERO).unwrap();
    }
}

#[test]
fn other_cpus_lists_are_drained_before_failure() {
    let yard = Fixture::small_under(ZonePolicy::Vanilla, 4, 16 * MIB);
    // Lists that keep what they hold to themselves.
    yard.lists().resize(PcpSizing::Fixed(100_000));
    let all = |gfp: Gfp| {
        let mut frames = Vec::new();
        while let Ok(pfn) = yard.alloc(Order::ZERO, gfp) {
            frames.push(pfn);
        }
        frames
    };
    let first = all(Gfp::KERNEL);
    crate::fixture::run_on(3);
    for pfn in &first {
        yard.free(*pfn, Order::ZERO).unwrap();
    }
    crate::fixture::run_on(0);
    assert!(all(Gfp::KERNEL | Gfp::NORETRY | Gfp::NOWARN).is_empty());
    assert_eq!(yard.stats().drains_for_allocation(), 1);
    let second = all(Gfp::KERNEL);
    assert_eq!(second.len(), first.len());
    for pfn in second {
        yard.free(pfn, Order::ZERO).unwrap();
    }
}

#[test]
fn a_pageblock_that_a_cpu_has_reserved_but_not_used_serves_a_request_of_its_size() {
    let memory = [(PfnRange::new(Pfn(0x1000), PageCount(16 * MIB)), NodeId(0))];
    let watermarks = WatermarkOptions { min_free_kbytes: Some(0), ..WatermarkOptions::default() };
    let policy = ZonePolicy::Bits;
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, watermarks, policy, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let frame = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    yard.free(frame, Order::ZERO).unwrap();
    yard.drain_all();
    for order in [9, 10].map(Order) {
        let alloc = || yard.alloc(order, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).ok();
        let blocks: Vec<Pfn> = std::iter::from_fn(alloc).collect();
        assert_eq!(blocks.len() as u64, (16 * MIB) >> order.0);
        blocks.into_iter().for_each(|pfn| yard.free(pfn, order).unwrap());
        yard.drain_all();
    }
}

#[test]
fn bad_frees_name_the_state_and_change_nothing() {
    let reserved = [PfnRange::new(Pfn(0x1000), PageCount(4))];
    let memory = [(PfnRange::new(Pfn(0x1000), PageCount(16 * MIB)), NodeId(0))];
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &memory, reserved: &reserved, cma: &[] };
    let yard = Fixture::new(&table, &config, Frames::Phantom);
    let problem = |pfn: Pfn, order: Order| yard.free(pfn, order).unwrap_err().problem;

    let single = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    let block = yard.alloc(order(5), Gfp::KERNEL).unwrap();
    assert_eq!(problem(Pfn(0x9000), Order::ZERO), FreeProblem::OutOfRange);
    assert_eq!(problem(Pfn(0), Order::ZERO), FreeProblem::Hole);
    assert_eq!(problem(Pfn(u64::MAX), Order::ZERO), FreeProblem::OutOfRange);
    assert_eq!(problem(Pfn(0x1000 + 20 * MIB), Order::ZERO), FreeProblem::Hole);
    assert_eq!(problem(Pfn(0x1000), order(2)), FreeProblem::NotAllocated(FrameState::Reserved));
    assert_eq!(problem(block, order(4)), FreeProblem::OtherOrder { allocated: order(5) });
    assert_eq!(problem(block, order(200)), FreeProblem::OtherOrder { allocated: order(5) });
    let inside = FreeProblem::InsideBlock { head: block, order: order(5), state: FrameState::Allocated };
    assert_eq!(problem(block + PageCount(3), Order::ZERO), inside);
    if !single.is_aligned(order(3)) {
        assert_eq!(problem(single, order(3)), FreeProblem::Misaligned);
    }
    let odd = (0..).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).find(|pfn| !pfn.is_aligned(order(1)));
    let odd = odd.unwrap();
    assert_eq!(problem(odd, order(1)), FreeProblem::Misaligned);
    let last = Pfn(0x1000 + 16 * MIB - 1);
    assert_eq!(problem(last, Order::ZERO), FreeProblem::AlreadyFree(FrameState::BuddyFree));

    yard.free(odd, Order::ZERO).unwrap();
    assert_eq!(problem(odd, Order::ZERO), FreeProblem::AlreadyFree(FrameState::PerCpu));
    yard.drain_all();
    assert!(matches!(problem(odd, Order::ZERO), FreeProblem::AlreadyFree(_)));
    yard.validate().unwrap();
    yard.free(block, order(5)).unwrap();
    for pfn in (0x1000..0x1000 + 16 * MIB).map(Pfn) {
        let _ = yard.free(pfn, Order::ZERO);
    }
}

#[test]
fn bad_orders_and_flags_are_refused() {
    let yard = Fixture::small(1, 16 * MIB);
    let too_large = AllocError::OrderTooLarge { order: order(19), max: order(18) };
    assert_eq!(yard.alloc(order(19), Gfp::KERNEL), Err(too_large));
    assert!(yard.alloc(order(255), Gfp::KERNEL).is_err());
    let both = Gfp::MOVABLE | Gfp::RECLAIMABLE;
    assert_eq!(yard.alloc(Order::ZERO, both), Err(AllocError::BadFlags(both)));
    assert_eq!(yard.request(Order::ZERO, Gfp::KERNEL).node(NodeId(9)).frame(), Err(AllocError::NoSuchNode(NodeId(9))));
}

#[test]
fn exact_sizes_keep_only_the_requested_frames() {
    let yard = Fixture::small(1, 16 * MIB);
    for count in [1, 3, 7, 100, 513, 1000, 1024].map(PageCount) {
        let before = yard.stats().free_pages();
        let range = yard.request(count, Gfp::KERNEL).range().unwrap();
        assert_eq!(range.count(), count);
        assert_eq!(before - yard.stats().free_pages(), count);
        yard.validate().unwrap();
        yard.free_range(range).unwrap();
    }
    assert!(matches!(yard.request(PageCount(0), Gfp::KERNEL).range(), Err(AllocError::Empty)));
    assert!(matches!(yard.request(PageCount(1025), Gfp::KERNEL).range(), Err(AllocError::CountTooLarge { .. })));
    assert!(matches!(yard.request(PageCount(u64::MAX), Gfp::KERNEL).range(), Err(AllocError::CountTooLarge { .. })));
}

#[test]
fn a_split_block_is_freed_frame_by_frame() {
    let yard = Fixture::small(1, 16 * MIB);
    let block = yard.alloc(order(4), Gfp::KERNEL).unwrap();
    yard.split(block, order(4)).unwrap();
    assert!(yard.free(block, order(4)).is_err());
    assert!(yard.split(block, order(4)).is_err());
    for offset in (0..16).rev() {
        yard.free(block + PageCount(offset), Order::ZERO).unwrap();
    }
}

#[test]
fn a_divided_block_is_freed_in_parts_of_any_length() {
    let yard = Fixture::small(1, 16 * MIB);
    let free = yard.stats().free_pages();
    for (held, cut) in [(4, 1), (4, 8), (4, 15), (9, 300)] {
        let block = yard.alloc(order(held), Gfp::KERNEL).unwrap();
        let (end, cut) = (block + order(held).pages(), block + PageCount(cut));
        let parts = [PfnRange { start: cut, end }, PfnRange { start: block, end: cut }];
        yard.split_at(cut).unwrap();
        yard.split_at(cut).expect("a block starts there already");
        assert!(yard.free(block, order(held)).is_err(), "the block has gone");
        yard.validate().unwrap();
        for part in parts {
            yard.free_range(part).unwrap();
            assert!(yard.split_at(part.start).is_err(), "nothing is allocated there");
        }
        yard.validate().unwrap();
    }
    yard.drain_all();
    assert_eq!(yard.stats().free_pages(), free);
}

#[test]
fn owners_free_their_frames_when_dropped() {
    let yard = Fixture::small(1, 16 * MIB);
    let before = yard.stats().free_pages();
    {
        let _block = yard.frames(order(3), Gfp::KERNEL).unwrap();
        let exact = yard.request(PageCount(11), Gfp::KERNEL).guard().unwrap();
        let mut singles = exact.into_single_frames();
        let kept: Vec<_> = singles.by_ref().take(4).collect();
        assert_eq!(kept.iter().map(frameyard::Frames::count).sum::<PageCount>(), PageCount(4));
        assert_eq!(before - yard.stats().free_pages(), PageCount(8 + 11));
    }
    assert_eq!(yard.stats().free_pages(), before);
}

#[test]
fn range_request_needs_free_frames() {
    let yard = Fixture::small(2, 16 * MIB);
    let range = PfnRange { start: Pfn(0x1003), end: Pfn(0x1003 + 700) };
    let taken = yard.request(range, Gfp::KERNEL).range().unwrap();
    assert_eq!(taken, range);
    yard.validate().unwrap();
    let overlapping = PfnRange { start: Pfn(0x1000), end: Pfn(0x1004) };
    let in_use = AllocError::InUse { head: Pfn(0x1003), order: Order::ZERO, state: FrameState::Allocated };
    assert_eq!(yard.request(overlapping, Gfp::KERNEL).range(), Err(in_use));
    yard.validate().unwrap();
    yard.free_range(taken).unwrap();
    // What lies on per-CPU lists now is collected.
    let again = yard.request(range, Gfp::KERNEL).range().unwrap();
    yard.free_range(again).unwrap();

    let beyond = PfnRange { start: Pfn(0x1000), end: Pfn(0x1000 + 17 * MIB) };
    assert_eq!(yard.request(beyond, Gfp::KERNEL).range(), Err(AllocError::NotOneZone(beyond)));
    assert_eq!(yard.request(PfnRange::default(), Gfp::KERNEL).range(), Err(AllocError::Empty));
}

#[test]
fn range_request_spares_atomic_reserve() {
    let memory = [(PfnRange::new(Pfn(0x1000), PageCount(16 * MIB)), NodeId(0))];
    let cpus = [NodeId(0)];
    let geometry = Geometry::new(ByteSize::kib(4), ByteSize::mib(2), order(3), order(8)).unwrap();
    let config = YardConfig { geometry, zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let blocks: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(order(4), Gfp::KERNEL | Gfp::NORETRY).ok()).collect();
    let atomic = yard.alloc(order(4), Gfp::ATOMIC).unwrap();
    yard.free(atomic, order(4)).unwrap();
    let reserved = yard.stats().frame(atomic).unwrap();
    assert_eq!((reserved.state, reserved.migrate_type), (FrameState::BuddyFree, MigrateType::HighAtomic));
    let kept = AllocError::InUse { head: reserved.head, order: reserved.order, state: FrameState::BuddyFree };
    assert_eq!(yard.request(PfnRange::new(atomic, PageCount(2)), Gfp::KERNEL).range(), Err(kept));
    for pfn in blocks {
        yard.free(pfn, order(4)).unwrap();
    }
}

#[test]
fn bulk_allocation_returns_as_many_blocks_as_are_free() {
    let yard = Fixture::small(1, 16 * MIB);
    let mut frames = vec![Pfn(0); 1000];
    assert_eq!(yard.alloc_bulk(Gfp::KERNEL, &mut frames).unwrap(), 1000);
    assert_eq!(frames.iter().collect::<BTreeSet<_>>().len(), 1000);
    let mut rest = vec![Pfn(0); 10_000];
    let got = yard.alloc_bulk(Gfp::KERNEL, &mut rest).unwrap();
    assert!(got < rest.len());
    assert!(yard.alloc_bulk(Gfp::KERNEL, &mut [Pfn(0)]).is_err());
    for pfn in frames.iter().chain(&rest[..got]) {
        yard.free(*pfn, Order::ZERO).unwrap();
    }
}

#[test]
fn per_cpu_lists_keep_to_their_limits() {
    let yard = Fixture::small(1, 64 * MIB);
    let zone = ZoneId::new(NodeId(0), ZoneKind::Normal);
    for (high, batch) in [(0, 1), (10, 2), (200, 50), (1000, 96)] {
        yard.lists().resize(PcpSizing::Fixed(high));
        let mut frames = vec![Pfn(0); 3000];
        yard.alloc_bulk(Gfp::KERNEL, &mut frames).unwrap();
        for pfn in frames {
            yard.free(pfn, Order::ZERO).unwrap();
            let statistics = yard.zone(zone).pcp(CpuId(0)).unwrap();
            assert!(statistics.count.0 <= u64::from(high));
            assert_eq!((statistics.high.0, statistics.batch.0), (u64::from(high), batch));
        }
        yard.validate().unwrap();
    }
}

/// Frames of two types go back in turns: the lists take all that their common limit allows before any frame leaves them.
#[test]
fn lists_of_several_types_share_their_limit_exactly() {
    let yard = Fixture::small_under(ZonePolicy::Vanilla, 1, 64 * MIB);
    let zone = ZoneId::new(NodeId(0), ZoneKind::Normal);
    let lists = || yard.zone(zone).pcp(CpuId(0)).unwrap();
    yard.lists().resize(PcpSizing::Fixed(0));
    let take = |gfp| (0..100).map(move |_| gfp);
    let kinds = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE];
    let [unmovable, movable] =
        kinds.map(|gfp| take(gfp).map(|gfp| yard.alloc(Order::ZERO, gfp).unwrap()).collect::<Vec<_>>());
    yard.lists().resize(PcpSizing::Fixed(150));
    let drains = lists().drains;
    let in_turns: Vec<Pfn> = unmovable.into_iter().zip(movable).flat_map(|(one, other)| [one, other]).collect();
    for (at, pfn) in in_turns[..150].iter().enumerate() {
        yard.free(*pfn, Order::ZERO).unwrap();
        assert_eq!((lists().count, lists().drains), (PageCount(at as u64 + 1), drains));
    }
    yard.free(in_turns[150], Order::ZERO).unwrap();
    assert_eq!(lists().drains, drains + 1);
    in_turns[151..].iter().for_each(|pfn| yard.free(*pfn, Order::ZERO).unwrap());
    let statistics = yard.zone(zone).statistics();
    assert_eq!((statistics.allocations, statistics.frees), (200, 200));
    yard.validate().unwrap();
}

#[test]
fn huge_blocks_do_not_push_small_frames_out() {
    let yard = Fixture::small(1, 256 * MIB);
    let zone = ZoneId::new(NodeId(0), ZoneKind::Normal);
    let frames: Vec<Pfn> = (0..50).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
    for pfn in frames {
        yard.free(pfn, Order::ZERO).unwrap();
    }
    let before = yard.zone(zone).pcp(CpuId(0)).unwrap().count;
    let huge: Vec<Pfn> = (0..40).map(|_| yard.alloc(order(9), Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    for pfn in huge {
        yard.free(pfn, order(9)).unwrap();
    }
    assert_eq!(yard.zone(zone).pcp(CpuId(0)).unwrap().count, before);
    let held = yard.zone(zone).statistics().per_cpu - before;
    assert!(held.0 <= 8 * 512, "at most eight huge blocks are kept, not {held}");
    assert!(held.0 > 0);
}

#[test]
fn zeroing_and_poisoning() {
    let memory = [(PfnRange::new(Pfn(0x1000), PageCount(16 * MIB)), NodeId(0))];
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, poisoning: Poisoning::On, ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let mut yard = Fixture::new(&table, &config, Frames::Real);

    let mut dirty = yard.frames(order(2), Gfp::KERNEL).unwrap();
    assert!(dirty.bytes().unwrap().iter().all(|byte| *byte == 0xaa), "free memory holds the pattern");
    dirty.bytes_mut().unwrap().fill(7);
    let pfn = dirty.pfn();
    drop(dirty);
    let clean = yard.frames(order(2), Gfp::KERNEL | Gfp::ZERO).unwrap();
    assert_eq!(clean.pfn(), pfn);
    assert_eq!(clean.size(), ByteSize::kib(16));
    assert!(clean.bytes().unwrap().iter().all(|byte| *byte == 0));
    let behind = clean.as_ptr().unwrap();
    drop(clean);

    // SAFETY: the memory is the fixture's, and the frame is free: the test damages it.
    unsafe { behind.add(4096 * 2 + 5).write(1) };
    let damaged = AllocError::Poisoned { pfn: pfn + PageCount(2), block: pfn, order: order(2) };
    assert_eq!(yard.alloc(order(2), Gfp::KERNEL), Err(damaged));
    assert_eq!(yard.stats().poison_hits(), 1);
    assert_eq!(yard.stats().frame(pfn).unwrap().state, FrameState::Poisoned);
    let next = yard.alloc(order(2), Gfp::KERNEL).unwrap();
    yard.free(next, order(2)).unwrap();
    assert!(yard.free(pfn, order(2)).is_err());
    yard.keep(PageCount(4));
}

#[test]
fn damaged_range_is_refused() {
    let memory = [(PfnRange::new(Pfn(0x1000), PageCount(16 * MIB)), NodeId(0))];
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, poisoning: Poisoning::On, ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let mut yard = Fixture::new(&table, &config, Frames::Real);
    let range = PfnRange { start: Pfn(0x1008), end: Pfn(0x101c) };
    let whole = yard.request(range, Gfp::KERNEL).guard().unwrap();
    let behind = whole.as_ptr().unwrap();
    drop(whole);
    // SAFETY: the memory is the fixture's, and the frames are free: the test damages them.
    unsafe { behind.add(4096 * 9).write(1) };
    let damaged = AllocError::Poisoned { pfn: Pfn(0x1011), block: Pfn(0x1010), order: order(3) };
    assert_eq!(yard.request(range, Gfp::KERNEL).range(), Err(damaged));
    assert_eq!(yard.stats().poison_hits(), 1);
    assert_eq!(yard.stats().frame(Pfn(0x1011)).unwrap().state, FrameState::Poisoned);
    let rest = yard.request(PfnRange { start: Pfn(0x1008), end: Pfn(0x1010) }, Gfp::KERNEL).range().unwrap();
    yard.free_range(rest).unwrap();
    yard.keep(PageCount(8));
}

#[test]
fn zeroing_phantom_frames_fails() {
    let yard = Fixture::small(1, 16 * MIB);
    let before = yard.stats().free_pages();
    assert!(matches!(yard.alloc(order(1), Gfp::KERNEL | Gfp::ZERO), Err(AllocError::NoFrameBytes(_))));
    assert_eq!(yard.stats().free_pages(), before);
}

#[test]
fn guarded_frames_cannot_be_freed() {
    let yard = Fixture::small(1, 16 * MIB);
    let owned = yard.frames(order(2), Gfp::KERNEL).unwrap();
    let refused = yard.free(owned.pfn(), order(2)).unwrap_err();
    assert_eq!(refused.problem, FreeProblem::NotAllocated(FrameState::Owned));
    assert!(yard.free_range(owned.range()).is_err());
    assert!(yard.split(owned.pfn(), order(2)).is_err());
    yard.validate().unwrap();
    let range = owned.into_range();
    yard.free_range(range).unwrap();
}
