//! Property tests: random actions on several machines do what the reference model says.

mod fixture;
#[path = "model/mod.rs"]
mod model;

use model::{Action, BYTES_PER_ACTION, machines, run};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Runs random actions on the machine of that name. A failure prints the shortest actions that were found.
fn random_actions_on(name: &str) {
    let machine = machines().into_iter().find(|machine| machine.name == name).expect("a machine of that name");
    let config = ProptestConfig { failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default() };
    let actions = vec(any::<[u8; BYTES_PER_ACTION]>().prop_map(Action::from_bytes), 1..400);
    let outcome = TestRunner::new(config).run(&actions, |actions| {
        run(&machine, &actions);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"));
}

#[test]
fn one_node_keeps_its_books() {
    random_actions_on("one node");
}

#[test]
fn many_nodes_keep_their_books() {
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
fn every_machine_gives_back_what_no_action_took() {
    for machine in machines() {
        run(&machine, &[]);
    }
}
