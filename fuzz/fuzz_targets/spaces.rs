//! Any actions on two address spaces: both have the bytes that the model says, and the yard stays valid.
#![no_main]

#[path = "../../crates/frameyard-vm/tests/suite/fixture/small_yard.rs"]
mod fixture;
#[path = "../../crates/frameyard-vm/tests/suite/space_model.rs"]
mod space_model;
#[path = "../../crates/frameyard-vm/src/test_yard.rs"]
mod test_yard;

use std::num::NonZeroUsize;

use libfuzzer_sys::fuzz_target;
use space_model::{Action, BYTES_PER_ACTION, run};

fuzz_target!(|bytes: &[u8]| {
    let (actions, _) = bytes.as_chunks::<BYTES_PER_ACTION>();
    let actions: Vec<_> = actions.iter().map(|bytes| Action::from_bytes(*bytes)).collect();
    run(&actions, NonZeroUsize::MIN);
});
