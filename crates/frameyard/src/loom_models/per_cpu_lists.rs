//! Per-CPU lists (`lists`): two threads use the lists of one CPU, because the scheduler may preempt one of them, while
//! another CPU drains the lists.

use crate::Gfp;
use crate::loom_models::machine::{Flaw, Locks, Machine, ZONE};
use crate::loom_models::{
    DAMAGES, PREEMPTIONS, assert_fails, assert_fails_within, explore, explore_within, in_long_runs,
};
use crate::units::{CpuId, Order, PageCount};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. Executions are long because they have three threads or take a lock many times. One
/// switch finds every broken variant.
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
    let explored = explore_within(in_long_runs(SWITCHES), || allocate_free_and_drain(Locks::SOUND));
    assert!(explored.contentions > 0, "no thread found a lock held");
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

/// One thread on CPU 0 frees one frame more than its array holds, another allocates, and CPU 1 drains. One thread packs
/// batches into pages and another unpacks them.
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
fn drain_takes_packed_batches() {
    let explored = explore_within(in_long_runs(SWITCHES), || overflow_and_drain(Locks::SOUND));
    assert!(explored.contentions > 0, "no thread found a lock held");
}

#[test]
fn packed_batches_without_release_fail() {
    assert_fails_within(in_long_runs(SWITCHES), || overflow_and_drain(per_cpu(Flaw::GivenBackRelaxed)), &DAMAGES);
}

/// The limits fall to zero and rise again while two threads of a CPU push and pop.
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
    assert!(explored.contentions > 0, "no thread found a lock held");
}

#[test]
fn push_without_lock_fails() {
    assert_fails(|| change_limits(per_cpu(Flaw::NeverRefused)), &DAMAGES);
}

/// The limits of CPU 0's lists rise from zero while CPU 1 reads the number of frames on these lists: zero.
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

/// All free frames are on the lists of CPU 0, where a thread allocates and frees one. CPU 1 needs a frame and drains the
/// lists.
fn allocate_by_draining(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(4), locks);
    main.fill_list(4);
    let owner = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let other = main.start(1, |runner| {
        let pfn = runner.take_with(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("three frames are always free");
        runner.give(pfn, Order::ZERO);
    });
    owner.join().unwrap();
    other.join().unwrap();
    main.finish();
}

#[test]
fn waiting_allocation_drains_other_cpu() {
    let explored = explore_within(in_long_runs(PREEMPTIONS), || allocate_by_draining(Locks::SOUND));
    assert!(explored.contentions > 0, "no thread found a lock held");
}

#[test]
fn draining_another_cpu_without_its_lock_fails() {
    assert_fails(|| allocate_by_draining(per_cpu(Flaw::NeverRefused)), &DAMAGES);
}
