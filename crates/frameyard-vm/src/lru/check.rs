//! Validation of the LRU lists. Requires quiescence.

use frameyard::page::{FrameLink, FrameState};
use frameyard::{CpuId, NodeId, PageCount, Pfn, Platform};

use super::LruList;
use super::batch::BatchKind;
use super::shard::ShardKey;
use crate::error::{Damage, VmValidateError};
use crate::page::Flags;
use crate::vm::Vm;

impl<P: Platform> Vm<'_, P> {
    /// Recounts the LRU lists and the batches.
    ///
    /// - Each list is linked both ways and has the counted number of pages.
    /// - Each page on a list is counted, has a user and [`Flags::LRU`], and names this shard and list.
    /// - No other page has [`Flags::LRU`].
    /// - Each page in a batch is counted and has a user. A page in an add batch is on no list.
    pub(crate) fn validate_lru(&self) -> Result<(), VmValidateError> {
        let mut linked = 0;
        for node in (0..self.yard().nodes()).map(NodeId) {
            for shard in 0..self.root().shards() {
                for list in LruList::ALL {
                    linked += self.validate_list(ShardKey { node, shard }, list)?;
                }
            }
        }
        let flagged = self.flagged_pages();
        if flagged != linked {
            let what = "pages with the LRU flag";
            return Err(VmValidateError::Count { what, kept: flagged, found: linked });
        }
        self.validate_batches()
    }

    /// The number of blocks on a list.
    fn validate_list(&self, key: ShardKey, list: LruList) -> Result<u64, VmValidateError> {
        let shard = self.shard(key).ok_or(VmValidateError::Damaged(Damage::Lru))?;
        let [first, last] = shard.ends_racy(list);
        let (mut at, mut before) = (first, FrameLink::NONE);
        let (mut blocks, mut pages) = (0, PageCount(0));
        let most = self.yard().map_frames().0;
        while let Some(pfn) = self.yard().counted().linked(at) {
            let wrong = |what| Err(VmValidateError::Frame { pfn, what });
            let Some(page) = self.try_page(pfn) else { return wrong("is on an LRU list and has no page") };
            let word = page.owner();
            if !page.is_counted() || page.counts().references == 0 {
                return wrong("is on an LRU list without users");
            }
            if word & Flags::LRU == 0 {
                return wrong("is on an LRU list without the LRU flag");
            }
            if ShardKey::of(page, word) != key || LruList::of_word(word) != list {
                return wrong("is on an LRU list that it does not name");
            }
            if page.prev() != before {
                return wrong("is on an LRU list and does not link to the page before it");
            }
            pages += self.pages_of(page);
            blocks += 1;
            if blocks > most {
                return wrong("is on an LRU list without an end");
            }
            (before, at) = (at, page.next());
        }
        if before != last {
            let (kept, found) = (u64::from(last.bits()), u64::from(before.bits()));
            return Err(VmValidateError::Count { what: "last page of an LRU list", kept, found });
        }
        let kept = shard.pages_racy(list, PageCount(u64::MAX));
        if pages != kept {
            let kept = kept.0;
            return Err(VmValidateError::Count { what: "pages on an LRU list", kept, found: pages.0 });
        }
        Ok(blocks)
    }

    /// The number of blocks with the flag in the memory map.
    fn flagged_pages(&self) -> u64 {
        let flagged = |pfn| {
            self.try_page(pfn).filter(|page| page.tag().is(FrameState::Counted) && page.owner() & Flags::LRU != 0)
        };
        let ranges = self.yard().memory_ranges().map(|(range, _)| range);
        ranges.map(|range| (range.start.0..range.end.0).map(Pfn).filter_map(flagged).count() as u64).sum()
    }

    fn validate_batches(&self) -> Result<(), VmValidateError> {
        for cpu in (0..self.yard().cpus()).map(CpuId) {
            for kind in BatchKind::ALL {
                for pfn in self.batch_racy(kind, cpu) {
                    let wrong = |what| Err(VmValidateError::Frame { pfn, what });
                    let Some(page) = self.try_page(pfn).filter(|page| page.is_counted()) else {
                        return wrong("is in an LRU batch and not in use");
                    };
                    if page.counts().references == 0 {
                        return wrong("is in an LRU batch without users");
                    }
                    if kind == BatchKind::Add && page.owner() & Flags::LRU != 0 {
                        return wrong("is on an LRU list and in an add batch");
                    }
                }
            }
        }
        Ok(())
    }
}
