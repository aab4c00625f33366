//! The policy `healing`: pageblocks drain, become whole, and give their frames up before a request mixes types or fails.

use std::thread;

use crate::depot::{give, locks};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, run_on};
use crate::mover::Mover;
use frameyard::alloc::FreeProblem;
use frameyard::boot::ZoneLimits;
use frameyard::owners::Owners;
use frameyard::page::FrameState;
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::watermarks::PcpSizing;
use frameyard::{Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId};

const ZONE: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const PAGEBLOCK: Order = Order(9);
const PAGEBLOCKS: u64 = 64;

fn yard_of(policy: ZonePolicy) -> Fixture {
    let memory = [(PfnRange::new(Pfn(0x8000), PageCount(PAGEBLOCKS << PAGEBLOCK.0)), NodeId(0))];
    let config = YardConfig {
        zone_limits: ZoneLimits::NONE,
        pcp_sizing: PcpSizing::Fixed(128),
        policy,
        ..YardConfig::new(&[NodeId(0); 2])
    };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

/// Allocates all memory in single frames, in random order.
fn fill(yard: &Fixture, random: &mut Random) -> Vec<Pfn> {
    let mut frames: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(Order::ZERO, MOVABLE | Gfp::NOWARN).ok()).collect();
    for last in (1..frames.len()).rev() {
        frames.swap(last, random.below(last as u64 + 1) as usize);
    }
    frames
}

/// Allocates all memory and frees half of it at random; the frames left.
fn fragment(yard: &Fixture, random: &mut Random) -> Vec<Pfn> {
    fragment_part(yard, 2, random)
}

/// Allocates all memory and frees one frame in `part` at random; the frames left.
fn fragment_part(yard: &Fixture, part: usize, random: &mut Random) -> Vec<Pfn> {
    let mut frames = fill(yard, random);
    give(yard, frames.split_off(frames.len() - frames.len() / part));
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

/// Steps of the background. Lists may serve all requests meanwhile, so that nothing else reviews pageblocks.
fn review(yard: &Fixture) {
    for _ in 0..4 {
        let _ = yard.compaction().background(NodeId(0), &Owners::NONE);
    }
}

/// Pageblocks that a request could have without draining lists.
fn whole(yard: &Fixture) -> u64 {
    let zone = yard.zone(ZONE);
    let of = |order: u8| zone.free_blocks(Order(order), MigrateType::Movable) << (order - PAGEBLOCK.0);
    (PAGEBLOCK.0..=yard.geometry().max_order().0).map(of).sum()
}

fn count(yard: &Fixture, name: &str) -> u64 {
    yard.zone(ZONE).mechanism_counts().get(name)
}

#[test]
fn fragmented_memory_becomes_whole_during_use() {
    let whole_under = |policy| {
        let (yard, mut random) = (yard_of(policy), Random::new(0x4ea1));
        run_on(0);
        let mut frames = fragment(&yard, &mut random);
        churn(&yard, &mut frames, 30, &mut random);
        yard.validate().unwrap();
        let whole = whole(&yard);
        give(&yard, frames);
        whole
    };
    assert!(whole_under(ZonePolicy::Depot) <= PAGEBLOCKS / 10);
    // Half of memory is free.
    assert!(whole_under(ZonePolicy::Healing) >= PAGEBLOCKS * 2 / 5);
}

#[test]
fn frames_that_circulate_need_no_zone_lock_once_memory_is_whole() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4ea2));
    run_on(0);
    let mut frames = fragment(&yard, &mut random);
    churn(&yard, &mut frames, 40, &mut random);
    let before = locks(&yard);
    churn(&yard, &mut frames, 1, &mut random);
    let (taken, pairs) = (locks(&yard) - before, frames.len() as u64);
    assert!(taken * 100 <= pairs, "{taken} acquisitions for {pairs} pairs");
    give(&yard, frames);
}

