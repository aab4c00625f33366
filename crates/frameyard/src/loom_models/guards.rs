//! Guards (`yard::frames`) against frees of the same frames by number. A free that comes first makes the request start again;
//! every later one is refused, because the guard has taken the block's entry in the allocation map.

use std::sync::{Arc, Mutex};

use crate::Gfp;
use crate::alloc::FreeProblem;
use crate::loom_models::machine::{LARGEST, Locks, Machine, Runner};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within, in_long_runs};
use crate::sync::{Weakness, weakened};
use crate::units::{Order, PageCount, Pfn};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. One switch finds every broken variant.
const SWITCHES: usize = 2;

/// The failure message for a free of frames that a guard owns.
const FREED: &str = "frames of a guard were freed by number";

/// Whether, over all executions, frees were refused, or freed a block that no guard owned yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    freed: bool,
    refused: bool,
}

type Outcomes = Arc<Mutex<Seen>>;

/// Frees a block that it never allocated; returns whether that succeeded.
fn free_by_number(runner: &Runner, pfn: Pfn, order: Order, seen: &Outcomes) {
    match runner.yard.free(pfn, order) {
        Ok(()) => seen.lock().unwrap().freed = true,
        Err(error) => {
            assert!(!matches!(error.problem, FreeProblem::Lock(_)), "{error}");
            seen.lock().unwrap().refused = true;
        }
    }
}

/// CPU 0 gets a guard of the lowest block and writes to its frames, while CPU 1 frees that block by number.
fn own_and_free(order: Order, sizing: PcpSizing, seen: &Outcomes) {
    let main = Machine::boot(1, sizing, Locks::SOUND);
    let target = main.take(order).expect("a free block");
    main.give(target, order);
    let other = main.start(1, {
        let seen = Arc::clone(seen);
        move |runner| free_by_number(runner, target, order, &seen)
    });
    // The block that a bad free took may wait on the list of CPU 1.
    if let Ok(guard) = main.yard.frames(order, Gfp::MOVABLE) {
        main.own(guard.pfn(), order);
        main.release(guard.pfn(), order);
        drop(guard);
    }
    other.join().unwrap();
    main.finish();
}

/// CPU 0 splits a guard of four frames and drops the guards of the parts, while CPU 1 frees the block and a part of it by number.
fn split_and_free(seen: &Outcomes) {
    let main = Machine::boot(1, PcpSizing::Fixed(2), Locks::SOUND);
    let guard = main.yard.frames(LARGEST, Gfp::MOVABLE).expect("a free block");
    let first = guard.pfn();
    main.own(first, LARGEST);
    let other = main.start(1, {
        let seen = Arc::clone(seen);
        move |runner| {
            for (pfn, order) in [(first, LARGEST), (Pfn(first.0 + 1), Order::ZERO)] {
                assert!(runner.yard.free(pfn, order).is_err(), "{FREED}");
            }
            seen.lock().unwrap().refused = true;
        }
    });
    for part in guard.into_single_frames() {
        main.release(part.pfn(), Order::ZERO);
    }
    other.join().unwrap();
    main.finish();
}

/// CPU 0 divides a guard of four frames and drops one part before the other, while CPU 1 frees the block and a part of it by
/// number.
fn divide_and_free(seen: &Outcomes) {
    let main = Machine::boot(1, PcpSizing::Fixed(2), Locks::SOUND);
    let guard = main.yard.frames(LARGEST, Gfp::MOVABLE).expect("a free block");
    let first = guard.pfn();
    main.own(first, LARGEST);
    let other = main.start(1, {
        let seen = Arc::clone(seen);
        move |runner| {
            for (pfn, order) in [(first, LARGEST), (first, Order::ZERO), (Pfn(first.0 + 2), Order(1))] {
                assert!(runner.yard.free(pfn, order).is_err(), "{FREED}");
            }
            seen.lock().unwrap().refused = true;
        }
    });
    let (single, rest) = guard.split_at(PageCount(1));
    for part in [rest, single] {
        part.range().blocks(LARGEST).for_each(|part| main.release(part.pfn, part.order));
        drop(part);
    }
    other.join().unwrap();
    main.finish();
}

/// CPU 0 gives a guard up and takes the frames over again, while CPU 1 frees them by number. One of them wins.
fn give_up_and_free(seen: &Outcomes) {
    let main = Machine::boot(1, PcpSizing::Fixed(2), Locks::SOUND);
    let guard = main.yard.frames(Order(1), Gfp::MOVABLE).expect("a free block");
    let pfn = guard.pfn();
    main.own(pfn, Order(1));
    let other = main.start(1, {
        let seen = Arc::clone(seen);
        move |runner| free_by_number(runner, pfn, Order(1), &seen)
    });
    main.release(pfn, Order(1));
    let range = guard.into_range();
    // Whatever the other thread did: the frames are free once.
    let freed = main.yard.free_range(range).is_ok();
    other.join().unwrap();
    assert!(freed || seen.lock().unwrap().freed, "frames were lost");
    main.finish();
}

const BOTH: Seen = Seen { freed: true, refused: true };

#[test]
fn a_free_by_number_never_takes_the_frames_of_a_guard() {
    for (order, sizing) in
        [(Order::ZERO, PcpSizing::Fixed(2)), (Order::ZERO, PcpSizing::Fixed(0)), (LARGEST, PcpSizing::Fixed(0))]
    {
        let seen = Outcomes::default();
        let in_model = Arc::clone(&seen);
        explore_within(SWITCHES, move || own_and_free(order, sizing, &in_model));
        assert_eq!(*seen.lock().unwrap(), BOTH, "an outcome was not explored");
    }
}

#[test]
fn parts_of_a_guard_cannot_be_freed_by_number() {
    explore_within(in_long_runs(SWITCHES), || split_and_free(&Outcomes::default()));
    explore_within(in_long_runs(SWITCHES), || divide_and_free(&Outcomes::default()));
}

#[test]
fn a_guard_that_is_given_up_is_freed_once() {
    let seen = Outcomes::default();
    let in_model = Arc::clone(&seen);
    explore_within(SWITCHES, move || give_up_and_free(&in_model));
    assert_eq!(*seen.lock().unwrap(), BOTH, "an outcome was not explored");
}

#[test]
fn a_guard_whose_claim_is_not_one_step_fails() {
    weakened(Weakness::SplitCompareExchange, || {
        let damages = [DAMAGES[0], DAMAGES[1], DAMAGES[2], DAMAGES[3], "frames were lost", "there are more frames"];
        for (order, sizing) in [(Order::ZERO, PcpSizing::Fixed(2)), (LARGEST, PcpSizing::Fixed(0))] {
            assert_fails_within(SWITCHES, move || own_and_free(order, sizing, &Outcomes::default()), &damages);
        }
    });
}
