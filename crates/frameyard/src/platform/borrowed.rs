//! A platform that somebody else has: a further view of a yard, in the same process, may do all it does through it.

use core::ptr::NonNull;

use super::{
    Access, Contention, FramesNotReturned, FreeFrames, InitProgress, LockId, MapNotBacked, Platform, Span,
    WorkerPanicked,
};
use crate::sync::AtomicU32;
use crate::units::{CpuId, NodeId, PageCount, Pfn, PfnRange};

impl<P: Platform> Platform for &P {
    type Guard = P::Guard;

    fn guard(&self) -> Self::Guard {
        (**self).guard()
    }

    fn current_cpu(&self) -> CpuId {
        (**self).current_cpu()
    }

    fn relax(&self, round: u32) {
        (**self).relax(round);
    }

    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        (**self).frame_bytes(pfn)
    }

    fn touch_page(&self, pfn: Pfn, access: Access) {
        (**self).touch_page(pfn, access);
    }

    fn prefetch_page(&self, pfn: Pfn, address: *const u8) {
        (**self).prefetch_page(pfn, address);
    }

    fn span_begins(&self, span: Span) {
        (**self).span_begins(span);
    }

    fn span_ends(&self, span: Span, pages: PageCount) {
        (**self).span_ends(span, pages);
    }

    fn lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        (**self).lock(id, word)
    }

    fn try_lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        (**self).try_lock(id, word)
    }

    fn unlock(&self, id: LockId, word: &AtomicU32) {
        (**self).unlock(id, word);
    }

    fn run_workers(
        &self,
        count: usize,
        node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        (**self).run_workers(count, node_of, job)
    }

    fn clock_ns(&self) -> Option<u64> {
        (**self).clock_ns()
    }

    fn lock_clock_ns(&self) -> Option<u64> {
        (**self).lock_clock_ns()
    }

    fn back_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        (**self).back_map(frames, address, bytes)
    }

    fn return_frames(&self, frames: &FreeFrames) -> Result<(), FramesNotReturned> {
        (**self).return_frames(frames)
    }

    fn init_progress(&self, progress: InitProgress) {
        (**self).init_progress(progress);
    }
}
