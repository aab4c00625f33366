//! Frames that go offline and come back (`yard::offline`): beside a thread that allocates, and brought back by two threads at once.

use std::sync::{Arc, Mutex};

use crate::loom_models::machine::{Flaw, Locks, Machine};
use crate::loom_models::{DAMAGES, assert_fails_within, explore, explore_within};
use crate::owners::Owners;
use crate::request::OnlineError;
use crate::sync::{Weakness, weakened};
use crate::units::{Order, PageCount, Pfn, PfnRange};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches: an offline isolates its pageblock, which is long.
const SWITCHES: usize = 1;

const fn pageblock() -> PfnRange {
    PfnRange { start: Pfn(2), end: Pfn(4) }
}

/// The failure message for two threads that both bring a block back.
const BOTH: &str = "threads brought the block back";

/// Two threads bring the same pageblock back. Neither uses its frames: stale loads of an allocation multiply the executions.
fn online_twice() {
    let main = Machine::boot(1, PcpSizing::Fixed(0), Locks::SOUND);
    main.yard.offline(pageblock(), &Owners::NONE).unwrap();
    assert_eq!(main.yard.stats().managed_pages(), PageCount(2));
    let brought = Arc::new(Mutex::new(0));
    let threads = [0, 1].map(|cpu| {
        let brought = Arc::clone(&brought);
        main.start(cpu, move |runner| match runner.yard.online(pageblock()) {
            Ok(()) => *brought.lock().unwrap() += 1,
            Err(error) => {
                assert!(matches!(error, OnlineError::NotOffline { .. }), "the loser gets another error: {error}")
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*brought.lock().unwrap(), 1, "{BOTH}");
    main.finish();
}

/// CPU 0 takes a pageblock offline, if possible, and brings it back, while CPU 1 allocates.
fn go_and_come_back(locks: Locks) {
    let main = Machine::boot(1, PcpSizing::Fixed(0), locks);
    let user = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    if main.yard.offline(pageblock(), &Owners::NONE).is_ok() {
        main.yard.online(pageblock()).expect("no other thread brings it back");
    }
    user.join().unwrap();
    main.finish();
}

#[test]
fn two_threads_bring_a_block_back_once() {
    explore(online_twice);
    weakened(Weakness::OnlineNotRechecked, || assert_fails_within(SWITCHES, online_twice, &[BOTH]));
}

#[test]
fn frames_go_offline_beside_allocations() {
    explore_within(SWITCHES, || go_and_come_back(Locks::SOUND));
    for flaw in [Flaw::TakenRelaxed, Flaw::GivenBackRelaxed] {
        let locks = Locks { zone: Some(flaw), ..Locks::SOUND };
        assert_fails_within(SWITCHES, move || go_and_come_back(locks), &DAMAGES);
    }
}
