//! The zone lock (`zone`): two CPUs whose lists hold nothing, so that every frame crosses it, splitting and merging.

use super::machine::{Flaw, LARGEST, Locks, Machine};
use super::{DAMAGES, assert_fails, explore_within};
use crate::units::Order;
use crate::watermarks::PcpSizing;

/// How many involuntary switches an execution has: three threads, or many holds of a lock. What is broken is found with one.
const SWITCHES: usize = 2;

/// CPU 0 frees a frame, so that its block merges, and splits a block again; CPU 1 takes a whole block and frees it.
fn split_and_merge(locks: Locks) {
    let main = Machine::boot(2, PcpSizing::Fixed(0), locks);
    let held = main.take(Order::ZERO).unwrap();
    let other = main.start(1, |runner| runner.take_and_give(LARGEST));
    main.give(held, Order::ZERO);
    main.take_and_give(Order::ZERO);
    other.join().unwrap();
    main.finish();
}

fn zone(flaw: Flaw) -> Locks {
    Locks { zone: Some(flaw), ..Locks::SOUND }
}

#[test]
fn split_and_merge_lose_nothing() {
    let explored = explore_within(SWITCHES, || split_and_merge(Locks::SOUND));
    assert!(explored.contentions > 0, "nobody waited for the lock");
}

#[test]
fn a_zone_lock_that_does_not_exclude_is_found() {
    assert_fails(|| split_and_merge(zone(Flaw::NeverRefused)), &DAMAGES);
}

#[test]
fn a_zone_lock_that_does_not_acquire_is_found() {
    assert_fails(|| split_and_merge(zone(Flaw::TakenRelaxed)), &DAMAGES);
}

#[test]
fn a_zone_lock_that_does_not_release_is_found() {
    assert_fails(|| split_and_merge(zone(Flaw::GivenBackRelaxed)), &DAMAGES);
}
