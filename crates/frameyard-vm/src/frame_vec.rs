//! A vector of frame numbers, kept in place.

use frameyard::Pfn;

/// At most `N` frame numbers.
pub(crate) struct FrameVec<const N: usize> {
    frames: [Pfn; N],
    len: usize,
}

/// Frames that are processed under one lock or freed together.
pub(crate) type Gathered = FrameVec<32>;

impl<const N: usize> FrameVec<N> {
    pub(crate) const CAPACITY: usize = N;

    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self { frames: [Pfn(0); N], len: 0 }
    }

    /// Adds a frame.
    ///
    /// # Panics
    ///
    /// If the vector is full.
    #[inline(always)]
    pub(crate) fn push(&mut self, pfn: Pfn) {
        self.frames[self.len] = pfn;
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.len == N
    }

    #[inline(always)]
    pub(crate) fn frames(&self) -> &[Pfn] {
        &self.frames[..self.len]
    }

    /// Empties the vector and returns the frames it had.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> &[Pfn] {
        let len = core::mem::take(&mut self.len);
        &self.frames[..len]
    }
}
