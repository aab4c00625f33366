//! Claims: one bit per maximum-order block, set by the worker that initialises the block.
//!
//! The unit is a maximum-order block because initialising one depends on nothing outside it: free blocks merge only
//! within it, and no pageblock crosses its ends.
//!
//! # Protocol
//!
//! One `fetch_or` sets bits and returns the bits that were clear before. Those blocks belong to the caller alone until
//! it publishes them (through the pageblock types and the zone's free lists) or gives them up. The exchange is atomic,
//! so two callers never both find a bit clear. It needs no ordering: a claim gives the right to write pages that no CPU
//! reads before they are published.

use crate::memmap::Numbering;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Order, PageCount, PfnRange};

/// The claims to the maximum-order blocks of a memory map.
#[derive(Clone, Copy)]
pub(crate) struct Claims {
    words: &'static [AtomicU64],
    /// Runs of the map consist of whole maximum-order blocks.
    numbering: Numbering,
    order: Order,
}

/// The number of blocks in a word: one bit each.
const BITS: u64 = 64;

/// The words that a map of `blocks` maximum-order blocks needs.
pub(crate) const fn words_for(blocks: u64) -> u64 {
    blocks.div_ceil(BITS)
}

impl Claims {
    pub(crate) fn new(words: &'static [AtomicU64], numbering: Numbering, order: Order) -> Self {
        Self { words, numbering, order }
    }

    fn frames(&self, blocks: core::ops::Range<u64>) -> PfnRange {
        let first = self.numbering.block_start(blocks.start, self.order);
        PfnRange::new(first, PageCount((blocks.end - blocks.start) << self.order.0))
    }

    /// Claims every unclaimed block that overlaps a range, and calls `won` with each run of them.
    pub(crate) fn claim(&self, range: PfnRange, won: &mut dyn FnMut(PfnRange)) {
        for blocks in self.numbering.blocks_of(range, self.order) {
            self.claim_blocks(blocks, won);
        }
    }

    fn claim_blocks(&self, blocks: core::ops::Range<u64>, won: &mut dyn FnMut(PfnRange)) {
        let mut held = Held { claims: *self, run: 0..0, word: 0, bits: 0 };
        for_each_word(blocks, |at, mask| {
            let word = &self.words[at as usize];
            let free = mask & !word.load(Ordering::Relaxed);
            // Relaxed: see the protocol above.
            let mine = if free == 0 { 0 } else { free & !word.fetch_or(free, Ordering::Relaxed) };
            (held.word, held.bits) = (at, mine);
            while held.bits != 0 {
                let skip = u64::from(held.bits.trailing_zeros());
                let length = u64::from((held.bits >> skip).trailing_ones());
                let start = at * BITS + skip;
                if held.run.end != start {
                    held.pass_on(won);
                    held.run = start..start;
                }
                held.run.end = start + length;
                held.bits &= !bits(skip, length);
            }
        });
        held.pass_on(won);
    }

    /// Gives up a run that the caller has claimed and has not begun to write.
    pub(crate) fn give_up(&self, range: PfnRange) {
        self.for_each_word(range, |at, mask| {
            self.words[at as usize].fetch_and(!mask, Ordering::Relaxed);
        });
    }

    /// Whether a block that overlaps a range is unclaimed. The answer may be stale.
    pub(crate) fn has_unclaimed_racy(&self, range: PfnRange) -> bool {
        let mut found = false;
        self.for_each_word(range, |at, mask| {
            found |= mask & !self.words[at as usize].load(Ordering::Relaxed) != 0;
        });
        found
    }

    fn for_each_word(&self, range: PfnRange, mut visit: impl FnMut(u64, u64)) {
        self.numbering.blocks_of(range, self.order).for_each(|blocks| for_each_word(blocks, &mut visit));
    }
}

/// Claimed blocks that `won` has not received yet: a run, and the rest of the last word.
///
/// If `won` panics, the drop gives up the rest of the word. `run` is empty while `won` runs.
struct Held {
    claims: Claims,
    run: core::ops::Range<u64>,
    /// The index of the last word.
    word: u64,
    /// Its blocks behind the run.
    bits: u64,
}

