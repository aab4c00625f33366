//! Isolated pageblocks (`zone::isolate`, `yard::contig`): a request takes a range while another thread frees into the
//! range, allocates from it, or also requests it.

use crate::loom_models::machine::{Flaw, Locks, Machine, Runner, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore, explore_within, in_long_runs, is_long_run};
use crate::sync::{Weakness, weakened};
use crate::units::{Order, PageCount, Pfn, PfnRange};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. Executions are long because an isolation reads every page of its range. One switch
/// finds every broken variant.
const SWITCHES: usize = 2;
/// The same, for models in which both threads run long.
const FEW_SWITCHES: usize = 1;

const PAGEBLOCK: Order = Order(1);

fn pageblock_of(pfn: Pfn) -> PfnRange {
    PfnRange::new(pfn.align_down(PAGEBLOCK), PageCount(2))
}

/// Takes a pageblock, if possible, and frees it.
fn take_and_give(runner: &Runner, range: PfnRange) {
    if runner.take_contiguous(range).is_ok() {
        runner.give(range.start, PAGEBLOCK);
    }
}

/// CPU 0 takes the pageblock of a frame that CPU 1 frees meanwhile: to its list, or to the zone at once.
fn isolate_and_free(sizing: PcpSizing, locks: Locks) {
    let main = Machine::boot(1, sizing, locks);
    let pfn = main.take(Order::ZERO).unwrap();
    let taker = main.start(0, move |runner| take_and_give(runner, pageblock_of(pfn)));
    let freer = main.start(1, move |runner| runner.give(pfn, Order::ZERO));
    taker.join().unwrap();
    freer.join().unwrap();
    main.finish();
}

/// CPU 0 takes a pageblock that CPU 1 allocates from meanwhile.
fn isolate_and_allocate(sizing: PcpSizing, locks: Locks) {
    let main = Machine::boot(1, sizing, locks);
    let user = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    // The first thread of the model is on CPU 0. A thread of its own would attach first, with many accesses.
    take_and_give(&main, pageblock_of(Pfn(0)));
    user.join().unwrap();
    main.finish();
}

/// Two threads take the same pageblock.
fn isolate_twice(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(0), locks);
    let threads = [0, 1].map(|cpu| main.start(cpu, |runner| take_and_give(runner, pageblock_of(Pfn(2)))));
    for thread in threads {
        thread.join().unwrap();
    }
    main.finish();
}

#[test]
fn frame_freed_to_list_during_isolation() {
    explore_within(SWITCHES, || isolate_and_free(PcpSizing::Fixed(2), Locks::SOUND));
}

#[test]
fn frame_freed_to_zone_during_isolation() {
    explore_within(in_long_runs(FEW_SWITCHES), || isolate_and_free(PcpSizing::Fixed(0), Locks::SOUND));
}

#[test]
fn frame_allocated_during_isolation_is_kept() {
    explore_within(FEW_SWITCHES, || isolate_and_allocate(PcpSizing::Fixed(2), Locks::SOUND));
}

/// Two threads isolate the same pageblock and use its frames, without the other steps of a request.
fn isolate_twice_alone(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(0), locks);
    let threads = [0, 1].map(|cpu| {
        main.start(cpu, |runner| {
            let view = runner.yard.zone_view(ZONE);
            let isolated = view.lock().unwrap().isolate_pageblock(Pfn(2));
            if isolated {
                runner.own(Pfn(2), PAGEBLOCK);
                runner.release(Pfn(2), PAGEBLOCK);
                view.lock().unwrap().unisolate_pageblock(Pfn(2));
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    main.finish();
}

#[test]
fn one_thread_at_a_time_isolates_a_pageblock() {
    explore(|| isolate_twice_alone(Locks::SOUND));
    // Whole requests are long, and wait for each other: minutes, though loom switches threads only where one waits or ends.
    if is_long_run() {
        explore_within(0, || isolate_twice(Locks::SOUND));
    }
}

#[test]
fn free_that_reads_the_type_without_the_lock_fails() {
    weakened(Weakness::TypeReadUnlocked, || {
        assert_fails_within(FEW_SWITCHES, || isolate_and_free(PcpSizing::Fixed(0), Locks::SOUND), &DAMAGES);
    });
}

#[test]
fn isolation_without_lock_ordering_fails() {
    for flaw in [Flaw::TakenRelaxed, Flaw::GivenBackRelaxed, Flaw::NeverRefused] {
        let locks = Locks { zone: Some(flaw), ..Locks::SOUND };
        assert_fails_within(FEW_SWITCHES, move || isolate_and_free(PcpSizing::Fixed(0), locks), &DAMAGES);
        assert_fails_within(FEW_SWITCHES, move || isolate_and_allocate(PcpSizing::Fixed(2), locks), &DAMAGES);
        if is_long_run() {
            assert_fails_within(FEW_SWITCHES, move || isolate_twice(locks), &DAMAGES);
        }
        assert_fails_within(FEW_SWITCHES, move || isolate_twice_alone(locks), &DAMAGES);
    }
}
