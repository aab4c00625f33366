//! The platform of a replay: CPUs that the replay names, and frames without bytes.

use std::cell::Cell;
use std::ptr::NonNull;

use frameyard::{CpuId, Pfn, Platform};

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// Makes the calling thread run as that CPU.
#[inline]
pub(super) fn run_as(cpu: CpuId) {
    CPU.set(cpu.0);
}

/// CPUs that the replay names, and frames without bytes.
#[derive(Debug)]
pub(super) struct ReplayPlatform;

impl Platform for ReplayPlatform {
    type Guard = ();

    fn guard(&self) {}

    #[inline]
    fn current_cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }

    fn spin(&self, round: u32) {
        if round < 8 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}
