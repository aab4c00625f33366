//! Draining pageblocks (`zone::healing`, `zone::chains`): a pageblock begins or stops draining while another thread frees into
//! it, allocates, or leaves the policy.

use super::machine::{Flaw, LARGEST, Locks, Machine, Runner, Setup, ZONE};
use super::{DAMAGES, assert_fails_within, explore_within, in_long_runs, is_long_run};
use crate::Gfp;
use crate::policy::ZonePolicy;
use crate::sync::{Weakness, weakened};
use crate::units::{MigrateType, Order, Pfn};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. One switch finds every broken variant.
const SWITCHES: usize = 2;

/// The failure message for a yard that the validator refuses in the middle of a model.
const SOUND: &str = "a sound yard";

/// The failure message for a pageblock whose frames are all free, and which drains.
const DRAINS: &str = "the pageblock still drains";

/// The failure message for a request that finds none of two frames.
const OF_TWO: &str = "a frame of two";

/// The failure message for frames on the chain of a pageblock that was closed.
const LEFT: &str = "frames on chains of closed pageblocks";

/// The failure message for a free block on the list of a type that its pageblock has no more.
const WRONG_LIST: &str = "WrongList";

/// The failure messages for the same, or for a pageblock that was made one block before a late write to one of its pages.
const NOT_WHOLE: [&str; 2] = [DRAINS, "the validator objects"];

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

