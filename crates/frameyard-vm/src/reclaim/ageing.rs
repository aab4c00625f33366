//! Ageing of pages of spaces, by the accessed bits of their entries.
//!
//! Without a backing store none of them can be dropped. The background reclaimer still scans a few of them along with
//! file pages, so that the sizes of their lists show what part of memory is in use, and a future swap finds the least
//! recently used ones at the end. (The kernel does not do this without swap: `can_age_anon_pages`.)
//!
//! - **Inactive** pages: the first use sets the referenced flag; another use, or a page that was active before, makes
//!   the page active (`folio_check_references`, which treats pages of spaces the same since they start inactive).
//!   Reclaim counts unused pages as not droppable and rotates them.
//! - **Active** pages are scanned when too few are inactive (`inactive_is_low`). Unused ones become inactive
//!   (`shrink_active_list`).
//! - A page whose entries another CPU is changing keeps its state.
//!
//! # Protocol
//!
//! A pass isolates up to 32 pages under the lock of their shard, checks them without it ([`Vm::take_use`]), and returns
//! them. No lock is held together with a list lock, and a page has one isolator at a time, as in migration. Meanwhile
//! the page has one more reference and no `LRU` flag. A migration finds it busy and retries later. A split of its
//! mapping leaves its block whole, as for a pinned page. An unmap leaves freeing it to the isolator. The isolator may
//! change the flags that select the page's list.
//!
//! # Bounds
//!
//! A pass scans the same part of these lists as of the file lists, at most the number of file pages just scanned, or 32
//! if that is larger. The share of each shard is rounded up, and a huge page is scanned as a whole. Direct reclaim
//! scans none.

use frameyard::page::CountedPage;
use frameyard::{PageCount, Platform};

use super::CLUSTER;
use super::scan::{Scan, inactive_is_low};
use crate::anonymous::Use;
use crate::counters::VmCounter;
use crate::frame_vec::Gathered;
use crate::lru::{End, LruList, ShardKey};
use crate::page::Flags;
use crate::vm::Vm;

/// The result of ageing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Aged {
    activated: PageCount,
    deactivated: PageCount,
    /// Pages that would have been dropped.
    unused: PageCount,
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Ages a part of a node's pages of spaces, after `files` file pages.
    pub(super) fn age_anonymous(&self, scan: &Scan, files: PageCount) {
        let most = files.0.max(CLUSTER);
        let on = |list| self.pages_on(scan.node, list);
        let (inactive, active) = (on(LruList::InactiveAnon), on(LruList::ActiveAnon));
        if inactive_is_low(inactive, active, self.yard().geometry().page_size().0) {
            let scanned = self.age_part(scan, LruList::ActiveAnon, active, most);
            self.count(VmCounter::Pgrefill, scanned);
        }
        let scanned = self.age_part(scan, LruList::InactiveAnon, inactive, most);
        self.count(scan.caller.scanned(), scanned);
        self.count(VmCounter::PgscanAnon, scanned);
    }

    /// Scans a part of a list over all shards; returns the number of pages scanned.
    fn age_part(&self, scan: &Scan, list: LruList, pages: PageCount, most: u64) -> u64 {
        let mut sum = 0;
        for (key, share) in self.shares(scan, list, pages, scan.part_of(pages).min(most)) {
            let mut left = share;
            while left > 0 {
                let scanned = self.age_listed(key, list, left.min(CLUSTER)).0;
                sum += scanned;
                left = if scanned == 0 { 0 } else { left.saturating_sub(scanned) };
            }
        }
        sum
    }

    /// Scans up to 32 blocks at the end of a shard's list of pages of spaces, up to a number of pages, and returns each
    /// to the right list. Returns the number of pages scanned.
    pub(crate) fn age_listed(&self, key: ShardKey, list: LruList, most: u64) -> PageCount {
        let (taken, scanned) = self.isolate_listed(key, list, most);
        let mut aged = Aged::default();
        for pfn in taken.frames().iter().copied() {
            let page = self.page(pfn);
            aged.note((page, self.pages_of(page)), list, self.take_use(page));
        }
        self.put_back_all(taken.frames());
        let counts = [
            (VmCounter::Pgactivate, aged.activated),
            (VmCounter::Pgdeactivate, aged.deactivated),
            (VmCounter::ReclaimAnonymous, aged.unused),
        ];
        let some = counts.into_iter().filter(|(_, pages)| pages.0 > 0);
        some.for_each(|(counter, pages)| self.count(counter, pages.0));
        scanned
    }

    /// Isolates blocks at the end of a list.
    fn isolate_listed(&self, key: ShardKey, list: LruList, most: u64) -> (Gathered, PageCount) {
        let (mut taken, mut scanned) = (Gathered::new(), PageCount(0));
        let Some(mut lists) = self.lock_shard(key) else { return (taken, scanned) };
        let mut at = lists.last(list);
        for _ in 0..CLUSTER {
            let Some(page) = at.filter(|_| scanned.0 < most) else { break };
            at = lists.before(page);
            at.inspect(CountedPage::prefetch);
            scanned += self.pages_of(page);
            match lists.isolate(page) {
                Some(page) => taken.push(page.pfn()),
                None => lists.rotate(page, End::First),
            }
        }
        (taken, scanned)
    }
}

impl Aged {
    /// Selects the list of an isolated page by its use.
    fn note<P: Platform>(&mut self, (page, pages): (CountedPage<'_, P>, PageCount), list: LruList, found: Use) {
        match (found, list == LruList::ActiveAnon) {
            (Use::Used, false) => {
                if page.set_owner_bits(Flags::REFERENCED) & Flags::REFERENCED != 0 {
                    page.set_owner_bits(Flags::ACTIVE);
                    self.activated += pages;
                }
            }
            (Use::Unused, false) => {
                page.clear_owner_bits(Flags::REFERENCED);
                self.unused += pages;
            }
            (Use::Unused, true) => {
                page.clear_owner_bits(Flags::ACTIVE);
                self.deactivated += pages;
            }
            (Use::Used, true) | (Use::Busy | Use::Unmapped, _) => {}
        }
    }
}

#[cfg(test)]
mod tests;
