//! High-atomic reserves (`zone::highatomic`): a request that must not wait reserves a pageblock, while another thread allocates from
//! it, frees into it, or returns it to ordinary use.

use std::sync::{Arc, Mutex};

use crate::Gfp;
use crate::loom_models::machine::{Flaw, Locks, Machine, Runner, ZONE};
use crate::loom_models::{LIST_DAMAGES, assert_fails_within, explore_within, in_long_runs};
use crate::units::{MigrateType, Order, PageCount, Pfn};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. One switch finds every broken variant.
const SWITCHES: usize = 1;

const PAIR: Order = Order(1);

/// The failure message for a reserve that is larger than its limit.
const TOO_MANY: &str = "too many frames are reserved";

/// The failure messages for damaged lists.
const ALL_DAMAGES: [&str; 12] = {
    let [a, b, c, d, e, f, g] = LIST_DAMAGES;
    // The last two are failures of the production code.
    [a, b, c, d, e, f, g, TOO_MANY, "pairs are free", "frames are free", "and on a free list", "index out of bounds"]
};

/// Whether, over all executions, pageblocks are reserved at the end, or none is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    kept: bool,
    returned: bool,
}

type Outcomes = Arc<Mutex<Seen>>;

/// A machine of four pageblocks, of which one can be reserved. An allocation would go below the watermarks, so every request uses the
/// reserves that it may use.
fn boot(locks: Locks) -> Runner {
    let main = Machine::boot(2, PcpSizing::Fixed(0), locks);
    main.set_min_watermark(PageCount(7));
    main
}

/// Allocates a pair of frames, which reserves its pageblock.
fn take_pair(runner: &Runner) -> Pfn {
    runner.take_with(PAIR, Gfp::ATOMIC).expect("pairs are free")
}

/// Allocates a pair of frames and frees it.
fn take_and_give_pair(runner: &Runner) {
    runner.give(take_pair(runner), PAIR);
}

/// Gives up a reserved pageblock, if there is one, then allocates a frame and frees it.
fn unreserve_and_take(runner: &Runner) {
    runner.yard.zone_view(ZONE).lock().unwrap().unreserve_highatomic(MigrateType::Movable);
    let pfn = runner.take_with(Order::ZERO, Gfp::ATOMIC).expect("frames are free");
    runner.give(pfn, Order::ZERO);
}

/// Returns all pageblocks to ordinary use.
fn end(main: &Runner, seen: &Outcomes) {
    let reserved = main.yard.zone_view(ZONE).zone.reserved_highatomic_racy();
    assert!(reserved <= PAIR.pages(), "{TOO_MANY}: {reserved}");
    let mut seen = seen.lock().unwrap();
    seen.kept |= reserved > PageCount(0);
    seen.returned |= reserved == PageCount(0);
    drop(seen);
    while main.yard.zone_view(ZONE).lock().unwrap().unreserve_highatomic(MigrateType::Movable) {}
    main.set_min_watermark(PageCount(0));
    main.finish();
}

/// Runs `first` on CPU 0 and `second` on CPU 1.
fn run_both(main: &Runner, first: fn(&Runner), second: fn(&Runner)) {
    let threads = [main.start(0, first), main.start(1, second)];
    for thread in threads {
        thread.join().unwrap();
    }
}

/// CPU 0 reserves a pageblock while CPU 1 returns one, if there is one, and allocates.
fn reserve_and_unreserve(locks: Locks, seen: &Outcomes) {
    let main = boot(locks);
    run_both(&main, take_and_give_pair, unreserve_and_take);
    end(&main, seen);
}

/// As [`reserve_and_unreserve`], with a pageblock that is reserved already, so that CPU 0 allocates from it or reserves it again.
fn use_and_unreserve(locks: Locks, seen: &Outcomes) {
    let main = boot(locks);
    take_and_give_pair(&main);
    assert_eq!(main.yard.zone_view(ZONE).zone.reserved_highatomic_racy(), PAIR.pages(), "a pageblock is reserved");
    run_both(&main, take_and_give_pair, unreserve_and_take);
    end(&main, seen);
}

/// Two CPUs reserve a pageblock each, while there is room for one.
fn reserve_twice(locks: Locks, seen: &Outcomes) {
    let main = boot(locks);
    run_both(&main, take_and_give_pair, take_and_give_pair);
    end(&main, seen);
}

#[test]
fn reserves_race_allocations() {
    let seen = Outcomes::default();
    let models: [(Model, usize); 3] =
        [(reserve_and_unreserve, SWITCHES), (use_and_unreserve, in_long_runs(SWITCHES)), (reserve_twice, SWITCHES)];
    for (model, switches) in models {
        let in_model = Arc::clone(&seen);
        explore_within(switches, move || model(Locks::SOUND, &in_model));
    }
    assert_eq!(*seen.lock().unwrap(), Seen { kept: true, returned: true }, "an outcome was not explored");
}

#[test]
fn reserves_without_the_zone_lock_fail() {
    let broken: [(Model, Flaw); 3] = [
        (reserve_and_unreserve, Flaw::TakenRelaxed),
        (use_and_unreserve, Flaw::GivenBackRelaxed),
        (reserve_twice, Flaw::NeverRefused),
    ];
    for (model, flaw) in broken {
        let locks = Locks { zone: Some(flaw), ..Locks::SOUND };
        assert_fails_within(SWITCHES, move || model(locks, &Outcomes::default()), &ALL_DAMAGES);
    }
}

type Model = fn(Locks, &Outcomes);