#[test]
fn whole_pageblocks_that_come_and_go_make_no_steps() {
    let (yard, mut random) = (yard_of(ZonePolicy::Vanilla), Random::new(0x4eac));
    run_on(0);
    yard.lists().resize(PcpSizing::Fixed(0));
    let mut block = yard.alloc(PAGEBLOCK, MOVABLE).unwrap();
    let mut frames = fragment(&yard, &mut random);
    yard.set_policy(ZonePolicy::Healing).unwrap();
    let (begun, before) = (count(&yard, "healing_begun"), locks(&yard));
    for _ in 0..100 {
        yard.free(block, PAGEBLOCK).unwrap();
        block = yard.alloc(PAGEBLOCK, MOVABLE).unwrap();
    }
    assert!(locks(&yard) >= before + 100, "each passes the zone lock");
    assert_eq!(count(&yard, "healing_begun"), begun);
    churn(&yard, &mut frames, 1, &mut random);
    assert!(count(&yard, "healing_begun") > begun, "small blocks make steps");
    yard.free(block, PAGEBLOCK).unwrap();
    give(&yard, frames);
}

#[test]
fn frames_of_draining_pageblocks_are_given_up_before_a_request_fails() {
    for gfp in [MOVABLE, Gfp::KERNEL] {
        let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4ea3));
        run_on(0);
        let mut frames = fragment(&yard, &mut random);
        churn(&yard, &mut frames, 3, &mut random);
        assert!(count(&yard, "healing_draining") > 0, "{gfp}");
        let all = std::iter::from_fn(|| yard.alloc(Order::ZERO, gfp | Gfp::NOWARN).ok());
        let more: Vec<Pfn> = all.collect();
        let left = yard.stats().free_pages().0;
        assert!(left <= yard.zone(ZONE).statistics().watermarks.min.0 + 1, "{gfp}: {left} frames are left");
        assert!(count(&yard, "healing_given_up") > 0, "{gfp}");
        yard.validate().unwrap();
        give(&yard, frames.into_iter().chain(more));
    }
}

#[test]
fn types_do_not_mix_while_a_whole_pageblock_of_another_type_is_free() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4ea4));
    run_on(0);
    let mut frames = fragment(&yard, &mut random);
    churn(&yard, &mut frames, 30, &mut random);
    let given_up = count(&yard, "healing_given_up");
    let kernel = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    assert_eq!(count(&yard, "healing_given_up"), given_up, "a whole pageblock was free");
    give(&yard, frames.into_iter().chain([kernel]));
}

#[test]
fn pageblocks_with_pinned_frames_do_not_drain() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4ea5));
    run_on(0);
    let mover = Mover::new(&yard);
    let mut frames = fill(&yard, &mut random);
    let is_first_of_pageblock = |pfn: &mut Pfn| pfn.is_aligned(PAGEBLOCK);
    let kept: Vec<Pfn> = frames.extract_if(.., is_first_of_pageblock).collect();
    assert!(kept.len() as u64 >= PAGEBLOCKS - 1);
    let slots: Vec<_> = kept.iter().map(|pfn| mover.adopt(*pfn, Order::ZERO)).collect();
    let page = |pfn: Pfn| {
        // SAFETY: the mover has adopted the frame, and it has a reference.
        unsafe { yard.counted().page(pfn) }.expect("a page")
    };
    kept.iter().for_each(|pfn| page(*pfn).try_pin_many(1).unwrap());
    give(&yard, frames.split_off(frames.len() / 2));
    churn(&yard, &mut frames, 5, &mut random);
    // The pageblock that the watermark kept free has no pinned frame.
    let begun = count(&yard, "healing_begun");
    assert!(begun < PAGEBLOCKS / 4, "{begun} pageblocks began to drain");
    assert!(count(&yard, "healing_rested") >= PAGEBLOCKS / 2);
    for (pfn, slot) in kept.into_iter().zip(slots) {
        page(pfn).unpin_many(1).unwrap();
        mover.free(slot);
    }
    give(&yard, frames);
}

