//! Property tests: random actions on several machines do what the reference model says.

use crate::model::{Action, BYTES_PER_ACTION, Machine, Place, machines, run};
use frameyard::Gfp;
use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Runs random actions on the machine of that name, with its memory map initialised in any mode. A failure prints the
/// shortest actions that were found.
fn random_actions_on(name: &str) {
    for machine in machines().into_iter().filter(|machine| machine.name == name) {
        let usual = machine.map_init.mode == InitMode::Eager;
        random_cases_on(&machine, if usual { ProptestConfig::default().cases } else { FEW });
    }
}

/// The cases where more machines or policies follow.
const FEW: u32 = 24;

fn random_actions_on_machine(machine: &Machine) {
    random_cases_on(machine, FEW);
}

fn random_cases_on(machine: &Machine, cases: u32) {
    let (name, mode) = (machine.name, machine.map_init.mode);
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default() };
    let actions = vec(any::<[u8; BYTES_PER_ACTION]>().prop_map(Action::from_bytes), 1..400);
    let outcome = TestRunner::new(config).run(&actions, |actions| {
        run(machine, &actions);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{name}, {mode}, {}: {failure}", machine.policy));
}

#[test]
fn one_node_keeps_its_books() {
    random_actions_on("one node");
}

#[test]
fn random_actions_on_many_nodes() {
    random_actions_on("many nodes");
}

#[test]
fn poisoned_frames_keep_their_books() {
    random_actions_on("poisoned");
}

#[test]
fn large_pageblocks_keep_their_books() {
    random_actions_on("large pageblocks");
}

#[test]
fn small_sections_keep_their_books() {
    random_actions_on("small sections");
}

#[test]
fn large_blocks_keep_their_books() {
    random_actions_on("large blocks");
}

#[test]
fn large_frames_keep_their_books() {
    random_actions_on("large frames");
}

/// Random actions on every machine under a policy, which they may change.
fn random_actions_under(policy: ZonePolicy) {
    for machine in machines().into_iter().filter(|machine| machine.map_init.mode != InitMode::Deferred) {
        random_actions_on_machine(&machine.under(policy));
    }
}

/// Random actions under a policy, also on machines whose lists begin with other sizes.
pub(crate) fn random_actions_with_lists(policy: ZonePolicy) {
    random_actions_under(policy);
    random_actions_with_other_lists(policy);
}

fn random_actions_with_other_lists(policy: ZonePolicy) {
    let machines = machines().into_iter().filter(|machine| machine.map_init.mode == InitMode::Eager);
    for (machine, high) in machines.zip([64, 300, 20].into_iter().cycle()) {
        random_actions_on_machine(&machine.under(policy).with_lists(high));
    }
}

#[test]
fn frees_that_skip_merging_keep_their_books() {
    random_actions_under(ZonePolicy::SkipMerge);
}

#[test]
fn free_frames_as_bits_keep_their_books() {
    for policy in [ZonePolicy::Bits, ZonePolicy::BitsTrees] {
        long_lives_under(policy, None);
        random_actions_with_other_lists(policy);
    }
}

#[test]
fn free_lists_keep_their_books() {
    random_actions_under(ZonePolicy::Vanilla);
}

#[test]
fn a_machine_without_actions_frees_all_frames() {
    for machine in machines() {
        run(&machine, &[]);
    }
}

#[test]
fn bytes_decode_to_actions() {
    let first = Action::Allocate { order: 0, gfp: Gfp::KERNEL, place: Place::Here };
    assert_eq!(Action::sequence(&[0; 2 * BYTES_PER_ACTION + 3]), [first, first]);
    assert_eq!(Action::sequence(&[255; BYTES_PER_ACTION]), [Action::Validate]);
}

#[test]
fn long_lives_keep_their_books() {
    long_lives_under(ZonePolicy::Vanilla, None);
}

pub(crate) fn long_lives_under(policy: ZonePolicy, high: Option<u32>) {
    for (seed, machine) in (1..).zip(machines()) {
        let machine = machine.under(policy);
        let machine = if let Some(high) = high { machine.with_lists(high) } else { machine };
        run(&machine, &seeded_actions(&machine, seed));
    }
}

/// As many actions as make a long life.
fn seeded_actions(machine: &Machine, seed: u64) -> Vec<Action> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = if machine.map_init.mode == InitMode::Eager { 3000 } else { 1000 };
    let bytes: Vec<u8> = (0..words).flat_map(|_| word().to_le_bytes()).collect();
    Action::sequence(&bytes)
}
