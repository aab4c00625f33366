//! The depot (`zone::transfer::depot`) in a yard: batches go from one CPU's list to another's while another CPU
//! drains, isolates, or changes the policy.

use std::sync::{Arc, Mutex};

use crate::loom_models::machine::{Flaw, LARGEST, Locks, Machine, Runner, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within};
use crate::policy::ZonePolicy;
use crate::sync::{Weakness, weakened};
use crate::units::{CpuId, Order, PageCount, Pfn, PfnRange};
use crate::watermarks::PcpSizing;
use crate::zone::transfer::{self, Quiescence};

/// How many involuntary switches an execution has. What is broken here is found with one.
const SWITCHES: usize = 2;
/// The same, where a thread looks at every page of the zone.
const FEW_SWITCHES: usize = 1;

/// The failure of batches that a collector has not returned although no wait gave up.
const NOT_THERE: &str = "a batch is held by another collector";
/// The failure of frames that are between the depot and a list although everything was emptied.
const IN_TRANSIT: &str = "frames are in transit";

/// A yard whose depot has a batch, and whose CPU 0 has full lists: the next frame that it frees pushes another.
fn stocked(locks: Locks) -> Runner {
    let main = Machine::boot(2, PcpSizing::Fixed(4), locks);
    main.yard.set_policy(ZonePolicy::Depot).expect("nobody else is there");
    main.fill_list(6);
    assert_eq!(main.yard.zone(ZONE).mechanism_counts().get("depot_batches"), 1, "the model does what it is for");
    main
}

/// CPU 0 frees all that it has, more than its lists hold, while CPU 1, which has nothing, takes two frames and gives them
/// back: from the depot, or from the zone.
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

/// CPU 0 frees so that a batch is pushed while CPU 1 needs the largest block.
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

/// CPU 0 frees so that a batch is pushed while CPU 1 takes a pageblock.
fn isolate_meanwhile(locks: Locks) {
    let main = stocked(locks);
    let pfn = main.take(Order::ZERO).unwrap();
    let other = main.start(1, move |runner| {
        let range = PfnRange::new(Pfn(pfn.0 ^ 2).align_down(Order(1)), PageCount(2));
        runner.take_contiguous(range).expect("nobody uses a frame of it");
        runner.give(range.start, Order(1));
    });
    main.give(pfn, Order::ZERO);
    other.join().unwrap();
    main.finish();
}

/// CPU 1 takes and gives while CPU 0 changes the policy.
fn switch_meanwhile(locks: Locks) {
    let main = stocked(locks);
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    main.yard.set_policy(ZonePolicy::Vanilla).expect("nobody stands still");
    assert_eq!(main.yard.zone(ZONE).mechanism_counts().get("depot_batches"), 0, "nothing is kept under another policy");
    other.join().unwrap();
    assert_eq!(main.yard.zone(ZONE).mechanism_counts().get("depot_batches"), 0, "nothing is kept under another policy");
    main.finish();
}

/// Two CPUs collect at once: the one that finds the depot empty waits for the batches of the other, or gives up.
fn collect_twice() {
    let main = stocked(Locks::SOUND);
    main.yard.zone(ZONE).drain_cpu(CpuId(0));
    let threads = [0, 1].map(|cpu| {
        main.start(cpu, |runner| {
            let view = runner.yard.zone_view(ZONE);
            let collected = transfer::collect(view, transfer::Collect::All);
            // Under the lock the count is exact.
            let locked = view.lock();
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

/// CPU 1, whose lists are empty, pops a batch and takes a frame, while CPU 0 suspends and isolates all of the zone and
/// empties the lists: no frame is on its way then but the one that is about to be handed out.
fn isolate_all_meanwhile() {
    let main = Machine::boot(1, PcpSizing::Fixed(4), Locks::SOUND);
    main.yard.set_policy(ZonePolicy::Depot).expect("nobody else is there");
    main.take_and_give(Order::ZERO);
    main.yard.zone(ZONE).drain_cpu(CpuId(0));
    assert_eq!(main.yard.zone(ZONE).mechanism_counts().get("depot_batches"), 1, "the model does what it is for");
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

/// Suspends and isolates all of the zone, empties everything, and counts the frames that are on their way.
fn isolate_all(runner: &Runner) {
    let view = runner.yard.zone_view(ZONE);
    let suspended = Quiescence::begin(view).expect("nothing is cut");
    let pageblocks = [0, 2].map(Pfn);
    pageblocks.into_iter().for_each(|pfn| assert!(view.lock().isolate_pageblock(pfn)));
    runner.yard.zone(ZONE).drain();
    let on_their_way = {
        let _locked = view.lock();
        (0..4).filter(|pfn| view.page(Pfn(*pfn)).tag().has_left_zone()).count()
    };
    pageblocks.into_iter().for_each(|pfn| view.lock().unisolate_pageblock(pfn));
    drop(suspended);
    assert!(on_their_way <= 1, "{IN_TRANSIT}: {on_their_way}");
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
fn a_large_request_collects_while_other_cpus_push() {
    explore_within(FEW_SWITCHES, || a_large_block_is_needed(Locks::SOUND));
}

#[test]
fn an_isolator_finds_the_frames_of_the_depot() {
    explore_within(FEW_SWITCHES, || isolate_meanwhile(Locks::SOUND));
}

#[test]
fn isolation_finds_no_batch_in_transit() {
    // With one switch it holds, too, but takes a minute.
    explore_within(0, isolate_all_meanwhile);
}

#[test]
fn a_wait_that_skips_empty_lists_misses_a_batch_in_transit() {
    weakened(Weakness::EmptyListsNotLocked, || {
        assert_fails_within(FEW_SWITCHES, isolate_all_meanwhile, &[IN_TRANSIT]);
    });
}

#[test]
fn an_unregistered_collector_is_not_waited_for() {
    weakened(Weakness::CollectorsNotRegistered, || {
        assert_fails_within(SWITCHES, collect_twice, &[NOT_THERE]);
    });
}

#[test]
fn without_ordering_an_empty_stack_hides_its_collector() {
    // The exchange that emptied the stack publishes the collector's registration, and the load of its top word acquires it.
    for weakness in [Weakness::RelaxedExchanges, Weakness::RelaxedLoadsOf(size_of::<u64>())] {
        weakened(weakness, || assert_fails_within(SWITCHES, collect_twice, &[NOT_THERE]));
    }
}

#[test]
fn a_policy_ends_when_every_list_was_locked() {
    explore_within(SWITCHES, || switch_meanwhile(Locks::SOUND));
}

#[test]
fn exchanges_that_order_nothing_are_found() {
    let broken = || assert_fails_within(SWITCHES, || batches_pass(Locks::SOUND), &DAMAGES);
    weakened(Weakness::RelaxedExchanges, broken);
}

#[test]
fn lists_that_are_not_locked_are_found() {
    let locks = Locks { per_cpu: Some(Flaw::NeverRefused), ..Locks::SOUND };
    let kept = [DAMAGES[0], DAMAGES[1], DAMAGES[2], DAMAGES[3], "nothing is kept under another policy"];
    assert_fails_within(SWITCHES, move || switch_meanwhile(locks), &kept);
}
