//! Draining pageblocks (`zone::healing`, `zone::chains`): a pageblock begins or stops draining while another thread frees into
//! it, allocates, or leaves the policy.

use super::machine::{Flaw, Locks, Machine, Runner, ZONE};
use super::{DAMAGES, assert_fails_within, explore_within, in_long_runs};
use crate::policy::ZonePolicy;
use crate::sync::{Weakness, weakened};
use crate::units::{Order, Pfn};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. One switch finds every broken variant.
const SWITCHES: usize = 2;

/// The failure message for a yard that the validator refuses in the middle of a model.
const SOUND: &str = "a sound yard";

/// The failure message for a pageblock whose frames are all free, and which drains.
const DRAINS: &str = "the pageblock still drains";

/// The failure message for a free block on the list of a type that its pageblock has no more.
const WRONG_LIST: &str = "WrongList";

/// A zone that heals, of two pageblocks, in which a frame of the first is in use and its other frame is free.
fn boot(sizing: PcpSizing, locks: Locks) -> (Runner, Pfn) {
    let main = Machine::boot(1, sizing, locks);
    main.yard.set_policy(ZonePolicy::Healing).expect("no other thread changes it");
    let pfn = main.take(Order::ZERO).unwrap();
    main.yard.drain_all();
    (main, pfn)
}

/// CPU 0 makes the pageblock of a frame drain that CPU 1 frees meanwhile: to its list, or to the zone at once.
fn drain_and_free(sizing: PcpSizing, locks: Locks) {
    let (main, pfn) = boot(sizing, locks);
    let freer = main.start(1, move |runner| runner.give(pfn, Order::ZERO));
    drain(&main, pfn);
    freer.join().unwrap();
    main.finish();
}

/// Makes the pageblock of a frame drain, unless it is whole.
fn drain(runner: &Runner, pfn: Pfn) {
    let view = runner.yard.zone_view(ZONE);
    view.lock().unwrap().drain_for_model(pfn);
}

/// CPU 0 makes a pageblock drain, and CPU 1 allocates and frees both frames of each pageblock meanwhile.
fn drain_and_allocate(sizing: PcpSizing, locks: Locks) {
    let (main, pfn) = boot(sizing, locks);
    let user = main.start(1, |runner| {
        let frames = [(); 3].map(|()| runner.take(Order::ZERO).expect("a draining pageblock gives its frames up"));
        frames.into_iter().for_each(|pfn| runner.give(pfn, Order::ZERO));
    });
    drain(&main, pfn);
    user.join().unwrap();
    main.give(pfn, Order::ZERO);
    main.finish();
}

/// CPU 0 allocates the free frame of a draining pageblock, which so stops draining, and CPU 1 frees the other frame meanwhile.
fn give_up_and_free() {
    let (main, pfn) = boot(PcpSizing::Fixed(0), Locks::SOUND);
    drain(&main, pfn);
    let freer = main.start(1, move |runner| runner.give(pfn, Order::ZERO));
    let taken = main.take(Order::ZERO).expect("a frame");
    freer.join().unwrap();
    main.yard.validate().expect(SOUND);
    main.give(taken, Order::ZERO);
    main.finish();
}

/// CPU 0 ends the policy under which a pageblock drains, and CPU 1 frees the last frame of that meanwhile.
fn leave_and_free(sizing: PcpSizing, locks: Locks) {
    let (main, pfn) = boot(sizing, locks);
    drain(&main, pfn);
    let freer = main.start(1, move |runner| runner.give(pfn, Order::ZERO));
    main.yard.set_policy(ZonePolicy::Vanilla).expect("no other thread changes it");
    freer.join().unwrap();
    main.finish();
}

/// Each CPU frees the last frame of a draining pageblock, and CPU 0 allocates frames that either has freed.
fn free_at_once<const TAKEN: usize>() {
    let (main, first) = boot(PcpSizing::Fixed(0), Locks::SOUND);
    let [neighbour, other] = [(); 2].map(|()| main.take(Order::ZERO).unwrap());
    main.give(neighbour, Order::ZERO);
    [first, other].into_iter().for_each(|pfn| drain(&main, pfn));
    let freer = main.start(1, move |runner| runner.give(other, Order::ZERO));
    main.give(first, Order::ZERO);
    let taken = [(); TAKEN].map(|()| main.take(Order::ZERO));
    freer.join().unwrap();
    taken.into_iter().flatten().for_each(|pfn| main.give(pfn, Order::ZERO));
    main.finish();
}

