//! Per-CPU lists in sections (`platform::own_list`): two threads of one CPU use its lists without a lock, because the scheduler may
//! preempt one of them, while another CPU takes the lists to drain them.

use super::machine::{Flaw, Locks, Machine, Runner, Setup, ZONE};
use super::{DAMAGES, assert_fails_within, explore_within, in_long_runs};
use crate::sync::{Weakness, weakened};
use crate::units::{CpuId, Order};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches.
const SWITCHES: usize = 2;

fn boot(sections: u64, sizing: PcpSizing, locks: Locks) -> Runner {
    Machine::boot_with(sections, Setup { sections: true, ..Setup::new(sizing, locks) })
}

/// Two threads on CPU 0 allocate and free while CPU 1 drains its lists.
fn allocate_free_and_drain(locks: Locks) {
    let main = boot(1, PcpSizing::Fixed(2), locks);
    main.fill_list(2);
    let threads = [0, 1].map(|_| main.start(0, |runner| runner.take_and_give(Order::ZERO)));
    main.yard.zone(ZONE).drain_cpu(CpuId(0));
    for thread in threads {
        thread.join().unwrap();
    }
    main.finish();
}

#[test]
fn sections_race_drain() {
    let explored = explore_within(in_long_runs(SWITCHES), || allocate_free_and_drain(Locks::SOUND));
    assert!(explored.contentions > 0, "no thread found the lists taken");
}

#[test]
fn draining_without_ending_sections_fails() {
    weakened(Weakness::SectionsNotEnded, || {
        assert_fails_within(SWITCHES, || allocate_free_and_drain(Locks::SOUND), &DAMAGES);
    });
}

#[test]
fn taken_lists_without_exclusion_fail() {
    let flawed = Locks { per_cpu: Some(Flaw::NeverRefused), ..Locks::SOUND };
    assert_fails_within(SWITCHES, move || allocate_free_and_drain(flawed), &DAMAGES);
}

#[test]
fn taken_lists_given_back_relaxed_fail() {
    let flawed = Locks { per_cpu: Some(Flaw::GivenBackRelaxed), ..Locks::SOUND };
    assert_fails_within(SWITCHES, move || allocate_free_and_drain(flawed), &DAMAGES);
}

/// A thread of CPU 0 takes its lists for a refill or a drain while another uses them in sections, and CPU 1 changes their limits.
fn overflow_and_resize() {
    let main = boot(2, PcpSizing::Fixed(8), Locks::SOUND);
    let fifth = main.take(Order::ZERO).unwrap();
    main.fill_list(4);
    let freeing = main.start(0, move |runner| runner.give(fifth, Order::ZERO));
    let taking = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    main.yard.lists().resize(PcpSizing::Fixed(2));
    freeing.join().unwrap();
    taking.join().unwrap();
    main.finish();
}

#[test]
fn sections_race_a_resize() {
    explore_within(SWITCHES, overflow_and_resize);
}
