//! The depot (`zone::transfer::depot`) in a yard: batches move from one CPU's list to another's while another CPU drains,
//! isolates, or changes the policy.

mod huge;
mod shelves;

use std::sync::{Arc, Mutex};

use crate::Gfp;
use crate::loom_models::machine::{Flaw, LARGEST, Locks, Machine, Runner, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within};
use crate::policy::ZonePolicy;
use crate::sync::{Weakness, weakened};
use crate::units::{CpuId, Order, PageCount, Pfn, PfnRange};
use crate::watermarks::PcpSizing;
use crate::zone::Patience;
use crate::zone::transfer::{self, Quiescence};

/// The bound of involuntary switches. One switch finds every broken variant.
const SWITCHES: usize = 2;
/// The same, for models in which a thread reads every page of the zone.
const FEW_SWITCHES: usize = 1;

/// The failure message for a collection that succeeds while another collector still holds a batch.
const NOT_THERE: &str = "a batch is held by another collector";
/// The failure message for frames that are in transit after everything was drained.
const IN_TRANSIT: &str = "frames are in transit";

/// The failure message for a request that fails though one frame of four is in use.
const NOT_FOUND: &str = "a request failed though there was memory";

/// A yard whose depot has a batch, and whose CPU 0 has full lists: the next frame that it frees pushes another.
fn stocked(locks: Locks) -> Runner {
    let main = Machine::boot(2, PcpSizing::Fixed(4), locks);
    main.yard.set_policy(ZonePolicy::Depot).expect("no other thread runs");
    main.fill_list(6);
    assert_eq!(main.yard.zone(ZONE).mechanism_counts().get("depot_batches"), 1, "the depot has one batch");
    main
}

/// CPU 0 frees more frames than its lists hold, while CPU 1, whose lists are empty, allocates two frames from the depot or
/// the zone and frees them.
fn batches_pass(locks: Locks) {
    let main = stocked(locks);
    let held = [(); 6].map(|()| main.take(Order::ZERO).unwrap());
    let other = main.start(1, |runner| {
        let frames = [(); 2].map(|()| runner.take(Order::ZERO));
        frames.into_iter().flatten().for_each(|pfn| runner.give(pfn, Order::ZERO));
    });
    held.into_iter().for_each(|pfn| main.give(pfn, Order::ZERO));
    other.join().unwrap();
    main.finish();
}

/// CPU 1 takes a frame through the depot while CPU 0 drains everything.
fn drain_meanwhile(locks: Locks) {
    let main = stocked(locks);
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    main.yard.drain_all();
    other.join().unwrap();
    main.finish();
}

/// CPU 0 pushes a batch while CPU 1 needs the largest block.
fn a_large_block_is_needed(locks: Locks) {
    let main = stocked(locks);
    let other = main.start(1, |runner| {
        if let Some(pfn) = runner.take(LARGEST) {
            runner.give(pfn, LARGEST);
        }
    });
    main.fill_list(5);
    other.join().unwrap();
    main.finish();
}

/// CPU 0 pushes a batch while CPU 1 allocates a pageblock by number.
fn isolate_meanwhile(locks: Locks) {
    let main = stocked(locks);
    let pfn = main.take(Order::ZERO).unwrap();
    let other = main.start(1, move |runner| {
        let range = PfnRange::new(Pfn(pfn.0 ^ 2).align_down(Order(1)), PageCount(2));
        runner.take_contiguous(range).expect("no frame of the range is in use");
        runner.give(range.start, Order(1));
    });
    main.give(pfn, Order::ZERO);
    other.join().unwrap();
    main.finish();
}

/// CPU 1 allocates and frees while CPU 0 changes the policy.
fn switch_meanwhile(locks: Locks) {
    let main = stocked(locks);
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    main.yard.set_policy(ZonePolicy::Vanilla).expect("no thread is stopped");
    assert_eq!(
        main.yard.zone(ZONE).mechanism_counts().get("depot_batches"),
        0,
        "the depot is empty under another policy"
    );
    other.join().unwrap();
    assert_eq!(
        main.yard.zone(ZONE).mechanism_counts().get("depot_batches"),
        0,
        "the depot is empty under another policy"
    );
    main.finish();
}