impl Held {
    fn pass_on(&mut self, won: &mut dyn FnMut(PfnRange)) {
        let run = core::mem::replace(&mut self.run, 0..0);
        if !run.is_empty() {
            won(self.claims.frames(run));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        debug_assert!(self.run.is_empty(), "every run was passed to `won`");
        if self.bits != 0 {
            self.claims.words[self.word as usize].fetch_and(!self.bits, Ordering::Relaxed);
        }
    }
}

fn bits(from: u64, count: u64) -> u64 {
    (u64::MAX >> (BITS - count)) << from
}

/// Calls `visit` with each word that holds bits of a range of blocks, and the mask of those bits.
fn for_each_word(blocks: core::ops::Range<u64>, mut visit: impl FnMut(u64, u64)) {
    let mut at = blocks.start;
    while at < blocks.end {
        let from = at % BITS;
        let count = (BITS - from).min(blocks.end - at);
        visit(at / BITS, bits(from, count));
        at += count;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memmap::kept::kept;
    use crate::units::Pfn;
    use std::boxed::Box;
    use std::vec::Vec;

    fn claims(blocks: u64) -> Claims {
        let words: Vec<AtomicU64> = (0..words_for(blocks)).map(|_| AtomicU64::new(0)).collect();
        Claims::new(kept(words), Numbering::without_holes(range(0, blocks << 4)), Order(4))
    }

    fn range(first: u64, end: u64) -> PfnRange {
        PfnRange { start: Pfn((1 << 20) + first), end: Pfn((1 << 20) + end) }
    }

    fn won(claims: Claims, wanted: PfnRange) -> Vec<PfnRange> {
        let mut runs = Vec::new();
        claims.claim(wanted, &mut |run| runs.push(run));
        runs
    }

    #[test]
    fn a_claim_takes_whole_blocks_once() {
        let claims = claims(200);
        assert_eq!(won(claims, range(20, 21)), [range(16, 32)]);
        assert_eq!(won(claims, range(0, 48)), [range(0, 16), range(32, 48)]);
        assert_eq!(won(claims, range(0, 48)), []);
        assert_eq!(won(claims, range(7, 7)), []);
        assert!(claims.has_unclaimed_racy(range(40, 64)) && !claims.has_unclaimed_racy(range(0, 48)));
    }

    #[test]
    fn runs_continue_across_words() {
        let claims = claims(200);
        assert_eq!(won(claims, range(16 * 64, 16 * 65)), [range(16 * 64, 16 * 65)]);
        assert_eq!(won(claims, range(16, 16 * 200)), [range(16, 16 * 64), range(16 * 65, 16 * 200)]);
    }

    #[test]
    fn panic_returns_unstarted_claims() {
        let claims = claims(200);
        // Runs of one block each, in several words.
        (0..200).step_by(2).for_each(|block| assert_eq!(won(claims, range(16 * block, 16 * block + 1)).len(), 1));
        let mut begun = Vec::new();
        let outcome = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            claims.claim(range(0, 16 * 200), &mut |run| {
                begun.push(run);
                if begun.len() == 40 {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(won(claims, range(0, 16 * 200)).len(), 60);
        assert_eq!(begun.len(), 40);
    }

    #[test]
    fn abandoned_blocks_can_be_claimed() {
        let claims = claims(200);
        assert_eq!(won(claims, range(0, 16 * 150)), [range(0, 16 * 150)]);
        claims.give_up(range(16 * 60, 16 * 70));
        assert_eq!(won(claims, range(0, 16 * 150)), [range(16 * 60, 16 * 70)]);
    }

    #[test]
    fn panic_gives_up_following_runs() {
        let claims = claims(200);
        let [first, second, third] = [range(0, 16 * 70), range(16 * 71, 16 * 80), range(16 * 90, 16 * 200)];
        assert_eq!(won(claims, range(first.end.0 - (1 << 20), 16 * 71)).len(), 1);
        assert_eq!(won(claims, range(16 * 80, 16 * 90)).len(), 1);
        let mut begun = Vec::new();
        let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            claims.claim(range(0, 16 * 200), &mut |run| {
                begun.push(run);
                std::panic::resume_unwind(Box::new("on purpose"));
            });
        }));
        assert!(attempt.is_err());
        assert_eq!(begun, [first]);
        assert_eq!(won(claims, range(0, 16 * 200)), [second, third], "a begun run stays claimed");
    }
}
