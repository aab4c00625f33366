//! Where pages that are taken are written to: an array of frames, or runs of them.

use core::fmt;

use frameyard::{PageCount, Pfn};

/// Frames one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PageRun {
    /// The first one.
    pub first: Pfn,
    /// How many there are.
    pub pages: PageCount,
}

impl PageRun {
    /// The first frame behind it.
    #[inline(always)]
    #[must_use]
    pub const fn end(self) -> Pfn {
        Pfn(self.first.0 + self.pages.0)
    }
}

impl fmt::Display for PageRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages from {}", self.pages.0, self.first)
    }
}

/// Takes what a walk finds. Pages are taken only after it was asked whether there is room; those of a run for which there is
/// room may be noted piece by piece, and pages behind it that go on where it ends are noted with it.
pub(crate) trait PageSink {
    /// How many pages of a run there is room for, the first ones.
    fn room(&mut self, run: PageRun) -> u64;

    /// Notes a run for which there is room.
    fn push(&mut self, run: PageRun);
}

/// An array of frames that is filled.
pub(super) struct FrameArray<'a> {
    frames: &'a mut [Pfn],
    len: usize,
}

impl<'a> FrameArray<'a> {
    pub(super) fn new(frames: &'a mut [Pfn]) -> Self {
        Self { frames, len: 0 }
    }
}

impl PageSink for FrameArray<'_> {
    #[inline(always)]
    fn room(&mut self, run: PageRun) -> u64 {
        run.pages.0.min((self.frames.len() - self.len) as u64)
    }

    #[inline(always)]
    fn push(&mut self, run: PageRun) {
        let end = self.len + run.pages.0 as usize;
        // Without a look at any page: this is what the bytes of the array cost to write.
        for (slot, nth) in self.frames[self.len..end].iter_mut().zip(0_u64..) {
            *slot = Pfn(run.first.0 + nth);
        }
        self.len = end;
    }
}

/// Runs that are filled; those that touch are one.
pub(super) struct RunArray<'a> {
    runs: &'a mut [PageRun],
    pub(super) len: usize,
}

impl<'a> RunArray<'a> {
    pub(super) fn new(runs: &'a mut [PageRun]) -> Self {
        Self { runs, len: 0 }
    }

    fn joins(&self, run: PageRun) -> bool {
        self.len > 0 && self.runs[self.len - 1].end() == run.first
    }
}

impl PageSink for RunArray<'_> {
    #[inline(always)]
    fn room(&mut self, run: PageRun) -> u64 {
        if self.len < self.runs.len() || self.joins(run) { run.pages.0 } else { 0 }
    }

    #[inline(always)]
    fn push(&mut self, run: PageRun) {
        if self.joins(run) {
            self.runs[self.len - 1].pages += run.pages;
        } else {
            self.runs[self.len] = run;
            self.len += 1;
        }
    }
}
