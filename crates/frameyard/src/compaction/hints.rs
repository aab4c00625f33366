//! Pageblocks that compaction skips, because an earlier run found no block to move or no free block there.

use crate::memmap::Numbering;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Geometry, Order, Pfn, PfnRange};

/// A bit for each pageblock of the memory map (the kernel's `PB_migrate_skip`). Only hints, so all accesses are relaxed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SkipHints<'a> {
    words: &'a [AtomicU64],
    numbering: Numbering,
    order: Order,
}

impl<'a> SkipHints<'a> {
    pub(crate) fn new(words: &'a [AtomicU64], numbering: Numbering, geometry: Geometry) -> Self {
        Self { words, numbering, order: geometry.pageblock_order() }
    }

    fn place(&self, pfn: Pfn) -> Option<(&'a AtomicU64, u64)> {
        let block = self.numbering.place(pfn) >> self.order.0;
        Some((self.words.get(block / 64)?, 1 << (block % 64)))
    }

    /// Whether to skip the pageblock.
    pub(crate) fn is_set(&self, pfn: Pfn) -> bool {
        self.place(pfn).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Makes later runs skip the pageblock.
    pub(crate) fn set(&self, pfn: Pfn) {
        if let Some((word, bit)) = self.place(pfn) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Clears the hints of a range. Reads one word per 64 pageblocks.
    pub(crate) fn clear(&self, range: PfnRange) {
        for (word, bits) in self.words_of(range) {
            if word.load(Ordering::Relaxed) & bits != 0 {
                word.fetch_and(!bits, Ordering::Relaxed);
            }
        }
    }

    /// The number of pageblocks to skip in a range.
    pub(crate) fn count(&self, range: PfnRange) -> u64 {
        self.words_of(range).map(|(word, bits)| u64::from((word.load(Ordering::Relaxed) & bits).count_ones())).sum()
    }

    /// The words that cover a range of frames, each with bits of the range. Holes have no bits.
    fn words_of(&self, range: PfnRange) -> impl Iterator<Item = (&'a AtomicU64, u64)> {
        let words = self.words;
        self.numbering.blocks_of(range, self.order).flat_map(move |blocks| {
            let bits = move |word: u64| {
                let below = |block: u64| match block.saturating_sub(word * 64) {
                    bits @ 0..64 => (1u64 << bits) - 1,
                    _ => u64::MAX,
                };
                below(blocks.end) & !below(blocks.start)
            };
            let touched = words.iter().zip(0..).skip(blocks.start as usize / 64);
            touched.map(move |(word, at)| (word, bits(at))).take_while(|(_, bits)| *bits != 0)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::units::PageCount;

    fn hints(words: &[AtomicU64]) -> SkipHints<'_> {
        let frames = PfnRange::new(Pfn(0x8000), PageCount((64 * words.len() as u64) << 9));
        SkipHints::new(words, Numbering::without_holes(frames), Geometry::X86_64)
    }

    #[test]
    fn hints_work_per_pageblock() {
        let words: std::vec::Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
        let hints = hints(&words);
        let all = PfnRange::new(Pfn(0x8000), PageCount(128 << 9));
        for block in [0, 63, 64, 127] {
            hints.set(Pfn(0x8000 + (block << 9) + 17));
        }
        assert_eq!(hints.count(all), 4);
        assert!(hints.is_set(Pfn(0x8000 + (64 << 9))) && !hints.is_set(Pfn(0x8000 + (65 << 9))));
        let in_the_middle = PfnRange { start: Pfn(0x8000 + (63 << 9)), end: Pfn(0x8000 + (64 << 9) + 1) };
        assert_eq!(hints.count(in_the_middle), 2);
        assert_eq!(hints.count(PfnRange::default()), 0);
        hints.clear(PfnRange { start: Pfn(0x8000 + 5), end: Pfn(0x8000 + (64 << 9)) });
        assert_eq!((hints.count(all), hints.count(in_the_middle)), (2, 1));
    }

    #[test]
    fn frames_outside_the_map_have_no_hint() {
        let words: std::vec::Vec<AtomicU64> = (0..1).map(|_| AtomicU64::new(0)).collect();
        let hints = hints(&words);
        for pfn in [Pfn(0), Pfn(0x7fff), Pfn(0x8000 + (64 << 9))] {
            hints.set(pfn);
            assert!(!hints.is_set(pfn));
        }
    }
}
