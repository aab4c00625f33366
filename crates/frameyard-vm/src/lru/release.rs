//! Pages that nobody uses any more: off their lists, and back to the yard.

use frameyard::{Order, Pfn, Platform};

use super::Gathered;
use super::shard::ShardKey;
use crate::page::Flags;
use crate::vm::Vm;

impl<P: Platform> Vm<'_, P> {
    /// Frees pages that have no references any more: the caller has put the last one, or frozen them.
    ///
    /// After the kernel's `release_pages`. Cost: the lock of a shard once for all its pages of a batch; the yard's per-CPU lock
    /// once a batch.
    pub(crate) fn free_unused(&self, frames: &[Pfn]) {
        frames.chunks(self.lru_batch().clamp(1, Gathered::MOST)).for_each(|frames| self.free_batch(frames));
    }

    fn free_batch(&self, frames: &[Pfn]) {
        // Neighbours are written under the lock; they may be other pages by then, which a hint does not mind.
        for pfn in frames.iter().copied() {
            let page = self.listed_page(pfn);
            for link in [page.next(), page.prev()] {
                if let Some(neighbour) = self.yard().counted().linked(link).and_then(|pfn| self.try_page(pfn)) {
                    neighbour.prefetch();
                }
            }
        }
        let key = |pfn| {
            let page = self.listed_page(pfn);
            let word = page.owner();
            // Nobody can get a reference, so nobody clears the flag.
            (word & Flags::LRU != 0).then(|| ShardKey::of(page, word))
        };
        self.by_shard(frames, key, |lists, page| lists.unlink(page));
        let mut small = Gathered::new();
        for pfn in frames.iter().copied() {
            match self.listed_page(pfn).tag().order() {
                Order::ZERO => small.push(pfn),
                order => self.expect_freed(self.yard().counted().free(pfn, order)),
            }
        }
        self.expect_freed(self.yard().counted().free_bulk(small.frames()));
    }

    fn expect_freed(&self, freed: Result<(), frameyard::FreeError>) {
        debug_assert!(freed.is_ok(), "who frees a page has it alone: {freed:?}");
    }
}
