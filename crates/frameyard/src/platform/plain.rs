//! The plainest platform, for tests of parts that need one and no more of it.

use core::ptr::NonNull;

use super::Platform;
use crate::units::{CpuId, Pfn};

/// One CPU, and nothing behind the frames.
pub(crate) struct Plain;

impl Platform for Plain {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn relax(&self, _round: u32) {}

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}