/// A draining pageblock both frames of which are in use.
fn boot_draining() -> (Runner, [Pfn; 2]) {
    let (main, first) = boot(PcpSizing::Fixed(0), Locks::SOUND);
    let other = main.take(Order::ZERO).unwrap();
    assert_eq!(other.align_down(Order(1)), first.align_down(Order(1)), "frames of a pageblock");
    drain(&main, first);
    (main, [first, other])
}

/// Both frames of a draining pageblock join its chain: the second one makes it whole.
fn push_and_push<const TAKEN: usize>() {
    let (main, [first, other]) = boot_draining();
    let freer = main.start(1, move |runner| runner.give(other, Order::ZERO));
    main.give(first, Order::ZERO);
    let taken = [(); TAKEN].map(|()| main.take(Order::ZERO));
    freer.join().unwrap();
    assert_eq!(main.yard.zone_view(ZONE).zone.healing.draining_racy(), 0, "{DRAINS}");
    taken.into_iter().flatten().for_each(|pfn| main.give(pfn, Order::ZERO));
    main.finish();
}

/// CPU 1 frees a frame of a draining pageblock, and CPU 0 ends the policy meanwhile.
fn push_and_close() {
    let (main, [first, other]) = boot_draining();
    let freer = main.start(1, move |runner| runner.give(other, Order::ZERO));
    main.yard.set_policy(ZonePolicy::Vanilla).expect("no other thread changes it");
    freer.join().unwrap();
    main.yard.validate().expect(SOUND);
    main.give(first, Order::ZERO);
    main.finish();
}

/// CPU 1 frees a frame of a draining pageblock, and CPU 0 gathers its chain and allocates meanwhile.
fn push_and_gather() {
    let (main, [first, other]) = boot_draining();
    let freer = main.start(1, move |runner| runner.give(other, Order::ZERO));
    main.yard.zone_view(ZONE).gather_chains();
    let taken = main.take(Order::ZERO).expect("a frame");
    freer.join().unwrap();
    [first, taken].into_iter().for_each(|pfn| main.give(pfn, Order::ZERO));
    main.finish();
}

#[test]
fn last_frames_of_draining_pageblocks_freed_at_once() {
    explore_within(in_long_runs(SWITCHES), free_at_once::<1>);
}

#[test]
fn frames_of_a_draining_pageblock_freed_at_once_make_it_whole() {
    explore_within(SWITCHES, push_and_push::<0>);
    explore_within(in_long_runs(SWITCHES), push_and_push::<2>);
}

#[test]
fn frame_that_joins_a_chain_while_the_policy_ends() {
    explore_within(in_long_runs(SWITCHES), push_and_close);
}

#[test]
fn frame_that_joins_a_chain_while_it_is_gathered() {
    explore_within(in_long_runs(SWITCHES), push_and_gather);
}

#[test]
fn chains_with_relaxed_exchanges_fail() {
    weakened(Weakness::RelaxedExchanges, || assert_fails_within(1, push_and_push::<2>, &DAMAGES));
}

#[test]
fn chains_with_split_exchanges_fail() {
    weakened(Weakness::SplitCompareExchange, || assert_fails_within(1, push_and_push::<0>, &[DRAINS]));
}

#[test]
fn push_that_does_not_notice_the_end_of_draining_fails() {
    weakened(Weakness::ClosedNotNoticed, || assert_fails_within(1, push_and_close, &[SOUND]));
}

#[test]
fn frame_freed_while_its_pageblock_begins_to_drain() {
    for sizing in [PcpSizing::Fixed(0), PcpSizing::Fixed(2)] {
        explore_within(SWITCHES, move || drain_and_free(sizing, Locks::SOUND));
    }
}

#[test]
fn frames_allocated_while_a_pageblock_begins_to_drain() {
    explore_within(in_long_runs(SWITCHES), || drain_and_allocate(PcpSizing::Fixed(0), Locks::SOUND));
}

#[test]
fn frame_freed_while_pageblocks_stop_draining() {
    explore_within(in_long_runs(SWITCHES), || leave_and_free(PcpSizing::Fixed(0), Locks::SOUND));
}

#[test]
fn frame_freed_while_its_pageblock_is_given_up() {
    explore_within(SWITCHES, give_up_and_free);
}

#[test]
fn healing_without_lock_ordering_fails() {
    for flaw in [Flaw::TakenRelaxed, Flaw::GivenBackRelaxed, Flaw::NeverRefused] {
        let locks = Locks { zone: Some(flaw), ..Locks::SOUND };
        assert_fails_within(1, move || drain_and_free(PcpSizing::Fixed(0), locks), &DAMAGES);
    }
}

#[test]
fn free_that_reads_the_type_without_the_lock_fails() {
    weakened(Weakness::TypeReadUnlocked, || {
        assert_fails_within(1, give_up_and_free, &[WRONG_LIST]);
    });
}
