//! The per-CPU lists (`zone::pcp`): two threads on one CPU, of which one was preempted there, and another CPU that drains.

use super::machine::{Flaw, Locks, Machine, ZONE};
use super::{DAMAGES, assert_fails, explore, explore_within};
use crate::Gfp;
use crate::units::{CpuId, Order, PageCount};
use crate::watermarks::PcpSizing;

/// How many involuntary switches an execution has: three threads, or many holds of a lock. What is broken is found with one.
const SWITCHES: usize = 2;

/// Two threads on CPU 0 allocate and free while CPU 1 drains its lists.
fn allocate_free_and_drain(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(2), locks);
    main.fill_list(2);
    let threads = [0, 1].map(|_| main.start(0, |runner| runner.take_and_give(Order::ZERO)));
    main.yard.zone(ZONE).drain_cpu(CpuId(0));
    for thread in threads {
        thread.join().unwrap();
    }
    main.finish();
}

fn per_cpu(flaw: Flaw) -> Locks {
    Locks { per_cpu: Some(flaw), ..Locks::SOUND }
}

#[test]
fn allocations_race_drain() {
    let explored = explore_within(SWITCHES, || allocate_free_and_drain(Locks::SOUND));
    assert!(explored.contentions > 0, "nobody found a lock held");
}

#[test]
fn per_cpu_lock_without_exclusion_fails() {
    assert_fails(|| allocate_free_and_drain(per_cpu(Flaw::NeverRefused)), &DAMAGES);
}

#[test]
fn per_cpu_lock_without_acquire_fails() {
    assert_fails(|| allocate_free_and_drain(per_cpu(Flaw::TakenRelaxed)), &DAMAGES);
}

#[test]
fn per_cpu_lock_without_release_fails() {
    assert_fails(|| allocate_free_and_drain(per_cpu(Flaw::GivenBackRelaxed)), &DAMAGES);
}

/// A thread on CPU 0 frees one frame more than the array holds, another allocates, and CPU 1 drains: batches are
/// packed into pages by one thread and unpacked by another.
fn overflow_and_drain(locks: Locks) {
    let main = Machine::boot(2, PcpSizing::Fixed(8), locks);
    let fifth = main.take(Order::ZERO).unwrap();
    main.fill_list(4);
    let freeing = main.start(0, move |runner| runner.give(fifth, Order::ZERO));
    let taking = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    main.yard.zone(ZONE).drain_cpu(CpuId(0));
    freeing.join().unwrap();
    taking.join().unwrap();
    main.finish();
}

#[test]
fn packed_batches_pass_to_the_drain() {
    let explored = explore_within(SWITCHES, || overflow_and_drain(Locks::SOUND));
    assert!(explored.contentions > 0, "nobody found a lock held");
}

#[test]
fn packed_batches_need_the_lock_to_release() {
    assert_fails(|| overflow_and_drain(per_cpu(Flaw::GivenBackRelaxed)), &DAMAGES);
}

/// The limits fall to nothing and rise again while two threads of a CPU push and pop.
fn change_limits(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(2), locks);
    main.fill_list(2);
    let threads = [0, 1].map(|_| main.start(0, |runner| runner.take_and_give(Order::ZERO)));
    main.yard.lists().resize(PcpSizing::Fixed(0));
    main.yard.lists().resize(PcpSizing::Fixed(8));
    for thread in threads {
        thread.join().unwrap();
    }
    main.finish();
}

#[test]
fn counts_stay_exact_while_limits_change() {
    let explored = explore_within(SWITCHES, || change_limits(Locks::SOUND));
    assert!(explored.contentions > 0, "nobody found a lock held");
}

#[test]
fn push_without_lock_fails() {
    assert_fails(|| change_limits(per_cpu(Flaw::NeverRefused)), &DAMAGES);
}

/// Limits rise from nothing on CPU 0 while CPU 1 reads how many frames its lists hold: none.
fn read_counts_while_limits_change() {
    let main = Machine::boot(1, PcpSizing::Fixed(0), Locks::SOUND);
    let reader = main.start(1, |runner| {
        let count = runner.yard.zone(ZONE).pcp(CpuId(0)).unwrap().count;
        assert!(count <= PageCount(8), "lists with a limit of 8 seem to hold {count}");
    });
    main.yard.lists().resize(PcpSizing::Fixed(8));
    reader.join().unwrap();
    main.finish();
}

#[test]
fn racy_counts_never_underflow() {
    explore(read_counts_while_limits_change);
}

/// All free frames are on the lists of CPU 0, where a thread takes and gives one; CPU 1 needs one and drains them.
fn allocate_by_draining(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(4), locks);
    main.fill_list(4);
    let owner = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let other = main.start(1, |runner| {
        let pfn = runner.take_with(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("three frames are free all the time");
        runner.give(pfn, Order::ZERO);
    });
    owner.join().unwrap();
    other.join().unwrap();
    main.finish();
}

#[test]
fn waiting_allocation_drains_other_cpu() {
    let explored = explore(|| allocate_by_draining(Locks::SOUND));
    assert!(explored.contentions > 0, "nobody found a lock held");
}

#[test]
fn draining_another_cpu_needs_its_lock() {
    assert_fails(|| allocate_by_draining(per_cpu(Flaw::NeverRefused)), &DAMAGES);
}
