//! The bytes of frames: addresses for all frames, memory for the few that code reads or writes.
//!
//! Owners keep page tables and lists in frames' bytes. The contents of users' pages are never read. So one range of
//! addresses is reserved for all frames, and the host backs only written pages. Zeroing a frame whose address was
//! never given out writes nothing.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use frameyard::{ByteSize, PageCount, Pfn, PfnRange};

use crate::confined::Confined;
use crate::region::Reservation;

/// The reserved addresses, and which frames may have been written.
pub(crate) struct FrameBytes {
    reserved: Reservation,
    frames: PfnRange,
    page_shift: u32,
    /// A bit per frame: a caller got its address since its bytes were zeroed.
    exposed: Vec<AtomicU64>,
    /// A bit per frame: a caller has got its address before, so the host may have backed it.
    backed: Vec<AtomicU64>,
    /// Zeroed blocks of several frames, by the index of their first frame. A caller that gets the first frame's
    /// address has the address of the whole block.
    blocks: Confined<BTreeMap<usize, usize>>,
}

impl FrameBytes {
    /// Addresses for these frames; `None` if the host has no such range.
    pub(crate) fn new(frames: PfnRange, page_shift: u32) -> Option<Self> {
        let count = frames.count().0;
        let reserved = Reservation::new(ByteSize(count << page_shift))?;
        let bits = || std::iter::repeat_with(AtomicU64::default).take(count.div_ceil(64) as usize).collect();
        Some(Self {
            reserved,
            frames,
            page_shift,
            exposed: bits(),
            backed: bits(),
            blocks: Confined::new(BTreeMap::new()),
        })
    }

    /// The first address and the number of bytes.
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.reserved.base().addr().get(), self.reserved.len())
    }

    /// The most bytes of host memory: backed frames, and the bits per frame.
    pub(crate) fn bytes(&self) -> usize {
        let backed: usize = self.backed.iter().map(|bits| bits.load(Ordering::Relaxed).count_ones() as usize).sum();
        (backed << self.page_shift) + size_of_val(&*self.exposed) + size_of_val(&*self.backed)
    }

    #[inline(always)]
    fn index(&self, pfn: Pfn) -> Option<usize> {
        self.frames.contains(pfn).then(|| (pfn.0 - self.frames.start.0) as usize)
    }

    /// The address of a frame's bytes.
    #[inline(always)]
    pub(crate) fn of(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        let index = self.index(pfn)?;
        if !self.is_exposed(index) {
            self.expose(index);
        }
        Some(self.reserved.at(index << self.page_shift))
    }

    /// Records that a caller gets the address of a frame and of its block.
    #[cold]
    fn expose(&self, index: usize) {
        let count = self.blocks.borrow().get(&index).copied().unwrap_or(1);
        (index..index + count).for_each(|at| {
            self.exposed[at / 64].fetch_or(1 << (at % 64), Ordering::Relaxed);
            self.backed[at / 64].fetch_or(1 << (at % 64), Ordering::Relaxed);
        });
    }

    /// Whether a caller got the frame's address since its bytes were zeroed. Otherwise they are zero.
    fn is_exposed(&self, index: usize) -> bool {
        self.exposed[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 != 0
    }

    /// Copies a block of frames to another; the caller owns both. Unwritten frames stay unbacked.
    pub(crate) fn copy(&self, from: PfnRange, to: Pfn) {
        self.zero(PfnRange::new(to, from.count()));
        for offset in (0..from.count().0).map(PageCount) {
            let (from, to) = (from.start + offset, to + offset);
            let Some((source, target)) = self.index(from).zip(self.index(to)) else { return };
            if self.is_exposed(source) && self.of(to).is_some() {
                self.reserved.copy(source << self.page_shift, target << self.page_shift, 1 << self.page_shift);
            }
        }
    }

    /// Zeroes a block of frames that the caller owns. Writes only frames whose address a caller has got.
    pub(crate) fn zero(&self, frames: PfnRange) {
        let Some(first) = self.index(frames.start) else { return };
        let PageCount(count) = frames.count();
        let mut blocks = self.blocks.borrow();
        if count > 1 {
            blocks.insert(first, count as usize);
        } else if !blocks.is_empty() {
            blocks.remove(&first);
        }
        for at in first..first + count as usize {
            let bit = 1 << (at % 64);
            if self.is_exposed(at) {
                self.exposed[at / 64].fetch_and(!bit, Ordering::Relaxed);
                self.reserved.zero(at << self.page_shift, 1 << self.page_shift);
            }
        }
    }
}
