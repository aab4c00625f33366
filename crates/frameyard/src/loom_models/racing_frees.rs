//! Two frees of one block (`yard::free`): the exchange on the allocation map decides the race, and exactly one succeeds.

use std::sync::{Arc, Mutex};

use super::machine::{LARGEST, Locks, Machine, Runner};
use super::{assert_fails, explore};
use crate::alloc::FreeProblem;
use crate::sync::{Weakness, weakened};
use crate::units::{Order, Pfn};
use crate::watermarks::PcpSizing;

/// The failure message for two frees that both succeed.
const BOTH: &str = "frees of one block succeeded";

/// CPU 0 and CPU 1 free the same block at once. The buddy of a single frame is free, on a list or in the zone.
fn free_twice(order: Order, sizing: PcpSizing) {
    let main = Machine::boot(1, sizing, Locks::SOUND);
    let pfn = if order == Order::ZERO { upper_of_two_frames(&main) } else { main.take(order).unwrap() };
    main.disown(pfn, order);
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
fn non_atomic_clear_fails() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails(|| free_twice(Order::ZERO, PcpSizing::Fixed(2)), &[BOTH]);
        assert_fails(|| free_twice(LARGEST, PcpSizing::Fixed(2)), &[BOTH]);
    });
}
