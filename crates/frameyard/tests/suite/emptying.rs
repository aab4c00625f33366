//! Emptying, under the policy `bits`: fragmented memory becomes whole during use, and no request goes without its frames.

use std::thread;

use crate::blocks_in_bits::{frames_in_blocks, give, locks, take_all};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, run_on};
use frameyard::boot::ZoneLimits;
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::watermarks::PcpSizing;
use frameyard::{Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId};

const ZONE: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const PAGEBLOCK: Order = Order(9);
const PAGEBLOCKS: u64 = 64;

fn yard_of(policy: ZonePolicy) -> Fixture {
    run_on(0);
    let memory = [(PfnRange::new(Pfn(0x8000), PageCount(PAGEBLOCKS << PAGEBLOCK.0)), NodeId(0))];
    let config = YardConfig {
        zone_limits: ZoneLimits::NONE,
        pcp_sizing: PcpSizing::Fixed(128),
        policy,
        ..YardConfig::new(&[NodeId(0); 2])
    };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

/// Allocates all memory in single frames, and frees half of it at random; the frames left.
fn fragment(yard: &Fixture, random: &mut Random) -> Vec<Pfn> {
    let mut frames = take_all(yard, Order::ZERO, MOVABLE);
    for last in (1..frames.len()).rev() {
        frames.swap(last, random.below(last as u64 + 1) as usize);
    }
    give(yard, frames.split_off(frames.len() / 2));
    frames
}

/// Frees and allocates random frames, as many times as there are, `rounds` times.
fn churn(yard: &Fixture, frames: &mut [Pfn], rounds: usize, random: &mut Random) {
    for _ in 0..rounds * frames.len() {
        let place = random.below(frames.len() as u64) as usize;
        give(yard, [frames[place]]);
        frames[place] = yard.alloc(Order::ZERO, MOVABLE).expect("a frame");
    }
}

/// Pageblocks that a request could have without draining lists.
fn whole(yard: &Fixture) -> u64 {
    frames_in_blocks(yard, ZONE, PAGEBLOCK) >> PAGEBLOCK.0
}

/// A yard that has emptied pageblocks for a while, and the frames in use.
pub(crate) fn in_use(seed: u64) -> (Fixture, Vec<Pfn>, Random) {
    let (yard, mut random) = (yard_of(ZonePolicy::Bits), Random::new(seed));
    let mut frames = fragment(&yard, &mut random);
    churn(&yard, &mut frames, 3, &mut random);
    (yard, frames, random)
}

#[test]
fn fragmented_memory_becomes_whole_during_use_whatever_lists_hold() {
    let whole_under = |policy, lists| {
        let (yard, mut random) = (yard_of(policy), Random::new(0x4ea1));
        yard.lists().resize(PcpSizing::Fixed(lists));
        let mut frames = fragment(&yard, &mut random);
        churn(&yard, &mut frames, 40, &mut random);
        yard.validate().unwrap();
        let whole = whole(&yard);
        give(&yard, frames);
        whole
    };
    assert!(whole_under(ZonePolicy::Vanilla, 128) <= PAGEBLOCKS / 10);
    for lists in [0, 8, 50, 128, 512] {
        let whole = whole_under(ZonePolicy::Bits, lists);
        // Half of memory is free.
        assert!(whole >= PAGEBLOCKS * 2 / 5, "lists of {lists}: {whole} pageblocks are whole");
    }
}

#[test]
fn frames_in_use_need_no_zone_lock_while_pageblocks_are_emptied() {
    let (yard, mut frames, mut random) = in_use(0x4ea2);
    let (before, free) = (locks(&yard, ZONE), yard.stats().free_pages());
    churn(&yard, &mut frames, 5, &mut random);
    assert_eq!((locks(&yard, ZONE), yard.stats().free_pages()), (before, free));
    give(&yard, frames);
}

#[test]
fn all_free_frames_are_allocated_before_a_request_fails() {
    for gfp in [MOVABLE, Gfp::KERNEL] {
        let (yard, frames, _) = in_use(0x4ea3);
        let more = take_all(&yard, Order::ZERO, gfp);
        let left = yard.stats().free_pages().0;
        assert!(left <= yard.zone(ZONE).statistics().watermarks.min.0 + 1, "{gfp}: {left} frames are left");
        yard.validate().unwrap();
        give(&yard, frames.into_iter().chain(more));
    }
}

#[test]
fn types_do_not_mix_while_a_whole_pageblock_is_free() {
    let (yard, mut frames, mut random) = in_use(0x4ea4);
    churn(&yard, &mut frames, 30, &mut random);
    assert!(whole(&yard) > 0);
    let kernel = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    assert_eq!(yard.stats().pageblock_type(kernel), Some(MigrateType::Unmovable));
    let block = kernel.align_down(PAGEBLOCK);
    assert!(frames.iter().all(|pfn| pfn.align_down(PAGEBLOCK) != block), "no frame of it was in use");
    give(&yard, frames.into_iter().chain([kernel]));
}

#[test]
fn free_frames_of_pageblocks_being_emptied_can_be_taken_by_number() {
    let (yard, mut frames, mut random) = in_use(0x4eb1);
    let mut all: Vec<Pfn> = (0..PAGEBLOCKS << PAGEBLOCK.0).map(|at| Pfn(0x8000 + at)).collect();
    all.retain(|pfn| !yard.stats().is_allocated(*pfn, Order::ZERO));
    for _ in 0..200 {
        let pfn = all.swap_remove(random.below(all.len() as u64) as usize);
        frames.push(yard.request(PfnRange::new(pfn, PageCount(1)), MOVABLE).range().expect("a free frame").start);
    }
    yard.validate().unwrap();
    churn(&yard, &mut frames, 3, &mut random);
    yard.validate().unwrap();
    give(&yard, frames);
}

#[test]
fn threads_that_free_into_pageblocks_being_emptied_lose_no_frame() {
    let (yard, frames, _) = in_use(0x4eaa);
    let shares: Vec<Vec<Pfn>> = frames.chunks(frames.len().div_ceil(4)).map(<[Pfn]>::to_vec).collect();
    let left: Vec<Vec<Pfn>> = thread::scope(|scope| {
        let share_out = |(number, mut share): (u32, Vec<Pfn>)| {
            let yard = &yard;
            scope.spawn(move || {
                run_on(number % 2);
                churn(yard, &mut share, 40, &mut Random::new(number.into()));
                share
            })
        };
        let threads: Vec<_> = (0..).zip(shares).map(share_out).collect();
        // All bits return to the free lists meanwhile.
        (0..4).for_each(|_| yard.set_policy(ZonePolicy::Bits).unwrap());
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    yard.validate().unwrap();
    give(&yard, left.into_iter().flatten());
}
