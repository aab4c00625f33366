//! Huge blocks in a yard: batches of pageblocks move past the zone lock while another CPU takes one, or needs a larger block or a range.
//! The models of a stack by itself detach all batches.

use super::{FEW_SWITCHES, NOT_FOUND, SWITCHES};
use crate::loom_models::machine::{LARGEST, Locks, Machine, Runner, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within};
use crate::policy::ZonePolicy;
use crate::sync::{Weakness, weakened};
use crate::units::{Order, PageCount, Pfn, PfnRange};
use crate::watermarks::PcpSizing;

/// A block that is a whole pageblock.
const HUGE: Order = Order(1);

fn huge_blocks(runner: &Runner) -> u64 {
    runner.yard.zone(ZONE).mechanism_counts().get("depot_huge_blocks")
}

/// A yard of eight pageblocks: the depot has a batch of two, the lists of CPU 0 have four blocks. The next that CPU 0 frees, one of those
/// returned, pushes another batch.
fn stocked() -> (Runner, [Pfn; 2]) {
    let main = Machine::boot(4, PcpSizing::Fixed(4), Locks::SOUND);
    main.yard.set_policy(ZonePolicy::Depot).expect("no other thread runs");
    let held = [(); 8].map(|()| main.take(HUGE).expect("a free block"));
    let (kept, freed) = held.split_first_chunk().expect("eight blocks");
    freed.iter().for_each(|pfn| main.give(*pfn, HUGE));
    assert_eq!(huge_blocks(&main), 2, "the depot has one batch");
    (main, *kept)
}

/// CPU 0 pushes a batch while CPU 1, whose lists are empty, pops one.
fn batches_pass() {
    let (main, held) = stocked();
    let other = main.start(1, |runner| {
        let pfn = runner.take(HUGE).expect(NOT_FOUND);
        runner.give(pfn, HUGE);
    });
    held.into_iter().for_each(|pfn| main.give(pfn, HUGE));
    other.join().unwrap();
    main.finish();
}

/// CPU 0 pushes a batch while CPU 1 needs a block of two pageblocks.
fn a_larger_block_is_needed() {
    let (main, held) = stocked();
    let other = main.start(1, |runner| runner.take_and_give(LARGEST));
    held.into_iter().for_each(|pfn| main.give(pfn, HUGE));
    other.join().unwrap();
    main.finish();
}

/// CPU 0 pushes a batch while CPU 1 takes a pageblock of it by number.
fn isolate_meanwhile() {
    let (main, [kept, freed]) = stocked();
    // On the lists of CPU 0 or in the depot.
    let wanted = (0..8).map(|at| Pfn(2 * at)).find(|pfn| ![kept, freed].contains(pfn)).expect("eight pageblocks");
    let other = main.start(1, move |runner| {
        runner.take_contiguous(PfnRange::new(wanted, PageCount(2))).expect("no frame of the range is in use");
        runner.give(wanted, HUGE);
    });
    main.give(freed, HUGE);
    other.join().unwrap();
    main.give(kept, HUGE);
    main.finish();
}

#[test]
fn huge_blocks_pass_from_cpu_to_cpu() {
    explore_within(FEW_SWITCHES, batches_pass);
}

#[test]
fn a_request_for_a_larger_block_merges_huge_blocks_while_another_cpu_pushes() {
    explore_within(FEW_SWITCHES, a_larger_block_is_needed);
}

#[test]
fn isolation_finds_huge_blocks_of_the_depot() {
    explore_within(0, isolate_meanwhile);
}

#[test]
fn exchanges_without_ordering_hand_over_stale_entries_of_the_table() {
    weakened(Weakness::RelaxedExchanges, || assert_fails_within(SWITCHES, batches_pass, &DAMAGES));
}

#[test]
fn exchanges_that_are_not_one_step_lose_huge_blocks() {
    weakened(Weakness::SplitCompareExchange, || assert_fails_within(SWITCHES, batches_pass, &DAMAGES));
}
