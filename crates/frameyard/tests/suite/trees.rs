//! The policy `bits-trees`: a CPU takes frames of a type from one tree of four pageblocks until nothing there fits.

use std::collections::BTreeSet;

use crate::blocks_in_bits::{give, take, take_all, yard_of};
use crate::busy_yard::{FIRST, PAGES, ZONE, geometry};
use crate::fixture::{Fixture, order, run_on};
use frameyard::policy::ZonePolicy;
use frameyard::{Gfp, Pfn};

const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
/// The frames of a tree: four pageblocks of 64.
const TREE: u64 = 256;

fn yard() -> Fixture {
    yard_of(ZonePolicy::BitsTrees, geometry(), 8 * PAGES, 64)
}

fn tree_of(pfn: Pfn) -> u64 {
    (pfn.0 - FIRST.0) / TREE
}

fn trees_of(frames: &[Pfn]) -> BTreeSet<u64> {
    frames.iter().copied().map(tree_of).collect()
}

/// Frames that two sides take in turns, each by a call of its own.
fn in_turns(mut sides: [impl FnMut() -> Vec<Pfn>; 2]) -> [Vec<Pfn>; 2] {
    let mut taken = [vec![], vec![]];
    for _ in 0..40 {
        taken.iter_mut().zip(&mut sides).for_each(|(taken, side)| taken.extend(side()));
    }
    taken
}

fn assert_apart(taken: &[Vec<Pfn>; 2]) {
    let [one, other] = taken.each_ref().map(|frames| trees_of(frames));
    assert!(one.is_disjoint(&other), "{one:?} and {other:?}");
    let least = taken[0].len() as u64 / TREE;
    assert!([one, other].iter().all(|trees| trees.len() as u64 <= least + 1), "trees are used up: {taken:?}");
}

#[test]
fn cpus_take_from_trees_of_their_own() {
    let yard = yard();
    let on = |cpu| {
        let yard = &yard;
        move || {
            run_on(cpu);
            take(yard, MOVABLE, 50)
        }
    };
    let taken = in_turns([on(0), on(1)]);
    assert_apart(&taken);
    give(&yard, taken.into_iter().flatten());
    yard.validate().unwrap();
}

#[test]
fn frames_that_move_and_frames_that_stay_come_from_different_trees() {
    let yard = yard();
    let of = |gfp| {
        let yard = &yard;
        move || take(yard, gfp, 50)
    };
    let taken = in_turns([of(MOVABLE), of(Gfp::KERNEL)]);
    assert_apart(&taken);
    give(&yard, taken.into_iter().flatten());
    yard.validate().unwrap();
}

#[test]
fn trees_that_are_nearly_full_are_used_before_whole_ones() {
    let yard = yard();
    let all = take_all(&yard, order(0), MOVABLE | Gfp::HIGH);
    // Odd trees become whole, even ones free by a quarter.
    let (freed, kept): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|pfn| tree_of(*pfn) % 2 == 1 || pfn.0.is_multiple_of(4));
    give(&yard, freed);
    yard.drain_all();
    // Not the CPU that has a line of a tree already.
    run_on(3);
    let taken = take(&yard, MOVABLE, 2 * TREE / 4);
    assert!(taken.iter().all(|pfn| tree_of(*pfn).is_multiple_of(2)), "{:?}", trees_of(&taken));
    assert_eq!(trees_of(&taken).len(), 2);
    give(&yard, taken.into_iter().chain(kept));
    yard.drain_all();
    let zone = yard.zone(ZONE).statistics();
    assert_eq!(zone.free, zone.managed);
    yard.validate().unwrap();
}