#[test]
fn pageblocks_with_frames_that_stay_rest() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4ea6));
    run_on(0);
    let mut frames = fill(&yard, &mut random);
    // A frame of every fourth pageblock stays, and the yard does not know.
    let is_kept = |pfn: &mut Pfn| pfn.is_aligned(Order(PAGEBLOCK.0 + 2));
    let kept: Vec<Pfn> = frames.extract_if(.., is_kept).collect();
    give(&yard, frames.split_off(frames.len() / 2));
    let mut rounds = 0;
    while count(&yard, "healing_rested") == 0 {
        churn(&yard, &mut frames, 1, &mut random);
        review(&yard);
        rounds += 1;
        assert!(rounds < 200, "no pageblock rests");
    }
    churn(&yard, &mut frames, 30, &mut random);
    yard.validate().unwrap();
    give(&yard, frames.into_iter().chain(kept));
}

#[test]
fn no_pageblock_drains_under_another_policy() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4ea7));
    run_on(0);
    let mut frames = fragment(&yard, &mut random);
    churn(&yard, &mut frames, 3, &mut random);
    assert!(count(&yard, "healing_draining") > 0);
    let movable = |yard: &Fixture| yard.zone(ZONE).pageblocks(MigrateType::Movable);
    let before = movable(&yard);
    yard.set_policy(ZonePolicy::Depot).unwrap();
    assert_eq!(count(&yard, "healing_draining"), 0);
    assert_eq!(movable(&yard), before, "draining pageblocks count as movable ones");
    yard.validate().unwrap();
    churn(&yard, &mut frames, 1, &mut random);
    yard.set_policy(ZonePolicy::Healing).unwrap();
    for _ in 0..40 {
        review(&yard);
        churn(&yard, &mut frames, 1, &mut random);
    }
    assert!(whole(&yard) >= PAGEBLOCKS * 2 / 5);
    give(&yard, frames);
}

#[test]
fn pageblocks_whose_free_frames_were_taken_by_number_stop_draining() {
    // With some seeds, a step comes before all free frames are taken.
    let is_emptied = |ends_policy| (0..50).any(|seed| empty_draining_pageblock(seed, ends_policy));
    assert!(is_emptied(true) && is_emptied(false));
}

/// Takes the free frames of a draining pageblock by number, and checks that it stops draining; whether no step came in between.
fn empty_draining_pageblock(seed: u64, ends_policy: bool) -> bool {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(seed));
    run_on(0);
    // Few frames of each pageblock are free.
    let frames = fragment_part(&yard, 64, &mut random);
    yard.drain_all();
    review(&yard);
    let drains = |start: &Pfn| yard.stats().pageblock_type(*start) == Some(MigrateType::Draining);
    let take = |pfn| yard.request_range(PfnRange::new(pfn, PageCount(1)), MOVABLE).range().ok();
    let mut taken = Vec::new();
    let emptied = (0..PAGEBLOCKS).map(|number| Pfn(0x8000 + (number << PAGEBLOCK.0))).filter(drains).find(|start| {
        let frames = (0..PAGEBLOCK.pages().0).map(|at| *start + PageCount(at));
        taken.extend(frames.filter_map(take).map(|range| range.start));
        drains(start)
    });
    let Some(emptied) = emptied else {
        give(&yard, frames.into_iter().chain(taken));
        return false;
    };
    yard.validate().unwrap();
    if ends_policy {
        yard.set_policy(ZonePolicy::Depot).unwrap();
        assert_eq!(count(&yard, "healing_draining"), 0);
    } else {
        (0..3).for_each(|_| review(&yard));
    }
    assert!(!drains(&emptied));
    yard.validate().unwrap();
    give(&yard, frames.into_iter().chain(taken));
    true
}

#[test]
fn memory_becomes_whole_whatever_lists_hold() {
    for held in [0, 8, 50, 512] {
        let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4ea9));
        yard.lists().resize(PcpSizing::Fixed(held));
        run_on(0);
        let mut frames = fragment(&yard, &mut random);
        churn(&yard, &mut frames, 40, &mut random);
        yard.validate().unwrap();
        assert!(whole(&yard) >= PAGEBLOCKS * 2 / 5, "lists of {held}: {} pageblocks are whole", whole(&yard));
        give(&yard, frames);
    }
}