/// CPU 1 frees the last frame of a draining pageblock, and CPU 0, which has no other frames, needs one meanwhile.
fn request_while_whole() {
    let (main, [first, other]) = boot_draining();
    let in_use = [(); 2].map(|()| main.take(Order::ZERO).expect("a frame of the other pageblock"));
    main.give(first, Order::ZERO);
    let freer = main.start(1, move |runner| runner.give(other, Order::ZERO));
    let taken = main.take_with(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect(OF_TWO);
    freer.join().unwrap();
    give_and_finish(&main, in_use.into_iter().chain([taken]));
}

#[test]
fn frame_found_while_a_pageblock_becomes_whole() {
    explore_within(in_long_runs(SWITCHES), request_while_whole);
}

#[test]
fn frames_of_a_pageblock_that_becomes_whole_uncounted_fail() {
    weakened(Weakness::CollectorsNotRegistered, || assert_fails_within(1, request_while_whole, &[OF_TWO]));
}

/// A zone that heals, of pageblocks of four frames, and all its frames in order, which are in use. One frame of each pageblock stays in
/// use, those in `chained` join chains.
fn boot_open<const FRAMES: usize>(chained: &[usize]) -> (Runner, [Pfn; FRAMES]) {
    let setup = Setup { pageblock: LARGEST, ..Setup::new(PcpSizing::Fixed(4), Locks::SOUND) };
    let main = Machine::boot_with(FRAMES as u64 / LARGEST.pages().0, setup);
    main.yard.set_policy(ZonePolicy::Healing).expect("no other thread changes it");
    let mut frames = [(); FRAMES].map(|()| main.take(Order::ZERO).expect("a frame"));
    frames.sort();
    chained.iter().for_each(|frame| main.give_past_lists(frames[*frame]));
    assert_eq!(chained_frames(&main), chained.len() as u32, "frames on chains");
    (main, frames)
}

fn chained_frames(runner: &Runner) -> u32 {
    runner.yard.zone_view(ZONE).chained_frames()
}

/// Validates the yard, and frees what is still in use.
fn give_and_finish(main: &Runner, in_use: impl IntoIterator<Item = Pfn>) {
    main.yard.validate().expect(SOUND);
    in_use.into_iter().for_each(|pfn| main.give(pfn, Order::ZERO));
    main.finish();
}

/// CPU 0 takes two of the three frames of a chain, and CPU 1 frees the last frame of the pageblock meanwhile.
fn refill_and_push() {
    let (main, [.., last]) = boot_open::<4>(&[0, 2, 1]);
    let pusher = main.start(1, move |runner| runner.give_past_lists(last));
    let taken = main.take_with(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("a frame of three");
    pusher.join().unwrap();
    give_and_finish(&main, [taken]);
}

/// CPU 0 takes the frames of a chain, and CPU 1 frees another frame of the pageblock meanwhile.
fn refill_and_join() {
    let (main, [_, a, pushed, b]) = boot_open::<4>(&[0]);
    let pusher = main.start(1, move |runner| runner.give_past_lists(pushed));
    let taken = main.take(Order::ZERO);
    pusher.join().unwrap();
    give_and_finish(&main, [a, b].into_iter().chain(taken));
}

/// CPU 0 takes a frame of each of two chains, and pushes one frame back in front of which two other frames may have joined meanwhile.
fn refill_and_push_twice() {
    let (main, frames) = boot_open::<8>(&[0, 4, 6]);
    let [_, a, b, c, _, d, _, e] = frames;
    let pusher = main.start(1, move |runner| [d, e].into_iter().for_each(|pfn| runner.give_past_lists(pfn)));
    let taken = main.take_with(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("a frame of three");
    pusher.join().unwrap();
    give_and_finish(&main, [a, b, c, taken]);
}

/// As [`refill_and_push`]. CPU 1 takes a frame after its free, too.
fn refill_push_and_refill() {
    let (main, [.., last]) = boot_open::<4>(&[0, 2, 1]);
    let other = main.start(1, move |runner| {
        runner.give_past_lists(last);
        runner.take(Order::ZERO)
    });
    let taken = main.take(Order::ZERO);
    let other = other.join().unwrap();
    give_and_finish(&main, taken.into_iter().chain(other));
}

/// Two CPUs refill their lists from the same chain.
fn refill_twice() {
    let (main, [.., last]) = boot_open::<4>(&[0, 2, 1]);
    let other = main.start(1, |runner| runner.take(Order::ZERO));
    let taken = main.take(Order::ZERO);
    let other = other.join().unwrap();
    assert!(taken.is_some() || other.is_some(), "both requests failed");
    give_and_finish(&main, [last].into_iter().chain(taken).chain(other));
}

/// What another thread does to the pageblock of a frame.
type Change = fn(&Runner, Pfn);

/// CPU 0 takes two of the three frames of a chain, and CPU 1 closes the pageblock or changes its type meanwhile.
fn refill_and(change: Change) {
    let (main, [.., last]) = boot_open::<4>(&[0, 2, 1]);
    let other = main.start(1, move |runner| change(runner, last));
    let taken = main.take(Order::ZERO);
    other.join().unwrap();
    settle_and_finish(&main, [last].into_iter().chain(taken));
}

/// CPU 0 frees a frame of a pageblock that is or was open to its chain, and CPU 1 closes it or changes its type meanwhile.
fn push_and<const CHAINED: usize>(change: Change) {
    let (main, frames) = boot_open::<4>(&[0, 2][..CHAINED]);
    let [_, last, _, pushed] = frames;
    let other = main.start(1, move |runner| change(runner, last));
    main.give_past_lists(pushed);
    other.join().unwrap();
    let in_use = [0, 2].into_iter().skip(CHAINED).map(|frame| frames[frame]);
    settle_and_finish(&main, in_use.chain([last]));
}

/// CPU 0 frees the last frame of a pageblock of which the other three are on the chain, and CPU 1 closes it or changes its type
/// meanwhile.
fn push_last_and(change: Change) {
    let (main, [.., last]) = boot_open::<4>(&[0, 2, 1]);
    let other = main.start(1, move |runner| change(runner, last));
    main.give_past_lists(last);
    other.join().unwrap();
    settle_and_finish(&main, []);
}

/// CPU 0 frees the last frame of a draining pageblock, and CPU 1 closes it meanwhile.
fn push_last_of_draining_and(change: Change) {
    let (main, [first, other]) = boot_draining();
    main.give(first, Order::ZERO);
    let closer = main.start(1, move |runner| change(runner, first));
    main.give(other, Order::ZERO);
    closer.join().unwrap();
    settle_and_finish(&main, []);
}

/// Ends healing. In short runs without the rest of a change of the policy, which waits for the lists of all CPUs.
fn leave(runner: &Runner, _: Pfn) {
    if is_long_run() {
        runner.yard.set_policy(ZonePolicy::Vanilla).expect("no other thread changes it");
    } else {
        runner.yard.zone_view(ZONE).lock().unwrap().set_policy(ZonePolicy::Vanilla);
    }
}

/// Isolates the pageblock of a frame.
fn isolate(runner: &Runner, pfn: Pfn) {
    let view = runner.yard.zone_view(ZONE);
    assert!(view.lock().unwrap().isolate_pageblock(view.blocks.start_of(pfn)), "isolated once");
}

/// Makes the pageblock of a frame drain, if a step would.
fn look(runner: &Runner, pfn: Pfn) {
    let view = runner.yard.zone_view(ZONE);
    view.lock().unwrap().look_for_model(pfn);
}

/// Validates the yard, ends what the other thread began, and frees what is still in use.
fn settle_and_finish(main: &Runner, in_use: impl IntoIterator<Item = Pfn>) {
    let view = main.yard.zone_view(ZONE);
    if !view.zone.heals() || view.blocks.get(Pfn(0)) == MigrateType::Isolate {
        assert_eq!(chained_frames(main), 0, "{LEFT}");
    }
    main.yard.validate().expect(SOUND);
    view.lock().unwrap().unisolate_pageblock(Pfn(0));
    main.yard.set_policy(ZonePolicy::Vanilla).expect("no other thread changes it");
    give_and_finish(main, in_use);
}

#[test]
fn refill_from_a_chain_that_frames_join() {
    explore_within(SWITCHES, refill_and_join);
    explore_within(in_long_runs(SWITCHES), refill_and_push);
    explore_within(in_long_runs(SWITCHES), refill_and_push_twice);
}

#[test]
fn refills_from_the_same_chain() {
    explore_within(in_long_runs(SWITCHES), refill_twice);
    if is_long_run() {
        explore_within(1, refill_push_and_refill);
    }
}

#[test]
fn refill_while_its_pageblock_is_closed() {
    explore_within(SWITCHES, || refill_and(leave));
    explore_within(SWITCHES, || refill_and(isolate));
}

#[test]
fn refill_while_its_pageblock_begins_to_drain() {
    explore_within(SWITCHES, || refill_and(look));
}

#[test]
fn frame_merged_to_a_chain_while_its_pageblock_is_closed() {
    for change in [leave, isolate] as [Change; 2] {
        explore_within(SWITCHES, move || push_and::<0>(change));
        explore_within(SWITCHES, move || push_and::<2>(change));
    }
}

#[test]
fn frame_merged_to_a_chain_while_its_pageblock_begins_to_drain() {
    explore_within(SWITCHES, || push_and::<2>(look));
}

#[test]
fn last_frame_freed_while_its_pageblock_changes() {
    for change in [leave, isolate, look] as [Change; 3] {
        explore_within(in_long_runs(SWITCHES), move || push_last_and(change));
        explore_within(SWITCHES, move || push_last_of_draining_and(change));
    }
}

#[test]
fn refills_with_relaxed_exchanges_fail() {
    weakened(Weakness::RelaxedExchanges, || assert_fails_within(1, refill_and_join, &[SOUND]));
}

#[test]
fn refill_that_pushes_back_to_a_closed_pageblock_fails() {
    for change in [leave, isolate] as [Change; 2] {
        weakened(Weakness::ReturnedToClosed, || assert_fails_within(1, move || refill_and(change), &[LEFT]));
    }
}

#[test]
fn refill_that_forgets_frames_that_joined_fails() {
    for model in [refill_and_push, refill_and_push_twice] {
        weakened(Weakness::JoinedOverwritten, || assert_fails_within(1, model, &[SOUND]));
    }
}

#[test]
fn merge_that_does_not_notice_a_closed_pageblock_fails() {
    weakened(Weakness::ClosedNotNoticed, || assert_fails_within(1, || push_and::<2>(leave), &[LEFT]));
    weakened(Weakness::PolicyNotRechecked, || assert_fails_within(1, || push_and::<0>(leave), &[LEFT]));
}

#[test]
fn whole_pageblock_that_is_not_closed_again_fails() {
    weakened(Weakness::WholeNotClosed, || assert_fails_within(1, || push_last_and(look), &[SOUND]));
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
    weakened(Weakness::SplitCompareExchange, || assert_fails_within(1, push_and_push::<0>, &NOT_WHOLE));
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
