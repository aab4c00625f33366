//! Two frees of one block (`yard::free`), and a free of a part of a block that is joined (`yard::join`): the exchange on the allocation
//! map decides the race, and exactly one succeeds.

use std::sync::{Arc, Mutex};

use crate::alloc::FreeProblem;
use crate::loom_models::machine::{LARGEST, Locks, Machine, Runner};
use crate::loom_models::{assert_fails, explore};
use crate::sync::{Weakness, weakened};
use crate::units::{Order, PageCount, Pfn, PfnRange};
use crate::watermarks::PcpSizing;

/// The failure message for two frees that both succeed.
const BOTH: &str = "frees of one block succeeded";

/// CPU 0 and CPU 1 free the same block at once. The buddy of a single frame is free, on a list or in the zone.
fn free_twice(order: Order, sizing: PcpSizing) {
    let main = Machine::boot(1, sizing, Locks::SOUND);
    let pfn = if order == Order::ZERO { upper_of_two_frames(&main) } else { main.take(order).unwrap() };
    main.release(pfn, order);
    let freed = Arc::new(Mutex::new(0));
    let threads = [0, 1].map(|cpu| {
        let freed = Arc::clone(&freed);
        main.start(cpu, move |runner| match runner.yard.free(pfn, order) {
            Ok(()) => *freed.lock().unwrap() += 1,
            Err(error) => {
                assert!(matches!(error.problem, FreeProblem::AlreadyFree(_)), "the loser gets another error: {error}");
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*freed.lock().unwrap(), 1, "{BOTH}");
    main.finish();
}

/// CPU 0 joins two frames while CPU 1 frees one of them.
fn join_and_free(part: usize) {
    let main = Machine::boot(1, PcpSizing::Fixed(2), Locks::SOUND);
    let frames = [(); 2].map(|()| main.take(Order::ZERO).unwrap());
    assert_eq!(frames[0].buddy(Order::ZERO), frames[1]);
    frames.into_iter().for_each(|pfn| main.release(pfn, Order::ZERO));
    let (block, freed) = (frames[0], frames[part]);
    let join = main.start(0, move |runner| runner.yard.join(block, Order(1)).is_ok());
    let free = main.start(1, move |runner| runner.yard.free(freed, Order::ZERO).is_ok());
    let (joined, freed) = (join.join().unwrap(), free.join().unwrap());
    assert!(!(joined && freed), "{BOTH}");
    assert!(joined || freed, "each call lost to the other");
    // What the free left: the block, or the other frame.
    let (rest, order) = if joined { (frames[0], Order(1)) } else { (frames[1 - part], Order::ZERO) };
    main.yard.free(rest, order).unwrap_or_else(|error| panic!("the block is ours: {error}"));
    main.finish();
}

/// CPU 0 frees one frame of a block of two, which divides the block, while CPU 1 frees the block.
fn free_part_and_whole(part: usize) {
    let main = Machine::boot(1, PcpSizing::Fixed(2), Locks::SOUND);
    let block = main.take(Order(1)).unwrap();
    main.release(block, Order(1));
    let frames = [block, Pfn(block.0 + 1)];
    let first = main.start(0, move |runner| runner.yard.free_range(PfnRange::new(frames[part], PageCount(1))).is_ok());
    let whole = main.start(1, move |runner| runner.yard.free(block, Order(1)).is_ok());
    let (first, whole) = (first.join().unwrap(), whole.join().unwrap());
    assert!(!(first && whole), "{BOTH}");
    assert!(first || whole, "each call lost to the other");
    if first {
        main.yard.free(frames[1 - part], Order::ZERO).unwrap_or_else(|error| panic!("the frame is ours: {error}"));
    }
    main.finish();
}

/// Returns a frame that becomes interior when it merges with its free buddy.
fn upper_of_two_frames(main: &Runner) -> Pfn {
    let [lower, upper] = [(); 2].map(|()| main.take(Order::ZERO).unwrap());
    assert_eq!(lower.buddy(Order::ZERO), upper);
    main.give(lower, Order::ZERO);
    upper
}

#[test]
fn one_of_two_frees_of_a_frame_succeeds() {
    explore(|| free_twice(Order::ZERO, PcpSizing::Fixed(2)));
}

#[test]
fn racing_frees_with_merge() {
    explore(|| free_twice(Order::ZERO, PcpSizing::Fixed(0)));
}

#[test]
fn racing_frees_without_list() {
    explore(|| free_twice(LARGEST, PcpSizing::Fixed(2)));
}

#[test]
fn a_join_or_a_free_of_a_part_succeeds() {
    explore(|| join_and_free(0));
    explore(|| join_and_free(1));
}

#[test]
fn a_free_of_a_part_or_of_the_block_succeeds() {
    explore(|| free_part_and_whole(0));
    explore(|| free_part_and_whole(1));
}

#[test]
fn non_atomic_claim_of_a_part_fails() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails(|| free_part_and_whole(0), &[BOTH]);
        assert_fails(|| join_and_free(0), &[BOTH]);
        assert_fails(|| join_and_free(1), &[BOTH]);
    });
}

#[test]
fn non_atomic_clear_fails() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails(|| free_twice(Order::ZERO, PcpSizing::Fixed(2)), &[BOTH]);
        assert_fails(|| free_twice(LARGEST, PcpSizing::Fixed(2)), &[BOTH]);
    });
}
