//! The bytes of frames: addresses for all of them, and memory for those few that somebody looks at.
//!
//! Owners keep page tables and lists in frames' bytes; what the pages of their users hold nobody asks. So one range of
//! addresses is reserved for all frames, and the host backs what is written. Zeroing a frame whose address was never asked
//! for writes nothing.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use frameyard::{ByteSize, PageCount, Pfn, PfnRange};

use crate::confined::Confined;
use crate::region::Reservation;

/// Where frames' bytes are, and which of them may have been written.
pub(crate) struct FrameBytes {
    reserved: Reservation,
    frames: PfnRange,
    page_shift: u32,
    /// A bit for each frame: its address was given out since its bytes were zeroed.
    given: Vec<AtomicU64>,
    /// A bit for each frame: its address was given out at some time, so the host may have backed it.
    backed: Vec<AtomicU64>,
    /// Blocks of several frames that were zeroed, by the index of their first: whoever asks for that one's address has that
    /// of all.
    blocks: Confined<BTreeMap<usize, usize>>,
}

impl FrameBytes {
    /// Addresses for those frames; `None` where the host has none.
    pub(crate) fn new(frames: PfnRange, page_shift: u32) -> Option<Self> {
        let count = frames.count().0;
        let reserved = Reservation::new(ByteSize(count << page_shift))?;
        let bits = || std::iter::repeat_with(AtomicU64::default).take(count.div_ceil(64) as usize).collect();
        Some(Self {
            reserved,
            frames,
            page_shift,
            given: bits(),
            backed: bits(),
            blocks: Confined::new(BTreeMap::new()),
        })
    }

    /// The addresses, from the first on, and how many bytes there are.
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.reserved.base().addr().get(), self.reserved.len())
    }

    /// Bytes of the host's memory, at most: of frames that it may have backed, and of what is known of frames.
    pub(crate) fn bytes(&self) -> usize {
        let backed: usize = self.backed.iter().map(|bits| bits.load(Ordering::Relaxed).count_ones() as usize).sum();
        (backed << self.page_shift) + size_of_val(&*self.given) + size_of_val(&*self.backed)
    }

    #[inline(always)]
    fn index(&self, pfn: Pfn) -> Option<usize> {
        self.frames.contains(pfn).then(|| (pfn.0 - self.frames.start.0) as usize)
    }

    /// Where the bytes of a frame are.
    #[inline(always)]
    pub(crate) fn of(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        let index = self.index(pfn)?;
        if !self.is_given(index) {
            self.give(index);
        }
        Some(self.reserved.at(index << self.page_shift))
    }

    /// Notes that the address of a frame goes out, with those of its block.
    #[cold]
    fn give(&self, index: usize) {
        let count = self.blocks.borrow().get(&index).copied().unwrap_or(1);
        (index..index + count).for_each(|at| {
            self.given[at / 64].fetch_or(1 << (at % 64), Ordering::Relaxed);
            self.backed[at / 64].fetch_or(1 << (at % 64), Ordering::Relaxed);
        });
    }

    /// Whether the address of a frame has gone out since its bytes were zeroed: else they are zeros.
    fn is_given(&self, index: usize) -> bool {
        self.given[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 != 0
    }

    /// Copies a block of frames to another, both of which the caller has alone: what nobody has written stays without memory.
    pub(crate) fn copy(&self, from: PfnRange, to: Pfn) {
        self.zero(PfnRange::new(to, from.count()));
        for offset in (0..from.count().0).map(PageCount) {
            let (from, to) = (from.start + offset, to + offset);
            let Some((source, target)) = self.index(from).zip(self.index(to)) else { return };
            if self.is_given(source) && self.of(to).is_some() {
                self.reserved.copy(source << self.page_shift, target << self.page_shift, 1 << self.page_shift);
            }
        }
    }

    /// Zeroes a block of frames that the caller has alone: those whose addresses were given out.
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
            if self.is_given(at) {
                self.given[at / 64].fetch_and(!bit, Ordering::Relaxed);
                self.reserved.zero(at << self.page_shift, 1 << self.page_shift);
            }
        }
    }
}
