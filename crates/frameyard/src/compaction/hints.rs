//! Pageblocks that compaction passes by: nothing there could be moved, or nothing was free.

use crate::sync::{AtomicU64, Ordering};
use crate::units::{Geometry, Order, PageCount, Pfn, PfnRange};

/// A bit for each pageblock of the memory map (the kernel's `PB_migrate_skip`). Hints alone, so relaxed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SkipHints<'a> {
    words: &'a [AtomicU64],
    first: Pfn,
    order: Order,
}

impl<'a> SkipHints<'a> {
    pub(crate) fn new(words: &'a [AtomicU64], first: Pfn, geometry: Geometry) -> Self {
        Self { words, first, order: geometry.pageblock_order() }
    }

    fn place(&self, pfn: Pfn) -> Option<(&'a AtomicU64, u64)> {
        let block = pfn.0.wrapping_sub(self.first.0) >> self.order.0;
        Some((self.words.get((block / 64) as usize)?, 1 << (block % 64)))
    }

    /// Whether the pageblock is passed by.
    pub(crate) fn is_set(&self, pfn: Pfn) -> bool {
        self.place(pfn).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// From now on the pageblock is passed by.
    pub(crate) fn set(&self, pfn: Pfn) {
        if let Some((word, bit)) = self.place(pfn) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// All pageblocks of a range are worth a look again.
    pub(crate) fn clear(&self, range: PfnRange) {
        let mut at = range.start.align_down(self.order);
        while at < range.end {
            if let Some((word, bit)) = self.place(at)
                && word.load(Ordering::Relaxed) & bit != 0
            {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
            at = at + self.order.pages();
        }
    }

    /// How many pageblocks of a range are passed by.
    pub(crate) fn count(&self, range: PfnRange) -> u64 {
        let blocks = (range.end.0.saturating_sub(range.start.align_down(self.order).0)).div_ceil(self.order.pages().0);
        let start = range.start.align_down(self.order);
        (0..blocks).filter(|block| self.is_set(start + PageCount(block << self.order.0))).count() as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn hints_are_set_counted_and_cleared_by_pageblock() {
        let words: std::vec::Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
        let hints = SkipHints::new(&words, Pfn(0x8000), Geometry::X86_64);
        let all = PfnRange::new(Pfn(0x8000), PageCount(128 << 9));
        for block in [0, 63, 64, 127] {
            hints.set(Pfn(0x8000 + (block << 9) + 17));
        }
        assert_eq!(hints.count(all), 4);
        assert!(hints.is_set(Pfn(0x8000 + (64 << 9))) && !hints.is_set(Pfn(0x8000 + (65 << 9))));
        hints.clear(PfnRange { start: Pfn(0x8000 + 5), end: Pfn(0x8000 + (64 << 9)) });
        assert_eq!(hints.count(all), 2);
    }

    #[test]
    fn frames_outside_the_map_have_no_hint() {
        let words: std::vec::Vec<AtomicU64> = (0..1).map(|_| AtomicU64::new(0)).collect();
        let hints = SkipHints::new(&words, Pfn(0x8000), Geometry::X86_64);
        for pfn in [Pfn(0), Pfn(0x7fff), Pfn(0x8000 + (64 << 9))] {
            hints.set(pfn);
            assert!(!hints.is_set(pfn));
        }
    }
}
