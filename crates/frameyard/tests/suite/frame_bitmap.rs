//! The policy `frame-bitmap`: single frames merge as bits, their page structures stay untouched, and every request that needs them
//! gets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Moment, run_on};
use crate::random_actions::{long_lives_under, random_actions_with_lists};
use frameyard::owners::Owners;
use frameyard::platform::LockId;
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId};

const NORMAL: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);
/// The frames of a group.
const GROUP: u64 = 64;
/// The order of a group.
const GROUP_ORDER: u8 = 6;

/// A yard whose frames were allocated under `vanilla`, so that two of them have the same frames.
fn yard_with(frames: usize, policy: ZonePolicy) -> (Fixture, Vec<Pfn>) {
    let yard = Fixture::small(2, 32 << 10);
    yard.set_policy(ZonePolicy::Vanilla).unwrap();
    yard.lists().resize(PcpSizing::Fixed(256));
    run_on(0);
    let held = take(&yard, frames);
    yard.set_policy(policy).unwrap();
    (yard, held)
}

fn take(yard: &Fixture, count: usize) -> Vec<Pfn> {
    (0..count).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect()
}

fn give(yard: &Fixture, frames: impl IntoIterator<Item = Pfn>) {
    frames.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// Free blocks of each order and type.
fn blocks(yard: &Fixture, from: u8) -> Vec<u64> {
    let of = |order| MigrateType::ALL.map(|migrate_type| yard.zone(NORMAL).free_blocks(Order(order), migrate_type));
    (from..=10).flat_map(of).collect()
}

fn counter(yard: &Fixture, name: &str) -> u64 {
    yard.zone(NORMAL).mechanism_counts().get(name)
}

proptest! {
    /// Whatever is freed in whatever order: as soon as frames have left the lists, blocks from the size of a group on are those of
    /// `vanilla`, and once the lists are drained all are.
    #[test]
    fn free_blocks_are_those_of_vanilla(seed in any::<u64>(), keep in 0_usize..4) {
        let run = |policy| {
            let (yard, mut held) = yard_with(20 * GROUP as usize, policy);
            shuffle(&mut held, &mut Random::new(seed));
            let kept = held.split_off(held.len() * (4 - keep) / 4);
            give(&yard, held);
            let merged_at_once = blocks(&yard, GROUP_ORDER);
            yard.validate().unwrap();
            yard.drain_all();
            let merged = blocks(&yard, 0);
            give(&yard, kept);
            (merged_at_once, merged)
        };
        prop_assert_eq!(run(ZonePolicy::FrameBitmap), run(ZonePolicy::Vanilla));
    }
}

#[test]
fn random_actions_with_frame_bitmaps_keep_their_books() {
    random_actions_with_lists(ZonePolicy::FrameBitmap);
    long_lives_under(ZonePolicy::FrameBitmap, Some(64));
}

#[test]
fn no_page_structure_is_touched_when_frames_are_held_and_taken_again() {
    let (yard, held) = yard_with(4000, ZonePolicy::FrameBitmap);
    // Smaller than an array: no batch is packed into page structures.
    yard.lists().resize(PcpSizing::Fixed(100));
    let touched = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&touched);
    yard.watch().spy_with(move |moment| {
        if matches!(moment, Moment::Touch(..)) {
            seen.fetch_add(1, Ordering::Relaxed);
        }
    });
    // Every second frame: no group becomes whole.
    give(&yard, held.iter().step_by(2).copied());
    let freed = counter(&yard, "bitmap_pages");
    let again = take(&yard, 1000);
    yard.watch().calm();
    assert!(freed > 1500, "{freed} of 2000 frames are in the bitmap");
    assert!(counter(&yard, "bitmap_taken") > 500);
    assert_eq!(touched.load(Ordering::Relaxed), 0);
    yard.validate().unwrap();
    give(&yard, again);
    give(&yard, held.into_iter().skip(1).step_by(2));
}

