//! The recount of the lists of used pages, while nobody is at work.

use frameyard::page::{FrameLink, FrameState};
use frameyard::{CpuId, NodeId, PageCount, Pfn, Platform};

use super::LruList;
use super::batch::BatchKind;
use super::shard::ShardKey;
use crate::error::VmValidateError;
use crate::page::Flags;
use crate::vm::Vm;

impl<P: Platform> Vm<'_, P> {
    /// Recounts the lists of used pages and the batches.
    ///
    /// - Each list is linked both ways, and has as many pages as it says.
    /// - Each page on it is counted, has a user, [`Flags::LRU`], and names this shard and this list.
    /// - No other page has [`Flags::LRU`].
    /// - Each page in a batch is counted and has a user, and one that is to be added is on no list.
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
            let what = "pages with the flag of lists of used pages";
            return Err(VmValidateError::Count { what, kept: flagged, found: linked });
        }
        self.validate_batches()
    }

    /// How many blocks a list has.
    fn validate_list(&self, key: ShardKey, list: LruList) -> Result<u64, VmValidateError> {
        let shard = self.shard(key);
        let [first, last] = shard.ends_racy(list);
        let (mut at, mut before) = (first, FrameLink::NONE);
        let (mut blocks, mut pages) = (0, PageCount(0));
        let most = self.yard().frame_range().count().0;
        while let Some(pfn) = self.yard().linked(at) {
            let wrong = |what| Err(VmValidateError::Frame { pfn, what });
            let Some(page) = self.try_page(pfn) else { return wrong("has no page, and is on a list of used pages") };
            let word = page.owner();
            if !page.is_counted() || page.counts().references == 0 {
                return wrong("is on a list of used pages without users");
            }
            if word & Flags::LRU == 0 {
                return wrong("is on a list of used pages, and its flag says it is not");
            }
            if ShardKey::of(page, word) != key || LruList::of_word(word) != list {
                return wrong("is on another list of used pages than it says");
            }
            if page.prev() != before {
                return wrong("is on a list of used pages, and does not name the page before it");
            }
            pages += page.tag().order().pages();
            blocks += 1;
            if blocks > most {
                return wrong("is on a list of used pages that has no end");
            }
            (before, at) = (at, page.next());
        }
        if before != last {
            let (kept, found) = (u64::from(last.bits()), u64::from(before.bits()));
            return Err(VmValidateError::Count { what: "last page of a list of used pages", kept, found });
        }
        if pages != shard.pages_racy(list) {
            let kept = shard.pages_racy(list).0;
            return Err(VmValidateError::Count { what: "pages on a list of used pages", kept, found: pages.0 });
        }
        Ok(blocks)
    }

    /// How many blocks of the memory map say that they are on a list.
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
                        return wrong("is in a batch of used pages and not in use");
                    };
                    if page.counts().references == 0 {
                        return wrong("is in a batch of used pages without users");
                    }
                    if kind == BatchKind::Add && page.owner() & Flags::LRU != 0 {
                        return wrong("is on a list of used pages and in a batch of pages to add");
                    }
                }
            }
        }
        Ok(())
    }
}
