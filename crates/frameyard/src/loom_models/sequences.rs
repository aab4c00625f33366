//! Per-CPU lists in restartable sequences (`platform::own_list`): two threads of one CPU use its lists without a lock, because the
//! scheduler may preempt one of them, while another CPU takes the lists to drain them.

use crate::loom_models::machine::{Flaw, Locks, Machine, Runner, Setup, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within};
use crate::sync::{Weakness, weakened};
use crate::units::{CpuId, Order};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches.
const SWITCHES: usize = 2;

fn boot(sections: u64, sizing: PcpSizing, locks: Locks) -> Runner {
    Machine::boot_with(sections, Setup { sequences: true, ..Setup::new(sizing, locks) })
}

/// A thread of CPU 0 frees a block to its list while CPU 1 drains the lists.
fn free_and_drain(locks: Locks) {
    let main = boot(1, PcpSizing::Fixed(3), locks);
    let held = main.take(Order::ZERO).unwrap();
    main.fill_list(2);
    let freeing = main.start(0, move |runner| runner.give(held, Order::ZERO));
    main.yard.zone(ZONE).drain_cpu(CpuId(0));
    freeing.join().unwrap();
    main.finish();
}

/// A thread of CPU 0 allocates from its list while CPU 1 drains the lists.
fn allocate_and_drain() {
    let main = boot(1, PcpSizing::Fixed(3), Locks::SOUND);
    main.fill_list(2);
    let allocating = main.start(0, |runner| runner.take(Order::ZERO));
    main.yard.zone(ZONE).drain_cpu(CpuId(0));
    if let Some(taken) = allocating.join().unwrap() {
        main.give(taken, Order::ZERO);
    }
    main.finish();
}

#[test]
fn a_free_in_a_sequence_races_a_drain() {
    explore_within(SWITCHES, || free_and_drain(Locks::SOUND));
}

#[test]
fn an_allocation_in_a_sequence_races_a_drain() {
    explore_within(SWITCHES, allocate_and_drain);
}

#[test]
fn draining_without_ending_sequences_fails() {
    weakened(Weakness::SequencesNotEnded, || {
        assert_fails_within(SWITCHES, || free_and_drain(Locks::SOUND), &DAMAGES);
    });
}

#[test]
fn taken_lists_given_back_relaxed_fail() {
    let flawed = Locks { per_cpu: Some(Flaw::GivenBackRelaxed), ..Locks::SOUND };
    assert_fails_within(SWITCHES, move || free_and_drain(flawed), &DAMAGES);
}

/// A thread of CPU 0 takes its empty lists for a refill, while CPU 1 changes their limits and drains them.
fn refill_and_drain(locks: Locks) {
    let main = boot(1, PcpSizing::Fixed(4), locks);
    let taking = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    main.yard.lists().resize(PcpSizing::Fixed(2));
    main.yard.zone(ZONE).drain_cpu(CpuId(0));
    taking.join().unwrap();
    main.finish();
}

#[test]
fn taken_lists_race_a_drain() {
    let explored = explore_within(SWITCHES, || refill_and_drain(Locks::SOUND));
    assert!(explored.contentions > 0, "no thread found the lists taken");
}

#[test]
fn taken_lists_without_exclusion_fail() {
    let flawed = Locks { per_cpu: Some(Flaw::NeverRefused), ..Locks::SOUND };
    assert_fails_within(SWITCHES, move || refill_and_drain(flawed), &DAMAGES);
}
