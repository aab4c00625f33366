//! Another process writes anything anywhere into the memory file of a live yard, while two views of the yard, and later several threads,
//! work. They may lose frames or get errors; they must not crash, panic or hang.
//!
//! The first byte chooses the store of free frames and the machine, the policy, and whether threads work. Each eight bytes are a step: they corrupt the file, or use the yard.
#![no_main]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use frameyard::policy::ZonePolicy;
use frameyard_host::SharedFrames;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/frameyard-host/tests/suite/hostile_writes/mod.rs"]
mod hostile_writes;

use hostile_writes::{Target, run, run_with_threads};

/// How often the yard was used; printed now and then.
static USES: AtomicU64 = AtomicU64::new(0);
const PRINTED: u64 = 100_000;
const FRAMES: SharedFrames = SharedFrames::Memory;

fuzz_target!(|bytes: &[u8]| {
    static TARGETS: OnceLock<[Target; 2]> = OnceLock::new();
    let make = || [Target::new(FRAMES), Target::without_holes(ZonePolicy::Vanilla, FRAMES)];
    let without_holes = bytes.first().is_some_and(|first| first & 0x40 != 0);
    let target = &TARGETS.get_or_init(make)[usize::from(without_holes)];
    let with_threads = bytes.first().is_some_and(|first| first & 0x80 != 0);
    let uses = if with_threads { run_with_threads(target, bytes) } else { run(target, bytes) };
    let before = USES.fetch_add(uses, Ordering::Relaxed);
    if before / PRINTED != (before + uses) / PRINTED {
        eprintln!("uses: {}", before + uses);
    }
});
