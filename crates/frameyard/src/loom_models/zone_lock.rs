//! The zone lock (`zone`): two CPUs whose lists hold nothing, so that every frame crosses it, splitting and merging.

use super::machine::{Flaw, LARGEST, Locks, Machine};
use super::{DAMAGED, RACE, TWICE, assert_fails, explore};
use crate::PcpSizing;
use crate::units::Order;

/// Two CPUs allocate and free at the zone, one a single frame, one the largest block.
fn split_and_merge(locks: Locks) {
    let main = Machine::boot(2, PcpSizing::Fixed(0), locks);
    let held = main.take(Order::ZERO).unwrap();
    let threads =
        [(0, Order::ZERO), (1, LARGEST)].map(|(cpu, order)| main.start(cpu, move |runner| runner.take_and_give(order)));
    main.give(held, Order::ZERO);
    for thread in threads {
        thread.join().unwrap();
    }
    main.finish();
}

fn zone(flaw: Flaw) -> Locks {
    Locks { per_cpu: None, zone: Some(flaw) }
}

#[test]
fn blocks_split_and_merge_without_loss_under_the_zone_lock() {
    let explored = explore(|| split_and_merge(Locks::SOUND));
    assert!(explored.contentions > 0, "nobody waited for the lock");
}

#[test]
fn a_zone_lock_that_does_not_exclude_is_found() {
    assert_fails(|| split_and_merge(zone(Flaw::NeverRefused)), &[TWICE, RACE, DAMAGED]);
}

#[test]
fn a_zone_lock_that_does_not_acquire_is_found() {
    assert_fails(|| split_and_merge(zone(Flaw::TakenRelaxed)), &[TWICE, RACE, DAMAGED]);
}

#[test]
fn a_zone_lock_that_does_not_release_is_found() {
    assert_fails(|| split_and_merge(zone(Flaw::GivenBackRelaxed)), &[TWICE, RACE, DAMAGED]);
}
