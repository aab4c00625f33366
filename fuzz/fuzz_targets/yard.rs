//! Any actions on any of the model's machines: the yard does what the reference model says, and stays valid.
//!
//! The first byte chooses the machine, the second the policy and the size of its per-CPU lists; the remaining bytes are actions,
//! `BYTES_PER_ACTION` bytes each.
#![no_main]

#[allow(dead_code, reason = "the model uses a part of the fixture")]
#[path = "../../crates/frameyard/tests/suite/fixture/mod.rs"]
mod fixture;
#[path = "../../crates/frameyard/tests/suite/model/mod.rs"]
mod model;

use frameyard::policy::ZonePolicy;
use libfuzzer_sys::fuzz_target;
use model::{Action, BYTES_PER_ACTION, machines, run};

fuzz_target!(|bytes: &[u8]| {
    if let Some(([choice, policy], actions)) = bytes.split_first_chunk()
        && actions.len() >= BYTES_PER_ACTION
    {
        let machine = machines().into_iter().cycle().nth(usize::from(*choice)).expect("there are machines");
        let machine = machine.under(ZonePolicy::ALL[usize::from(policy & 0xf) % ZonePolicy::ALL.len()]);
        let machine = if policy >> 4 > 0 { machine.with_lists(u32::from(policy >> 4) * 40) } else { machine };
        run(&machine, &Action::sequence(actions));
    }
});