#[test]
fn threads_that_free_into_draining_pageblocks_lose_no_frame() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4eaa));
    run_on(0);
    let mut frames = fragment(&yard, &mut random);
    churn(&yard, &mut frames, 3, &mut random);
    assert!(count(&yard, "healing_draining") > 0);
    let shares: Vec<Vec<Pfn>> = frames.chunks(frames.len().div_ceil(4)).map(<[Pfn]>::to_vec).collect();
    let left: Vec<Vec<Pfn>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(shares)
            .map(|(number, mut share)| {
                let yard = &yard;
                scope.spawn(move || {
                    run_on(number % 2);
                    churn(yard, &mut share, 40, &mut Random::new(number.into()));
                    share
                })
            })
            .collect();
        // The policy begins and ends meanwhile.
        for policy in [ZonePolicy::Vanilla, ZonePolicy::Healing, ZonePolicy::Depot, ZonePolicy::Healing] {
            review(&yard);
            yard.set_policy(policy).unwrap();
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    yard.validate().unwrap();
    give(&yard, left.into_iter().flatten());
}

/// A zone in which pageblocks drain, with empty lists, and the frames in use by pageblock: of those that drain.
fn draining_pageblocks(yard: &Fixture, random: &mut Random) -> (Vec<Vec<Pfn>>, Vec<Pfn>) {
    run_on(0);
    let mut frames = fragment(yard, random);
    churn(yard, &mut frames, 3, random);
    yard.drain_all();
    let drains = |pfn: &mut Pfn| yard.stats().pageblock_type(*pfn) == Some(MigrateType::Draining);
    let mut draining: Vec<Pfn> = frames.extract_if(.., drains).collect();
    draining.sort();
    let pageblocks = draining.chunk_by(|a, b| a.align_down(PAGEBLOCK) == b.align_down(PAGEBLOCK));
    (pageblocks.map(<[Pfn]>::to_vec).collect(), frames)
}

fn state(yard: &Fixture, pfn: Pfn) -> FrameState {
    yard.stats().frame(pfn).expect("a frame").state
}

#[test]
fn frames_freed_in_draining_pageblocks_take_no_zone_lock_and_count_as_free() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4eab));
    let (pageblocks, rest) = draining_pageblocks(&yard, &mut random);
    let counts = || {
        let zone = yard.zone(ZONE).statistics();
        (yard.stats().free_pages(), zone.free, zone.frees, zone.pages_freed)
    };
    let (taken, (free, in_zone, frees, pages)) = (locks(&yard), counts());
    let freed: Vec<Pfn> = pageblocks.iter().flat_map(|frames| &frames[1..]).copied().collect();
    assert!(freed.len() > 100);
    give(&yard, freed.iter().copied());
    let number = freed.len() as u64;
    let after = (free + PageCount(number), in_zone + PageCount(number), frees + number, pages + number);
    assert_eq!((locks(&yard), counts()), (taken, after));
    assert_eq!(yard.zone(ZONE).depot_blocks(Order::ZERO, MigrateType::Movable), number);
    for pfn in &freed {
        let refused = yard.free(*pfn, Order::ZERO).expect_err("a second free").problem;
        assert_eq!(refused, FreeProblem::AlreadyFree(FrameState::HeldFree));
    }
    assert_eq!((locks(&yard), counts()), (taken, after), "the refused frees changed nothing");
    yard.drain_all();
    assert_eq!(counts(), after);
    assert!(freed.iter().all(|pfn| state(&yard, *pfn) != FrameState::HeldFree));
    yard.validate().unwrap();
    give(&yard, pageblocks.iter().map(|frames| frames[0]).chain(rest));
}

/// The zone lock's acquisitions during a call.
fn locks_in(yard: &Fixture, call: impl FnOnce()) -> u64 {
    let before = locks(yard);
    call();
    locks(yard) - before
}

