//! Sinks of taken pages: an array of frames, or runs.

use core::fmt;

use frameyard::{PageCount, Pfn};

/// A run of consecutive frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct PageRun {
    /// The first frame.
    pub first: Pfn,
    /// The number of frames.
    pub pages: PageCount,
}

impl PageRun {
    /// One past the last frame.
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

/// A sink for a walk. The walk checks for room before it takes pages. It may note a run piece by piece, merged with
/// adjacent later pages. The walk calls a sink under the lock of a page table, so a sink allocates nothing.
pub(crate) trait PageSink {
    /// The number of leading pages of a run that fit.
    fn room(&mut self, run: PageRun) -> u64;

    /// Notes a run that fits.
    fn push(&mut self, run: PageRun);
}

/// An array of frames to fill.
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
        // No access to page structures: the cost is that of writing the array.
        for (slot, nth) in self.frames[self.len..end].iter_mut().zip(0_u64..) {
            *slot = Pfn(run.first.0 + nth);
        }
        self.len = end;
    }
}

/// An array of runs to fill. Adjacent runs are merged.
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
