//! Ageing pages of spaces: which of them are in use, told by the bits of use in their entries.
//!
//! Without a place to write them to, none can be dropped. Still the background reclaimer looks at a few of them beside
//! pages of files, so that the sizes of their lists tell what part of memory is in use, and who comes to drop them finds
//! the ones that were not used for longest at the end. (The kernel without swap does not: `can_age_anon_pages`.)
//!
//! - **Inactive** pages: one that was used is noted as referenced; used again by the next look, or active before, it becomes
//!   active (`folio_check_references`, which does the same with pages of spaces since they begin inactive). The others would
//!   be dropped now: they are counted as what reclaim cannot drop, and go round.
//! - **Active** pages are looked at when too few are inactive (`inactive_is_low`): those that were not used become inactive
//!   (`shrink_active_list`).
//! - A page whose entries somebody is just at work on stays what it is.
//!
//! # Protocol
//!
//! Up to 32 pages are isolated under the lock of their shard, looked at without it ([`Vm::take_use`]), and put back: so no
//! lock is held with that of a list, and a page is in the hands of one alone, here as for migration. Meanwhile it has
//! one reference more and no flag of being on a list: who wants to move it finds it busy and comes again; who splits its mapping leaves
//! its block whole for now, as he does while it is pinned; who unmaps it leaves freeing it to the put-back. The flags of an isolated page that say which list it is for are the
//! isolator's to change.
//!
//! # Bounds
//!
//! A pass looks at the same part of these lists as of those of files, but at no more pages than it has just looked at there,
//! or 32 where those were fewer; each shard's share is rounded up, and a huge page is looked at as a whole. Who reclaims for
//! an allocation looks at none.

use frameyard::page::CountedPage;
use frameyard::{PageCount, Platform};

use super::CLUSTER;
use super::scan::{Scan, inactive_is_low};
use crate::anonymous::Use;
use crate::counters::VmCounter;
use crate::lru::{End, Gathered, LruList, ShardKey};
use crate::page::Flags;
use crate::vm::Vm;

/// What became of pages of spaces that were looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Aged {
    activated: PageCount,
    deactivated: PageCount,
    /// Those that would have been dropped.
    unused: PageCount,
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Ages a part of a node's pages of spaces, after so many pages of files.
    pub(super) fn age_anonymous(&self, scan: &Scan, files: PageCount) {
        let most = files.0.max(CLUSTER);
        let on = |list| self.pages_on(scan.node, list);
        let (inactive, active) = (on(LruList::InactiveAnon), on(LruList::ActiveAnon));
        if inactive_is_low(inactive, active, self.yard().geometry().page_size().0) {
            let looked_at = self.age_part(scan, LruList::ActiveAnon, active, most);
            self.count(VmCounter::Pgrefill, looked_at);
        }
        let looked_at = self.age_part(scan, LruList::InactiveAnon, inactive, most);
        self.count(scan.caller.scanned(), looked_at);
        self.count(VmCounter::PgscanAnon, looked_at);
    }

    /// Looks at a part of a list, of all shards; at how many pages.
    fn age_part(&self, scan: &Scan, list: LruList, pages: PageCount, most: u64) -> u64 {
        let mut sum = 0;
        for (key, share) in self.shares(scan, list, pages, scan.part_of(pages).min(most)) {
            let mut left = share;
            while left > 0 {
                let looked_at = self.age_listed(key, list, left.min(CLUSTER)).0;
                sum += looked_at;
                left = if looked_at == 0 { 0 } else { left.saturating_sub(looked_at) };
            }
        }
        sum
    }

    /// Looks at up to 32 blocks at the end of a shard's list of pages of spaces, until that many pages were looked at, and
    /// puts each where it belongs; at how many pages.
    pub(crate) fn age_listed(&self, key: ShardKey, list: LruList, most: u64) -> PageCount {
        let (taken, looked_at) = self.take_listed(key, list, most);
        let mut aged = Aged::default();
        for pfn in taken.frames().iter().copied() {
            aged.note(self.page(pfn), list, self.take_use(self.page(pfn)));
        }
        self.put_back_all(taken.frames());
        let counts = [
            (VmCounter::Pgactivate, aged.activated),
            (VmCounter::Pgdeactivate, aged.deactivated),
            (VmCounter::ReclaimAnonymous, aged.unused),
        ];
        let some = counts.into_iter().filter(|(_, pages)| pages.0 > 0);
        some.for_each(|(counter, pages)| self.count(counter, pages.0));
        looked_at
    }

    /// Isolates blocks at the end of a list.
    fn take_listed(&self, key: ShardKey, list: LruList, most: u64) -> (Gathered, PageCount) {
        let (mut taken, mut looked_at) = (Gathered::new(), PageCount(0));
        let mut lists = self.lock_shard(key);
        let mut at = lists.last(list);
        for _ in 0..CLUSTER {
            let Some(page) = at.filter(|_| looked_at.0 < most) else { break };
            at = lists.before(page);
            at.inspect(CountedPage::prefetch);
            looked_at += page.tag().order().pages();
            match lists.isolate(page) {
                Some(page) => taken.push(page.pfn()),
                None => lists.rotate(page, End::First),
            }
        }
        (taken, looked_at)
    }
}

impl Aged {
    /// Decides which list an isolated page is for, by what a look at it has found.
    fn note<P: Platform>(&mut self, page: CountedPage<'_, P>, list: LruList, found: Use) {
        let pages = page.tag().order().pages();
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
