//! The zone lock (`zone`): two CPUs whose lists have no capacity, so every allocation and free takes the lock, splits and
//! merges.

use crate::loom_models::machine::{Flaw, LARGEST, Locks, Machine};
use crate::loom_models::{DAMAGES, assert_fails, explore_within};
use crate::units::Order;
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. Executions are long because they take the lock many times. One switch finds every
/// broken variant.
const SWITCHES: usize = 2;

/// CPU 0 frees a frame, so that its block merges, and splits a block again. CPU 1 allocates a whole block and frees it.
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
    assert!(explored.contentions > 0, "no thread waited for the lock");
}

#[test]
fn zone_lock_without_exclusion_fails() {
    assert_fails(|| split_and_merge(zone(Flaw::NeverRefused)), &DAMAGES);
}

#[test]
fn zone_lock_without_acquire_fails() {
    assert_fails(|| split_and_merge(zone(Flaw::TakenRelaxed)), &DAMAGES);
}

#[test]
fn zone_lock_without_release_fails() {
    assert_fails(|| split_and_merge(zone(Flaw::GivenBackRelaxed)), &DAMAGES);
}