/// Two CPUs collect at once: the one that finds the depot empty waits for the batches of the other, or gives up.
fn collect_twice() {
    let main = stocked(Locks::SOUND);
    main.yard.zone(ZONE).drain_cpu(CpuId(0));
    let threads = [0, 1].map(|cpu| {
        main.start(cpu, |runner| {
            let view = runner.yard.zone_view(ZONE);
            let collected = transfer::collect(view, transfer::Collect::All(Patience::Sleeps));
            // Under the lock the count is exact.
            let locked = view.lock().unwrap();
            let free = view.zone.free_pages_racy();
            drop(locked);
            assert!(collected.is_err() || free == runner.yard.stats().managed_pages(), "{NOT_THERE}");
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    main.finish();
}

/// CPU 1, whose lists are empty, pops a batch and allocates a frame. CPU 0 quiesces the zone, isolates all of it and drains
/// the lists. After that at most the frame of CPU 1's allocation is in transit.
fn isolate_all_meanwhile() {
    let main = Machine::boot(1, PcpSizing::Fixed(4), Locks::SOUND);
    main.yard.set_policy(ZonePolicy::Depot).expect("no other thread runs");
    main.take_and_give(Order::ZERO);
    main.yard.zone(ZONE).drain_cpu(CpuId(0));
    assert_eq!(main.yard.zone(ZONE).mechanism_counts().get("depot_batches"), 1, "the depot has one batch");
    let taken = Arc::new(Mutex::new(None));
    let taker = {
        let taken = Arc::clone(&taken);
        main.start(1, move |runner| *taken.lock().unwrap() = runner.take(Order::ZERO))
    };
    let isolator = main.start(0, isolate_all);
    taker.join().unwrap();
    isolator.join().unwrap();
    if let Some(pfn) = taken.lock().unwrap().take() {
        main.give(pfn, Order::ZERO);
    }
    main.finish();
}

/// Quiesces the zone, isolates all of it, drains everything, and asserts that at most one frame is in transit.
fn isolate_all(runner: &Runner) {
    let view = runner.yard.zone_view(ZONE);
    let quiesced = Quiescence::begin(view, Patience::Sleeps).expect("no detachment is in progress");
    let pageblocks = [0, 2].map(Pfn);
    pageblocks.into_iter().for_each(|pfn| assert!(view.lock().unwrap().isolate_pageblock(pfn)));
    runner.yard.zone(ZONE).drain();
    let in_transit = {
        let _locked = view.lock().unwrap();
        (0..4).filter(|pfn| view.covering_block(Pfn(*pfn)).1.has_left_zone()).count()
    };
    pageblocks.into_iter().for_each(|pfn| view.lock().unwrap().unisolate_pageblock(pfn));
    drop(quiesced);
    assert!(in_transit <= 1, "{IN_TRANSIT}: {in_transit}");
}

/// CPU 1 carves all of memory into batches for one frame, while CPU 0 asks for a frame with a request that may sleep.
fn carve_meanwhile() {
    let main = Machine::boot(1, PcpSizing::Fixed(4), Locks::SOUND);
    main.yard.set_policy(ZonePolicy::Depot).expect("no other thread runs");
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    let pfn = main.take_with(Order::ZERO, Gfp::HIGHUSER_MOVABLE);
    main.give(pfn.expect(NOT_FOUND), Order::ZERO);
    other.join().unwrap();
    main.finish();
}

/// A zone with room for a refill that carves two blocks of one batch each: the first blocks of two sections, whose other blocks are in
/// use, are smaller than the rest. Returns the blocks in use.
fn fragmented() -> (Runner, [Pfn; 2]) {
    let main = Machine::boot(4, PcpSizing::Fixed(4), Locks::SOUND);
    let held = [2, 6].map(Pfn);
    for pfn in held {
        main.take_contiguous(PfnRange::new(pfn, PageCount(2))).expect("all memory is free");
    }
    main.yard.set_policy(ZonePolicy::Depot).expect("no other thread runs");
    (main, held)
}

/// CPU 1 carves two blocks without tags, while CPU 0 returns the batches of the depot to the zone, where their frames merge.
fn merge_beside_carving() {
    let (main, held) = fragmented();
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    let collector = main.start(0, |runner| {
        let _ = transfer::collect(runner.yard.zone_view(ZONE), transfer::Collect::All(Patience::Spins));
    });
    collector.join().unwrap();
    other.join().unwrap();
    held.into_iter().for_each(|pfn| main.give(pfn, Order(1)));
    main.finish();
}

/// CPU 1 carves two blocks without tags, while CPU 0 isolates the pageblock of one of them and takes it.
fn isolate_beside_carving() {
    let (main, held) = fragmented();
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    let at = [0, 4].map(Pfn).into_iter().find(|pfn| {
        let range = PfnRange::new(*pfn, PageCount(2));
        main.take_contiguous(range).is_ok()
    });
    // CPU 1 has a frame of at most one of them.
    main.give(at.expect(NOT_FOUND), Order(1));
    other.join().unwrap();
    held.into_iter().for_each(|pfn| main.give(pfn, Order(1)));
    main.finish();
}

#[test]
fn frames_of_a_block_that_is_carved_merge_and_are_isolated() {
    explore_within(SWITCHES, merge_beside_carving);
    explore_within(FEW_SWITCHES, isolate_beside_carving);
}

#[test]
fn clearing_a_head_after_its_frames_were_released_fails() {
    weakened(Weakness::HeadsClearedLate, || assert_fails_within(SWITCHES, merge_beside_carving, &DAMAGES));
}

#[test]
fn a_request_that_may_sleep_finds_the_frames_of_a_refill_in_progress() {
    explore_within(SWITCHES, carve_meanwhile);
}

#[test]
fn drain_that_skips_empty_lists_misses_a_refill_in_progress() {
    weakened(Weakness::EmptyListsNotLocked, || assert_fails_within(SWITCHES, carve_meanwhile, &[NOT_FOUND]));
}

#[test]
fn batches_pass_from_cpu_to_cpu() {
    explore_within(SWITCHES, || batches_pass(Locks::SOUND));
}

#[test]
fn draining_loses_no_batch() {
    explore_within(SWITCHES, || drain_meanwhile(Locks::SOUND));
    explore_within(SWITCHES, collect_twice);
}

#[test]
fn large_request_collects_while_another_cpu_pushes() {
    explore_within(FEW_SWITCHES, || a_large_block_is_needed(Locks::SOUND));
}

#[test]
fn isolation_finds_the_frames_of_the_depot() {
    explore_within(FEW_SWITCHES, || isolate_meanwhile(Locks::SOUND));
}

#[test]
fn isolation_finds_no_batch_in_transit() {
    // The model also holds with one switch, but that takes a minute.
    explore_within(0, isolate_all_meanwhile);
}

#[test]
fn quiescence_that_skips_empty_lists_fails() {
    weakened(Weakness::EmptyListsNotLocked, || {
        assert_fails_within(FEW_SWITCHES, isolate_all_meanwhile, &[IN_TRANSIT]);
    });
}

#[test]
fn unregistered_collector_fails() {
    weakened(Weakness::CollectorsNotRegistered, || {
        assert_fails_within(SWITCHES, collect_twice, &[NOT_THERE]);
    });
}

#[test]
fn emptying_a_stack_without_ordering_fails() {
    // The exchange that empties the stack releases the collector's registration. The load of the top word acquires it.
    for weakness in [Weakness::RelaxedExchanges, Weakness::RelaxedLoadsOf(size_of::<u64>())] {
        weakened(weakness, || assert_fails_within(SWITCHES, collect_twice, &[NOT_THERE]));
    }
}

#[test]
fn policy_change_waits_for_every_list() {
    explore_within(SWITCHES, || switch_meanwhile(Locks::SOUND));
}

#[test]
fn exchanges_without_ordering_fail() {
    let broken = || assert_fails_within(SWITCHES, || batches_pass(Locks::SOUND), &DAMAGES);
    weakened(Weakness::RelaxedExchanges, broken);
}

#[test]
fn policy_change_without_list_locks_fails() {
    let locks = Locks { per_cpu: Some(Flaw::NeverRefused), ..Locks::SOUND };
    let kept = [DAMAGES[0], DAMAGES[1], DAMAGES[2], DAMAGES[3], "the depot is empty under another policy"];
    assert_fails_within(SWITCHES, move || switch_meanwhile(locks), &kept);
}
