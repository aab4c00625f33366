//! Publication of a yard (`boot`): a view that finds the magic word sees everything written before it.

use std::sync::Arc;

use loom::thread;

use crate::boot::AttachError;
use crate::loom_models::machine::{Locks, Machine};
use crate::loom_models::{assert_fails, explore};
use crate::sync::{Weakness, weakened};
use crate::units::Order;
use crate::watermarks::PcpSizing;

/// The failure message for a view that sees the magic word but not the rest.
const UNFINISHED: &str = "an unfinished yard was found";

/// One thread creates a yard, another attaches to it and allocates.
fn create_and_attach() {
    let machine = Machine::bare(1, PcpSizing::Fixed(2), Locks::SOUND);
    let creator = Arc::clone(&machine);
    let creator = thread::spawn(move || {
        creator.create();
    });
    match machine.attach(1) {
        Ok(runner) => {
            let free = runner.yard.stats().free_pages();
            assert_eq!(free, runner.yard.frame_range().count(), "{UNFINISHED}: it has {free}");
            let pfn = runner.take(Order::ZERO).expect("a frame of a new yard");
            runner.give(pfn, Order::ZERO);
        }
        Err(AttachError::NoYard) => {}
        Err(error) => panic!("{UNFINISHED}: {error}"),
    }
    creator.join().unwrap();
    machine.attach(0).expect("a finished yard").finish();
}

#[test]
fn an_attached_yard_is_complete() {
    explore(create_and_attach);
}

#[test]
fn magic_word_without_release_fails() {
    weakened(Weakness::RelaxedStores, || assert_fails(create_and_attach, &[UNFINISHED]));
}

#[test]
fn magic_word_without_acquire_fails() {
    weakened(Weakness::RelaxedLoads, || assert_fails(create_and_attach, &[UNFINISHED]));
}
