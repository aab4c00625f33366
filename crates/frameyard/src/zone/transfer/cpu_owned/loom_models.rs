//! Pageblocks that CPUs own (`zone::transfer::cpu_owned`): a frame goes to its owner while the pageblock is given up, goes back
//! to the zone, or is claimed; and the policy ends during a claim.
//!
//! A pageblock has two frames here, and no CPU keeps a whole one.

use crate::loom_models::machine::{Flaw, LARGEST, Locks, Machine, Runner, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within};
use crate::policy::ZonePolicy;
use crate::sync::{Weakness, weakened};
use crate::units::{Order, Pfn, PfnRange};
use crate::watermarks::PcpSizing;

/// How many involuntary switches an execution has. What is broken here is found with one.
const SWITCHES: usize = 2;
/// The same, where both threads go a long way.
const FEW_SWITCHES: usize = 1;

const PAGEBLOCK: Order = Order(1);
/// The failure of a pageblock that is owned although no CPU may own one.
const STILL_OWNED: &str = "is owned under another policy";

/// The failures of a broken zone lock: a block that is taken off a free list is on none.
const ZONE_DAMAGES: [&str; 6] = {
    let [a, b, c, d] = DAMAGES;
    [a, b, c, d, "is in-transit order", "is per-cpu order"]
};

/// A machine whose lists hold nothing, and a frame of a pageblock that CPU 0 owns.
fn owning(sections: u64, locks: Locks) -> (Runner, Pfn) {
    let main = Machine::boot(sections, PcpSizing::Fixed(0), locks);
    main.yard.set_policy(ZonePolicy::OwnedBlocks).expect("nobody else changes it");
    let pfn = main.take(Order::ZERO).unwrap();
    let owned = main.yard.zone(ZONE).mechanism_counts();
    assert_eq!(
        (owned.get("owned_pageblocks"), owned.get("owned_free_pages")),
        (1, 1),
        "the other frame of the pageblock is CPU 0's"
    );
    (main, pfn)
}

fn owned(flaw: Flaw) -> Locks {
    Locks { owned: Some(flaw), ..Locks::SOUND }
}

fn zone(flaw: Flaw) -> Locks {
    Locks { zone: Some(flaw), ..Locks::SOUND }
}

/// CPU 1 frees a frame to its owner, whose pageblocks are given up meanwhile.
fn free_and_collect(locks: Locks) {
    let (main, pfn) = owning(1, locks);
    let other = main.start(1, move |runner| runner.give(pfn, Order::ZERO));
    main.yard.zone(ZONE).drain();
    other.join().unwrap();
    main.finish();
}

#[test]
fn a_frame_freed_to_a_departing_owner_reaches_the_zone() {
    let explored = explore_within(SWITCHES, || free_and_collect(Locks::SOUND));
    assert!(explored.contentions > 0, "nobody found a lock held");
}

#[test]
fn giving_up_needs_the_owners_lock() {
    for flaw in [Flaw::NeverRefused, Flaw::TakenRelaxed, Flaw::GivenBackRelaxed] {
        assert_fails_within(SWITCHES, move || free_and_collect(owned(flaw)), &DAMAGES);
    }
}

#[test]
fn ownership_must_be_rechecked_under_the_owners_lock() {
    weakened(Weakness::OwnerNotRechecked, || {
        assert_fails_within(SWITCHES, || free_and_collect(Locks::SOUND), &DAMAGES);
    });
}

/// CPU 1 frees the frame that makes the pageblock whole, so that it goes back to the zone; its owner takes from it, or claims
/// it or another, meanwhile.
fn return_and_claim(locks: Locks) {
    let (main, pfn) = owning(1, locks);
    let other = main.start(1, move |runner| runner.give(pfn, Order::ZERO));
    main.take_and_give(Order::ZERO);
    other.join().unwrap();
    main.finish();
}

