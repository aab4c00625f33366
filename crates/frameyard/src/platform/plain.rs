//! A platform with one CPU and no memory behind frames, for unit tests.

use core::ptr::NonNull;

use crate::platform::Platform;
use crate::units::{CpuId, Pfn};

/// One CPU, and frames without bytes.
pub(crate) struct Plain;

impl Platform for Plain {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn spin(&self, _round: u32) {}

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
#[test]
#[should_panic(expected = "what the lock of the table of devices guards is corrupt")]
fn corrupt_tables_panic_by_default_in_debug_builds() {
    Plain.note_corrupt(super::LockId::Devices);
}
