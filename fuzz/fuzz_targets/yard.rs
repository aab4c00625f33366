//! Any actions on any of the model's machines: the yard does what the reference model says, and stays valid.
//!
//! The first byte chooses the machine, the others are actions, `BYTES_PER_ACTION` bytes each.
#![no_main]

#[path = "../../crates/frameyard/tests/fixture/mod.rs"]
mod fixture;
#[path = "../../crates/frameyard/tests/model/mod.rs"]
mod model;

use libfuzzer_sys::fuzz_target;
use model::{Action, BYTES_PER_ACTION, machines, run};

fuzz_target!(|bytes: &[u8]| {
    if let Some((choice, actions)) = bytes.split_first()
        && actions.len() >= BYTES_PER_ACTION
    {
        let machines = machines();
        run(&machines[usize::from(*choice) % machines.len()], &Action::sequence(actions));
    }
});