#[test]
fn a_whole_group_joins_the_free_lists_at_once() {
    let (yard, held) = yard_with(20 * GROUP as usize, ZonePolicy::FrameBitmap);
    let before = blocks(&yard, GROUP_ORDER);
    give(&yard, held);
    assert!(counter(&yard, "bitmap_merged") >= 14);
    assert_ne!(blocks(&yard, GROUP_ORDER), before);
    // What is left is on the CPU's lists, or shares its group with frames there.
    assert!(counter(&yard, "bitmap_pages") < 3 * GROUP, "{}", counter(&yard, "bitmap_pages"));
}

#[test]
fn held_frames_count_as_free() {
    let (yard, held) = yard_with(2000, ZonePolicy::FrameBitmap);
    let free = yard.zone(NORMAL).statistics();
    let before = free.free + free.per_cpu;
    give(&yard, held.iter().step_by(2).copied());
    assert!(counter(&yard, "bitmap_pages") > 0);
    let free = yard.zone(NORMAL).statistics();
    assert_eq!(free.free + free.per_cpu, before + PageCount(1000));
    give(&yard, held.into_iter().skip(1).step_by(2));
}

/// A yard whose memory is allocated as single frames, except for half of each group, which is in the bitmap. Returns the allocated half.
fn half_of_each_group_held() -> (Fixture, Vec<Pfn>) {
    let (yard, _) = yard_with(0, ZonePolicy::FrameBitmap);
    let mut held: Vec<Pfn> =
        std::iter::from_fn(|| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).ok()).collect();
    held.sort_unstable();
    let (freed, kept): (Vec<Pfn>, Vec<Pfn>) = held.into_iter().partition(|pfn| pfn.0 % GROUP < GROUP / 2);
    give(&yard, freed);
    assert!(counter(&yard, "bitmap_pages") > 10_000);
    (yard, kept)
}

#[test]
fn requests_for_blocks_get_held_frames() {
    for gfp in [Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC | Gfp::MOVABLE] {
        let (yard, kept) = half_of_each_group_held();
        let halves = counter(&yard, "bitmap_pages") / (GROUP / 2);
        let taken: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(Order(5), gfp | Gfp::NOWARN).ok()).collect();
        assert!(taken.len() as u64 > halves * 3 / 4, "{} of {halves}", taken.len());
        assert!(counter(&yard, "bitmap_collected") > halves * GROUP / 4);
        yard.validate().unwrap();
        taken.into_iter().for_each(|block| yard.free(block, Order(5)).unwrap());
        give(&yard, kept);
    }
}

#[test]
fn a_contiguous_range_takes_held_frames() {
    let (yard, kept) = half_of_each_group_held();
    let group = kept[kept.len() / 2].align_down(Order(GROUP_ORDER));
    let range = PfnRange::new(group, PageCount(GROUP / 2));
    let taken = yard.request_range(range, Gfp::HIGHUSER_MOVABLE).owners(&Owners::NONE).range().unwrap();
    yard.validate().unwrap();
    yard.free_range(taken).unwrap();
    give(&yard, kept);
}

