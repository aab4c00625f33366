//! CPU-owned pageblocks (`zone::transfer::cpu_owned`): a CPU frees a frame to the owner of its pageblock while the owner gives
//! the pageblock up, returns it to the zone, or claims another. Also, the policy ends during a claim.
//!
//! A pageblock has two frames here. No CPU keeps a pageblock whose frames are all free.

use crate::loom_models::machine::{Flaw, LARGEST, Locks, Machine, Runner, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within};
use crate::policy::ZonePolicy;
use crate::sync::{Weakness, weakened};
use crate::units::{Order, Pfn, PfnRange};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. One switch finds every broken variant.
const SWITCHES: usize = 2;
/// The same, for models in which both threads run long.
const FEW_SWITCHES: usize = 1;

const PAGEBLOCK: Order = Order(1);
/// The failure message for a pageblock that a CPU owns under another policy.
const STILL_OWNED: &str = "is owned under another policy";

/// The failure messages for a broken zone lock: the block to take off a free list is on none.
const ZONE_DAMAGES: [&str; 6] = {
    let [a, b, c, d] = DAMAGES;
    [a, b, c, d, "is in-transit order", "is per-cpu order"]
};

/// A machine whose lists have no capacity, and an allocated frame of a pageblock that CPU 0 owns.
fn owning(sections: u64, locks: Locks) -> (Runner, Pfn) {
    let main = Machine::boot(sections, PcpSizing::Fixed(0), locks);
    main.yard.set_policy(ZonePolicy::OwnedBlocks).expect("no other thread changes it");
    let pfn = main.take(Order::ZERO).unwrap();
    let owned = main.yard.zone(ZONE).mechanism_counts();
    assert_eq!(
        (owned.get("owned_pageblocks"), owned.get("owned_free_pages")),
        (1, 1),
        "CPU 0 owns the pageblock with one free frame"
    );
    (main, pfn)
}

fn owned(flaw: Flaw) -> Locks {
    Locks { owned: Some(flaw), ..Locks::SOUND }
}

fn zone(flaw: Flaw) -> Locks {
    Locks { zone: Some(flaw), ..Locks::SOUND }
}

/// CPU 1 frees a frame to its owner, CPU 0, while CPU 0 gives up its pageblocks.
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
    assert!(explored.contentions > 0, "no thread found a lock held");
}

#[test]
fn giving_up_without_the_owners_lock_fails() {
    for flaw in [Flaw::NeverRefused, Flaw::TakenRelaxed, Flaw::GivenBackRelaxed] {
        assert_fails_within(SWITCHES, move || free_and_collect(owned(flaw)), &DAMAGES);
    }
}

#[test]
fn ownership_not_rechecked_under_the_owners_lock_fails() {
    weakened(Weakness::OwnerNotRechecked, || {
        assert_fails_within(SWITCHES, || free_and_collect(Locks::SOUND), &DAMAGES);
    });
}

/// CPU 1 frees the last allocated frame of the pageblock, so the pageblock returns to the zone. Its owner allocates from it
/// or claims a pageblock at the same time.
fn return_and_claim(locks: Locks) {
    let (main, pfn) = owning(1, locks);
    let other = main.start(1, move |runner| runner.give(pfn, Order::ZERO));
    main.take_and_give(Order::ZERO);
    other.join().unwrap();
    main.finish();
}

#[test]
fn pageblock_returns_while_its_owner_allocates() {
    let explored = explore_within(SWITCHES, || return_and_claim(Locks::SOUND));
    assert!(explored.contentions > 0, "no thread found a lock held");
}

#[test]
fn allocation_without_the_owners_lock_fails() {
    for flaw in [Flaw::NeverRefused, Flaw::TakenRelaxed, Flaw::GivenBackRelaxed] {
        assert_fails_within(SWITCHES, move || return_and_claim(owned(flaw)), &DAMAGES);
    }
}

/// Both CPUs claim pageblocks and return them.
fn claim_twice(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(0), locks);
    main.yard.set_policy(ZonePolicy::OwnedBlocks).expect("no other thread changes it");
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
fn claim_without_the_zone_lock_fails() {
    for flaw in [Flaw::NeverRefused, Flaw::TakenRelaxed, Flaw::GivenBackRelaxed] {
        assert_fails_within(SWITCHES, move || claim_twice(zone(flaw)), &ZONE_DAMAGES);
    }
}

/// CPU 1 claims a pageblock and returns it while the policy changes.
fn end_policy(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(0), locks);
    main.yard.set_policy(ZonePolicy::OwnedBlocks).expect("no other thread changes it");
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    main.yard.set_policy(ZonePolicy::Vanilla).expect("no other thread changes it");
    let left = main.yard.zone(ZONE).mechanism_counts().get("owned_pageblocks");
    assert_eq!(left, 0, "a pageblock {STILL_OWNED}");
    other.join().unwrap();
    assert_eq!(main.yard.zone(ZONE).mechanism_counts().get("owned_pageblocks"), 0, "a pageblock {STILL_OWNED}");
    main.finish();
}

#[test]
fn no_pageblock_is_owned_after_the_policy_change() {
    explore_within(SWITCHES, || end_policy(Locks::SOUND));
}

#[test]
fn policy_change_without_list_locks_fails() {
    for flaw in [Flaw::NeverRefused, Flaw::TakenRelaxed] {
        let locks = Locks { per_cpu: Some(flaw), ..Locks::SOUND };
        let [a, b, c, d] = DAMAGES;
        assert_fails_within(SWITCHES, move || end_policy(locks), &[a, b, c, d, STILL_OWNED]);
    }
}

/// CPU 0 allocates a pageblock by number while CPU 1 claims it, allocates from it and returns it.
fn isolate_and_claim(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(0), locks);
    main.yard.set_policy(ZonePolicy::OwnedBlocks).expect("no other thread changes it");
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
fn isolation_without_the_zone_lock_fails() {
    assert_fails_within(FEW_SWITCHES, || isolate_and_claim(zone(Flaw::NeverRefused)), &ZONE_DAMAGES);
}

/// CPU 0 allocates a block larger than a pageblock while CPU 1 frees the frame that completes it. The block includes a
/// pageblock that CPU 0 owns.
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
