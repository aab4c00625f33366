//! Release of pages without references: unlinked, then freed to the yard.

use frameyard::page::FrameState;
use frameyard::{Order, Pfn, Platform};

use super::shard::ShardKey;
use crate::error::Damage;
use crate::frame_vec::Gathered;
use crate::page::Flags;
use crate::vm::Vm;

impl<P: Platform> Vm<'_, P> {
    /// Frees pages without references. The caller has released the last one, or frozen them.
    ///
    /// After the kernel's `release_pages`. Cost: the lock of a shard once per batch; the yard's per-CPU lock once per
    /// batch.
    pub(crate) fn free_unused(&self, frames: &[Pfn]) {
        frames.chunks(self.lru_batch().clamp(1, Gathered::CAPACITY)).for_each(|frames| self.free_batch(frames));
    }

    fn free_batch(&self, frames: &[Pfn]) {
        // The lock holder writes to neighbours. They may be other pages by then, which does not matter for a prefetch.
        for pfn in frames.iter().copied() {
            let page = self.page(pfn);
            for link in [page.next(), page.prev()] {
                // SAFETY: only a prefetch.
                unsafe { self.yard().counted().allocated_linked_page(link) }.inspect(|page| page.prefetch());
            }
        }
        let key = |pfn| {
            let page = self.page(pfn);
            let word = page.owner();
            // No CPU can get a reference, so the flag does not change.
            (word & Flags::LRU != 0).then(|| ShardKey::of(page, word))
        };
        let skipped = self.by_shard(frames, key, |lists, page| lists.unlink(page));
        let mut small = Gathered::new();
        for (at, pfn) in frames.iter().copied().enumerate() {
            if skipped >> at & 1 != 0 {
                // Still on its list, and lost.
                continue;
            }
            let tag = self.page(pfn).tag();
            match tag.order() {
                Order::ZERO => small.push(pfn),
                _ if tag.is(FrameState::Pooled) => {
                    // SAFETY: the caller put the last reference of each frame.
                    self.expect(unsafe { self.yard().huge_pages().take_back(pfn) }, Damage::Frame);
                }
                // SAFETY: as above.
                order => self.expect(unsafe { self.yard().counted().free(pfn, order) }, Damage::Frame),
            }
        }
        // SAFETY: as above.
        self.expect(unsafe { self.yard().counted().free_bulk(small.frames()) }, Damage::Frame);
    }
}