#[test]
fn a_refill_takes_no_frames_of_a_pageblock_that_has_another_type_by_now() {
    const PAGEBLOCK: u64 = 512;
    let (yard, _) = yard_with(0, ZonePolicy::FrameBitmap);
    let mut held: Vec<Pfn> =
        std::iter::from_fn(|| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).ok()).collect();
    held.sort_unstable();
    let last = held[held.len() / 2].align_down(Order(9));
    let in_last = |pfn: &Pfn| (last.0..last.0 + PAGEBLOCK).contains(&pfn.0);
    // The free lists have half of the last pageblock, and smaller blocks of those before it.
    yard.set_policy(ZonePolicy::Vanilla).unwrap();
    let is_listed = |pfn: &Pfn| if in_last(pfn) { pfn.0 % 512 >= 256 } else { pfn.0 < last.0 && pfn.0 % 256 < 128 };
    let (listed, held): (Vec<Pfn>, Vec<Pfn>) = held.into_iter().partition(is_listed);
    give(&yard, listed);
    yard.drain_all();
    yard.set_policy(ZonePolicy::FrameBitmap).unwrap();
    // The bitmap has half of each group of the pageblocks behind it, and then of its own.
    let is_freed = |pfn: &Pfn| pfn.0 >= last.0 && pfn.0 % GROUP < GROUP / 2;
    let (freed, kept): (Vec<Pfn>, Vec<Pfn>) = held.into_iter().partition(is_freed);
    let (of_last, others): (Vec<Pfn>, Vec<Pfn>) = freed.into_iter().partition(in_last);
    let wanted = others.len();
    give(&yard, others);
    give(&yard, of_last);
    // Moves them on from the list of the CPU.
    let (moving, kept): (Vec<Pfn>, Vec<Pfn>) = kept.into_iter().partition(|pfn| pfn.0 % GROUP == GROUP - 1);
    give(&yard, moving);
    let unmovable = yard.alloc(Order::ZERO, Gfp::ATOMIC).unwrap();
    assert!(in_last(&unmovable), "{unmovable:?} is not in the pageblock at {last:?}");
    let taken = take(&yard, wanted);
    assert_eq!(taken.iter().filter(|pfn| in_last(pfn)).count(), 0);
    yard.free(unmovable, Order::ZERO).unwrap();
    give(&yard, taken);
    give(&yard, kept);
}

#[test]
fn drains_of_a_quiesced_zone_add_no_frames() {
    let (yard, held) = yard_with(4000, ZonePolicy::FrameBitmap);
    let range = PfnRange::new(held[0], PageCount(1));
    yard.free(held[0], Order::ZERO).unwrap();
    let freed = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&freed);
    yard.watch().spy_with(move |moment| {
        // The request for the range, which has quiesced the zone, drains the lists next.
        while matches!(moment, Moment::Lock(LockId::PerCpu(_, CpuId(0)))) && !done.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    });
    let added = std::thread::scope(|scope| {
        let frees = scope.spawn(|| {
            run_on(1);
            while yard.zone(NORMAL).pageblocks(MigrateType::Isolate) == 0 {
                std::thread::yield_now();
            }
            let before = counter(&yard, "bitmap_added");
            give(&yard, held[1..].iter().step_by(2).copied());
            let added = counter(&yard, "bitmap_added") - before;
            freed.store(true, Ordering::SeqCst);
            added
        });
        assert_eq!(yard.request_range(range, Gfp::KERNEL).owners(&Owners::NONE).range(), Ok(range));
        frees.join().unwrap()
    });
    assert_eq!(added, 0);
    yard.watch().calm();
    yard.free_range(range).unwrap();
    give(&yard, held.into_iter().skip(2).step_by(2));
}

#[test]
fn frames_move_between_cpus_while_the_policy_changes() {
    let yard = Fixture::small(3, 32 << 10);
    yard.set_policy(ZonePolicy::FrameBitmap).unwrap();
    yard.lists().resize(PcpSizing::Fixed(200));
    let running = AtomicU64::new(2);
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let (yard, running) = (&yard, &running);
            scope.spawn(move || {
                run_on(cpu);
                let mut random = Random::new(u64::from(cpu));
                for _ in 0..100 {
                    let mut held = take(yard, 300 + random.below(1500) as usize);
                    shuffle(&mut held, &mut random);
                    give(yard, held);
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        run_on(2);
        while running.load(Ordering::Relaxed) > 0 {
            for policy in [ZonePolicy::Depot, ZonePolicy::FrameBitmap, ZonePolicy::Vanilla, ZonePolicy::FrameBitmap] {
                yard.set_policy(policy).unwrap();
            }
        }
    });
    run_on(0);
    yard.validate().unwrap();
}