#[test]
fn a_pageblock_goes_back_whole_while_its_owner_takes_and_claims() {
    let explored = explore_within(SWITCHES, || return_and_claim(Locks::SOUND));
    assert!(explored.contentions > 0, "nobody found a lock held");
}

#[test]
fn taking_from_owned_memory_needs_the_owners_lock() {
    for flaw in [Flaw::NeverRefused, Flaw::TakenRelaxed, Flaw::GivenBackRelaxed] {
        assert_fails_within(SWITCHES, move || return_and_claim(owned(flaw)), &DAMAGES);
    }
}

/// Both CPUs claim pageblocks, and give them back.
fn claim_twice(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(0), locks);
    main.yard.set_policy(ZonePolicy::OwnedBlocks).expect("nobody else changes it");
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    main.take_and_give(Order::ZERO);
    other.join().unwrap();
    main.finish();
}

#[test]
fn no_pageblock_is_claimed_twice() {
    explore_within(SWITCHES, || claim_twice(Locks::SOUND));
}

#[test]
fn claiming_needs_the_zone_lock() {
    for flaw in [Flaw::NeverRefused, Flaw::TakenRelaxed, Flaw::GivenBackRelaxed] {
        assert_fails_within(SWITCHES, move || claim_twice(zone(flaw)), &ZONE_DAMAGES);
    }
}

/// CPU 1 claims and gives back while the policy changes.
fn end_policy(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(0), locks);
    main.yard.set_policy(ZonePolicy::OwnedBlocks).expect("nobody else changes it");
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    main.yard.set_policy(ZonePolicy::Vanilla).expect("nobody else changes it");
    let left = main.yard.zone(ZONE).mechanism_counts().get("owned_pageblocks");
    assert_eq!(left, 0, "a pageblock {STILL_OWNED}");
    other.join().unwrap();
    assert_eq!(main.yard.zone(ZONE).mechanism_counts().get("owned_pageblocks"), 0, "a pageblock {STILL_OWNED}");
    main.finish();
}

#[test]
fn nothing_is_owned_once_the_policy_has_changed() {
    explore_within(SWITCHES, || end_policy(Locks::SOUND));
}

#[test]
fn changing_the_policy_needs_the_locks_of_all_lists() {
    for flaw in [Flaw::NeverRefused, Flaw::TakenRelaxed] {
        let locks = Locks { per_cpu: Some(flaw), ..Locks::SOUND };
        let [a, b, c, d] = DAMAGES;
        assert_fails_within(SWITCHES, move || end_policy(locks), &[a, b, c, d, STILL_OWNED]);
    }
}

/// CPU 0 takes a whole pageblock by number that CPU 1 claims, takes from and gives back meanwhile.
fn isolate_and_claim(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(0), locks);
    main.yard.set_policy(ZonePolicy::OwnedBlocks).expect("nobody else changes it");
    let user = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    let range = PfnRange::new(Pfn(0), PAGEBLOCK.pages());
    if main.take_contiguous(range).is_ok() {
        main.give(range.start, PAGEBLOCK);
    }
    user.join().unwrap();
    main.finish();
}

#[test]
fn an_isolated_pageblock_has_no_owner() {
    explore_within(FEW_SWITCHES, || isolate_and_claim(Locks::SOUND));
}

#[test]
fn isolating_an_owned_pageblock_needs_the_zone_lock() {
    assert_fails_within(FEW_SWITCHES, || isolate_and_claim(zone(Flaw::NeverRefused)), &ZONE_DAMAGES);
}

/// CPU 0 takes a block larger than a pageblock, which needs what CPU 1 owns and gives back.
fn allocate_what_is_owned() {
    let (main, pfn) = owning(1, Locks::SOUND);
    let other = main.start(1, move |runner| runner.give(pfn, Order::ZERO));
    main.take_and_give(LARGEST);
    other.join().unwrap();
    main.finish();
}

#[test]
fn a_large_request_finds_free_blocks_of_owned_pageblocks() {
    explore_within(SWITCHES, allocate_what_is_owned);
}
