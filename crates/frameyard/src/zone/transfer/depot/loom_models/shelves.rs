//! Several shelves: a batch that does not fit the stack of its CPU goes to the common one, and a CPU without batches takes those of the
//! other CPU.

use std::sync::{Arc, Mutex};

use super::{FEW_SWITCHES, SWITCHES};
use crate::loom_models::machine::{Locks, Machine, Runner, Setup, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within, in_long_runs};
use crate::policy::ZonePolicy;
use crate::sync::{Weakness, weakened};
use crate::units::{Order, Pfn};
use crate::watermarks::PcpSizing;
use crate::zone::Patience;
use crate::zone::transfer;

/// The ways of the batches over all executions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    overflowed: bool,
    fitted: bool,
    stolen: bool,
    taken_from_common: bool,
}

/// The counters of overflows and of steals.
fn moved(runner: &Runner) -> [u64; 2] {
    let counts = runner.yard.zone(ZONE).mechanism_counts();
    ["depot_overflows", "depot_steals"].map(|name| counts.get(name))
}

/// A yard with a shelf for each CPU: the stack of CPU 0 is full, and so are its lists. Returns the frames that CPU 0 holds: the
/// first that it frees pushes a batch. Half of the memory stays in whole pageblocks, so no batch is merged.
fn full_shelf() -> (Runner, [Pfn; 4]) {
    let setup = Setup { shelves: [0, 1], ..Setup::new(PcpSizing::Fixed(4), Locks::SOUND) };
    let main = Machine::boot_with(6, setup);
    main.yard.set_policy(ZonePolicy::Depot).expect("no other thread runs");
    let held = [(); 12].map(|()| main.take(Order::ZERO).expect("a free frame"));
    let (kept, freed) = held.split_first_chunk().expect("twelve frames");
    freed.iter().for_each(|pfn| main.give(*pfn, Order::ZERO));
    let batches = main.yard.zone(ZONE).mechanism_counts().get("depot_batches");
    assert_eq!((batches, moved(&main)), (2, [0, 0]), "the stack of CPU 0 is full, and the common one is empty");
    (main, *kept)
}

/// Frees all frames but the first.
fn give_rest(main: &Runner, held: &[Pfn; 4]) {
    held[1..].iter().for_each(|pfn| main.give(*pfn, Order::ZERO));
}

/// CPU 0 pushes a batch more than its stack takes, while CPU 1 takes a frame from the other shelves.
fn overflow_and_steal(seen: &Arc<Mutex<Seen>>) {
    let (main, held) = full_shelf();
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    main.give(held[0], Order::ZERO);
    other.join().unwrap();
    let [overflowed, stolen] = moved(&main);
    let mut seen = seen.lock().unwrap();
    seen.overflowed |= overflowed > 0;
    seen.fitted |= overflowed == 0;
    seen.stolen |= stolen > 0;
    seen.taken_from_common |= stolen == 0;
    drop(seen);
    give_rest(&main, &held);
    main.finish();
}

/// CPU 0 collects all batches while CPU 1 steals one.
fn collect_and_steal() {
    let (main, held) = full_shelf();
    let other = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    transfer::collect(main.yard.zone_view(ZONE), transfer::Collect::All(Patience::Sleeps)).expect("no other collector");
    other.join().unwrap();
    main.give(held[0], Order::ZERO);
    give_rest(&main, &held);
    main.finish();
}

/// Both CPUs pop the last batches of one shelf while a third thread collects.
fn overflow_steal_and_collect() {
    let (main, held) = full_shelf();
    let thief = main.start(1, |runner| runner.take_and_give(Order::ZERO));
    let collector = main.start(1, |runner| {
        let view = runner.yard.zone_view(ZONE);
        transfer::collect(view, transfer::Collect::All(Patience::Sleeps)).expect("no other collector");
    });
    main.give(held[0], Order::ZERO);
    thief.join().unwrap();
    collector.join().unwrap();
    give_rest(&main, &held);
    main.finish();
}

#[test]
fn batches_overflow_and_are_stolen() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let in_model = Arc::clone(&seen);
    explore_within(SWITCHES, move || overflow_and_steal(&in_model));
    let all = Seen { overflowed: true, fitted: true, stolen: true, taken_from_common: true };
    assert_eq!(*seen.lock().unwrap(), all, "an outcome was not explored");
}

#[test]
fn collecting_finds_the_batches_of_all_shelves() {
    explore_within(in_long_runs(SWITCHES), collect_and_steal);
    explore_within(in_long_runs(FEW_SWITCHES), overflow_steal_and_collect);
}

#[test]
fn stealing_without_ordering_fails() {
    for weakness in [Weakness::RelaxedExchanges, Weakness::SplitCompareExchange] {
        weakened(weakness, || {
            assert_fails_within(SWITCHES, || overflow_and_steal(&Arc::default()), &DAMAGES);
            assert_fails_within(SWITCHES, collect_and_steal, &DAMAGES);
        });
    }
}