#[test]
fn frames_that_lists_have_no_room_for_come_back_without_the_zone_lock() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4eaf));
    run_on(0);
    let mut frames = fill(&yard, &mut random);
    // The first free frame of each pageblock opens it.
    give(&yard, frames.split_off(frames.len() * 3 / 4));
    let more = frames.split_off(frames.len() - 4096);
    let freed = more.len() as u64;
    let held = |yard: &Fixture| yard.zone(ZONE).depot_blocks(Order::ZERO, MigrateType::Movable);
    let before = held(&yard);
    let steps = freed / 256 + 1;
    assert!(locks_in(&yard, || give(&yard, more)) <= steps, "only steps take the lock");
    assert!(held(&yard) >= before + freed - 512, "frames are on chains");
    yard.validate().unwrap();
    // The validator has gathered the chains. These frames form new ones.
    give(&yard, frames.split_off(frames.len() - 4096));
    let mut taken = Vec::new();
    let took = locks_in(&yard, || taken.extend((0..2048).map(|_| yard.alloc(Order::ZERO, MOVABLE).unwrap())));
    assert!(took <= steps, "{took} holds for {} frames", taken.len());
    yard.validate().unwrap();
    give(&yard, frames.into_iter().chain(taken));
}

#[test]
fn pageblocks_become_whole_when_lists_give_up_their_last_frame() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4eb0));
    run_on(0);
    let (first, mut rest): (Vec<Pfn>, Vec<Pfn>) =
        fill(&yard, &mut random).into_iter().partition(|pfn| pfn.align_down(PAGEBLOCK) == Pfn(0x8000));
    assert_eq!(first.len() as u64, PAGEBLOCK.pages().0);
    // In random order, so that few are neighbours. Then other frames take their place on the list.
    give(&yard, first.iter().copied());
    give(&yard, rest.split_off(rest.len() - 256));
    let found = yard.stats().frame(first[0]).expect("a frame");
    assert_eq!((found.state, found.order), (FrameState::BuddyFree, PAGEBLOCK));
    yard.validate().unwrap();
    give(&yard, rest);
}

#[test]
fn frames_on_chains_can_be_taken_by_number() {
    for drains in [false, true] {
        let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4eb1));
        run_on(0);
        let mut frames = fill(&yard, &mut random);
        give(&yard, frames.split_off(frames.len() / 2));
        let is_chained = |pfn: &Pfn| {
            let draining = yard.stats().pageblock_type(*pfn) == Some(MigrateType::Draining);
            draining == drains && state(&yard, *pfn) == FrameState::HeldFree
        };
        let all = (0..PAGEBLOCKS << PAGEBLOCK.0).map(|at| Pfn(0x8000 + at));
        let chained: Vec<Pfn> = all.filter(is_chained).take(100).collect();
        assert!(chained.len() == 100, "{} frames", chained.len());
        for pfn in chained {
            let range = PfnRange::new(pfn, PageCount(1));
            frames.push(yard.request_range(range, MOVABLE).range().expect("a free frame").start);
        }
        yard.validate().unwrap();
        give(&yard, frames);
    }
}

#[test]
fn pageblocks_become_whole_when_their_last_frame_is_freed() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4eac));
    let (pageblocks, rest) = draining_pageblocks(&yard, &mut random);
    for frames in pageblocks {
        if yard.stats().pageblock_type(frames[0]) != Some(MigrateType::Draining) {
            // A step has ended its draining.
            give(&yard, frames);
            continue;
        }
        let (healed, whole_before, taken) = (count(&yard, "healing_healed"), whole(&yard), locks(&yard));
        give(&yard, frames[1..].iter().copied());
        assert_eq!((count(&yard, "healing_healed"), whole(&yard), locks(&yard)), (healed, whole_before, taken));
        give(&yard, [frames[0]]);
        assert_eq!((count(&yard, "healing_healed"), whole(&yard)), (healed + 1, whole_before + 1));
        assert_eq!(locks(&yard), taken + 1, "all frames in one hold");
        assert_eq!(yard.stats().pageblock_type(frames[0]), Some(MigrateType::Movable));
    }
    yard.validate().unwrap();
    give(&yard, rest);
}

