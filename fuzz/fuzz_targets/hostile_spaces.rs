//! Any actions on address spaces and files, while another process overwrites words of their state: calls fail at most.
#![no_main]

#[path = "../../crates/frameyard-vm/tests/suite/hostile_process.rs"]
mod hostile_process;
#[path = "../../crates/frameyard-vm/src/test_yard.rs"]
mod test_yard;

use hostile_process::{BYTES_PER_ACTION, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (actions, _) = bytes.as_chunks::<BYTES_PER_ACTION>();
    run(&actions[..actions.len().min(1000)]);
});
