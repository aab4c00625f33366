//! An intrusive, doubly linked list of blocks. The links are in the page structures of the blocks' heads. All free
//! lists are of this type.

use crate::memmap::{MapPlace, MemMap};
use crate::page::Link;
use crate::platform::Platform;
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::Pfn;

use crate::zone::exclusive::{add_exclusive, sub_exclusive};

/// A list; the holder of its lock changes it. `first` and `last` are 0 if it is empty.
#[derive(Default)]
pub(crate) struct BlockList {
    first: AtomicU32,
    last: AtomicU32,
    blocks: AtomicU64,
}

all_atomic!(BlockList { first, last, blocks });

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Allocated next.
    Head,
    /// Allocated last: the block may soon merge into a larger one.
    Tail,
}

impl BlockList {
    #[inline(always)]
    pub(crate) fn first_racy(&self) -> Link {
        Link(self.first.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn last_racy(&self) -> Link {
        Link(self.last.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn blocks_racy(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Links a block to an end of the list; the old block at that end. The caller counts it.
    #[inline(always)]
    pub(crate) fn add<P: Platform>(&self, map: &MemMap, platform: &P, block: MapPlace, end: Place) -> Link {
        let (link, page) = (block.link(), map.page(block, platform));
        match end {
            Place::Head => {
                let old = self.first_racy();
                page.set_next(old);
                page.set_prev(Link::NONE);
                self.first.store(link.0, Ordering::Relaxed);
                match map.next(old) {
                    Some(next) => map.page(next, platform).set_prev(link),
                    None => self.last.store(link.0, Ordering::Relaxed),
                }
                old
            }
            Place::Tail => {
                let old = self.last_racy();
                page.set_prev(old);
                page.set_next(Link::NONE);
                self.last.store(link.0, Ordering::Relaxed);
                match map.next(old) {
                    Some(prev) => map.page(prev, platform).set_next(link),
                    None => self.first.store(link.0, Ordering::Relaxed),
                }
                old
            }
        }
    }

    /// Unlinks a block with those neighbours. The caller counts it and clears its links.
    #[inline(always)]
    pub(crate) fn remove<P: Platform>(&self, map: &MemMap, platform: &P, next: Link, prev: Link) {
        match map.next(prev) {
            Some(prev) => map.page(prev, platform).set_next(next),
            None => self.first.store(next.0, Ordering::Relaxed),
        }
        match map.next(next) {
            Some(next) => map.page(next, platform).set_prev(prev),
            None => self.last.store(prev.0, Ordering::Relaxed),
        }
    }

    /// Unlinks all blocks before `next`. Their pages stay as they are. The caller counts them.
    #[inline(always)]
    pub(crate) fn detach_front<P: Platform>(&self, map: &MemMap, platform: &P, next: Link) {
        self.first.store(next.0, Ordering::Relaxed);
        match map.next(next) {
            Some(next) => map.page(next, platform).set_prev(Link::NONE),
            None => self.last.store(0, Ordering::Relaxed),
        }
    }

    /// Links a chain of blocks to the head of the list. The caller counts them.
    pub(crate) fn splice_front<P: Platform>(&self, map: &MemMap, platform: &P, first: Pfn, tail: Pfn) {
        let old = self.first_racy();
        map.page(tail, platform).set_next(old);
        self.first.store(map.link(first).0, Ordering::Relaxed);
        match map.next(old) {
            Some(next) => map.page(next, platform).set_prev(map.link(tail)),
            None => self.last.store(map.link(tail).0, Ordering::Relaxed),
        }
    }

    /// Counts blocks that were linked; whether the list was empty.
    #[inline(always)]
    pub(crate) fn count_added(&self, blocks: u64) -> bool {
        let was_empty = self.blocks_racy() == 0;
        add_exclusive(&self.blocks, blocks);
        was_empty
    }

    /// Counts blocks that were unlinked; whether the list is empty now.
    #[inline(always)]
    pub(crate) fn count_removed(&self, blocks: u64) -> bool {
        sub_exclusive(&self.blocks, blocks);
        self.blocks_racy() == 0
    }
}