#[test]
fn larger_blocks_form_from_frames_freed_in_draining_pageblocks() {
    for gfp in [MOVABLE, MOVABLE.without(Gfp::DIRECT_RECLAIM)] {
        let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4ead));
        let (mut in_use, rest) = draining_pageblocks(&yard, &mut random);
        // Whole pageblocks are cut first.
        let large = Order(PAGEBLOCK.0 - 1);
        let all = || std::iter::from_fn(|| yard.alloc(large, gfp | Gfp::NOWARN).ok()).collect::<Vec<Pfn>>();
        let before = all();
        let drains = |frames: &mut Vec<Pfn>| yard.stats().pageblock_type(frames[0]) == Some(MigrateType::Draining);
        let pageblocks = Vec::from_iter(in_use.extract_if(.., drains));
        assert!(pageblocks.len() > 4, "{} pageblocks drain still", pageblocks.len());
        let freed: Vec<Pfn> = pageblocks.iter().flat_map(|frames| &frames[1..]).copied().collect();
        give(&yard, freed.iter().copied());
        assert!(freed.iter().all(|pfn| state(&yard, *pfn) == FrameState::HeldFree));
        let more = all();
        assert!(more.len() >= pageblocks.len(), "{gfp}: {} blocks of {} pageblocks", more.len(), pageblocks.len());
        yard.validate().unwrap();
        before.into_iter().chain(more).for_each(|pfn| yard.free(pfn, large).unwrap());
        give(&yard, pageblocks.iter().map(|frames| frames[0]).chain(in_use.into_iter().flatten()).chain(rest));
    }
}

#[test]
fn frames_of_draining_pageblocks_are_on_free_lists_once_the_policy_ends() {
    let (yard, mut random) = (yard_of(ZonePolicy::Healing), Random::new(0x4eae));
    let (pageblocks, rest) = draining_pageblocks(&yard, &mut random);
    let freed: Vec<Pfn> = pageblocks.iter().flat_map(|frames| &frames[1..]).copied().collect();
    give(&yard, freed.iter().copied());
    let free = yard.stats().free_pages();
    yard.set_policy(ZonePolicy::Vanilla).unwrap();
    assert_eq!(yard.stats().free_pages(), free);
    assert!(freed.iter().all(|pfn| state(&yard, *pfn) != FrameState::HeldFree));
    yard.validate().unwrap();
    give(&yard, pageblocks.iter().map(|frames| frames[0]).chain(rest));
}

#[test]
fn larger_blocks_wait_on_stacks_of_bounded_size() {
    for (order, cpus) in (4..PAGEBLOCK.0).flat_map(|order| [2, 28, 112].map(|cpus| (Order(order), cpus))) {
        let yard = Fixture::small(cpus, 1 << 20);
        yard.set_policy(ZonePolicy::Healing).unwrap();
        let zone = yard.stats().zones().max_by_key(|zone| zone.managed).unwrap().id;
        let take = || yard.alloc(order, MOVABLE).unwrap();
        yard.free(take(), order).unwrap();
        yard.validate().unwrap();
        let pairs = || (0..100).for_each(|_| yard.free(take(), order).unwrap());
        assert_eq!(locks_in(&yard, pairs), 0, "{order}, {cpus} CPUs");
        for _ in 0..3 {
            let held = Vec::from_iter((0..(1 << 14) >> order.0).map(|_| take()));
            held.iter().for_each(|pfn| yard.free(*pfn, order).unwrap());
            yard.validate().unwrap();
            let kept = yard.zone(zone).depot_blocks(order, MigrateType::Movable) << order.0;
            assert!(kept <= 512.max(8 << order.0), "{order}, {cpus} CPUs: {kept} frames");
        }
    }
}

#[test]
fn frames_of_other_types_on_lists_leave_movable_frames_their_room() {
    run_on(0);
    let yard = Fixture::small(64, 1 << 18);
    yard.set_policy(ZonePolicy::Healing).unwrap();
    let take = |frames: u64, gfp| Vec::from_iter((0..frames).map(|_| yard.alloc(Order::ZERO, gfp).unwrap()));
    give(&yard, take(40, Gfp::KERNEL));
    let round = || give(&yard, take(500, MOVABLE));
    round();
    assert_eq!(locks_in(&yard, || (0..10).for_each(|_| round())), 0);
    let zone = yard.stats().zones().max_by_key(|zone| zone.managed).unwrap().id;
    let held = yard.zone(zone).pcp(frameyard::CpuId(0)).unwrap().pages;
    assert!(held.0 <= 80 + 63, "{held}: movable frames up to their limit, and a part of a batch of others");
    yard.validate().unwrap();
}
