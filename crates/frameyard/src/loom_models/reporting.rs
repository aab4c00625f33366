//! Reporting (`zone::reporting`): blocks leave the free lists while the platform takes the memory behind them, and other threads
//! allocate blocks and free the buddies of those that are out. The platform writes to the frames meanwhile.

use std::sync::{Arc, Mutex};

use crate::loom_models::machine::{Flaw, LARGEST, Locks, Machine, Runner, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within, in_long_runs};
use crate::page::{FrameState, Tag};
use crate::sync::{Weakness, weakened};
use crate::units::{MigrateType, Order, PageCount, Pfn};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. One switch finds every broken variant.
const SWITCHES: usize = 2;

const PAIR: Order = Order(1);

/// The failure messages for damaged lists.
const ALL_DAMAGES: [&str; 7] = [
    DAMAGES[0],
    DAMAGES[1],
    DAMAGES[2],
    DAMAGES[3],
    "frames were lost",
    "freed frames have merged",
    // Assertions of the production code.
    "and on a free list",
];

/// The outcomes that executions have reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    reported: bool,
    /// The other thread had the block.
    not_reported: bool,
    /// The other thread got a block from frames that were merged with a reported block.
    merged: bool,
}

type Outcomes = Arc<Mutex<Seen>>;

/// A machine with two sections, of each of which a pair of frames is free and the other is allocated. Returns the allocated pairs. Only
/// one of the free pairs can be reported: reporting stops above the low watermark.
fn boot(locks: Locks) -> (Runner, Pfn, Pfn) {
    let main = Machine::boot(2, PcpSizing::Fixed(0), locks);
    let [first, second, third] = [(); 3].map(|()| main.take(PAIR).expect("a free pair"));
    main.give(first, PAIR);
    (main, third, second)
}

/// Reports all free pairs.
fn report(runner: &Runner, seen: &Outcomes) {
    let outcome = runner.yard.report_free_pages(PAIR, PageCount(8)).expect("the platform takes all frames");
    let mut seen = seen.lock().unwrap();
    seen.reported |= outcome.pages.0 > 0;
    seen.not_reported |= outcome.pages.0 == 0;
}

/// CPU 0 reports a pair of frames while CPU 1 frees its buddy, which then merges with it, and takes and frees the block of both.
fn report_and_merge(locks: Locks, seen: &Outcomes) {
    let (main, held, pair) = boot(locks);
    let in_thread = Arc::clone(seen);
    let reporter = main.start(0, move |runner| report(runner, &in_thread));
    let in_thread = Arc::clone(seen);
    let other = main.start(1, move |runner| {
        runner.give(pair, PAIR);
        if let Some(pfn) = runner.take(LARGEST) {
            in_thread.lock().unwrap().merged = true;
            runner.give(pfn, LARGEST);
        }
    });
    reporter.join().unwrap();
    other.join().unwrap();
    end(&main, held);
}

/// CPU 0 reports a pair of frames while CPU 1 allocates one of them and frees it.
fn report_and_allocate(locks: Locks, seen: &Outcomes) {
    let (main, held, pair) = boot(locks);
    let in_thread = Arc::clone(seen);
    let reporter = main.start(0, move |runner| report(runner, &in_thread));
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    reporter.join().unwrap();
    other.join().unwrap();
    main.give(pair, PAIR);
    end(&main, held);
}

fn end(main: &Runner, held: Pfn) {
    main.give(held, PAIR);
    main.finish();
}

#[test]
fn reported_blocks_are_out_of_reach() {
    let seen = Outcomes::default();
    let in_model = Arc::clone(&seen);
    explore_within(in_long_runs(SWITCHES), move || report_and_merge(Locks::SOUND, &in_model));
    assert_eq!(
        *seen.lock().unwrap(),
        Seen { reported: true, not_reported: true, merged: true },
        "an outcome was not explored"
    );
    let in_model = Outcomes::default();
    explore_within(in_long_runs(SWITCHES), move || report_and_allocate(Locks::SOUND, &in_model));
}

#[test]
fn reporting_without_the_zone_lock_fails() {
    for flaw in [Flaw::TakenRelaxed, Flaw::GivenBackRelaxed, Flaw::NeverRefused] {
        let locks = Locks { zone: Some(flaw), ..Locks::SOUND };
        assert_fails_within(SWITCHES, move || report_and_merge(locks, &Outcomes::default()), &ALL_DAMAGES);
        assert_fails_within(SWITCHES, move || report_and_allocate(locks, &Outcomes::default()), &ALL_DAMAGES);
    }
}

#[test]
fn reported_blocks_that_look_free_fail() {
    let in_transit = Tag::new(FrameState::InTransit, PAIR, MigrateType::Movable, ZONE);
    weakened(Weakness::LostStoresOf(in_transit.bits()), || {
        assert_fails_within(SWITCHES, || report_and_merge(Locks::SOUND, &Outcomes::default()), &ALL_DAMAGES);
    });
}
