//! Lists of used pages: which of them are in use, and which were not used for longest.
//!
//! Each node has lists of inactive and active pages, of spaces (anonymous) and of files, as the kernel's `lruvec`. A
//! shard is one set of these lists with a lock. Under [`LruPolicy::Vanilla`] a node uses one shard; under
//! [`LruPolicy::Sharded`] each group of CPUs puts pages on a shard of its own. A page stays on its shard until it is moved,
//! whatever the policy is by then, and reclaim looks at all shards: so the policy can change at any time.
//!
//! - `shard`: the record of a shard, its lock, and what is done under it;
//! - `batch`: what the CPUs collect before they take such a lock;
//! - `release`: pages that nobody uses any more;
//! - `check`: the recount.
//!
//! # Protocol
//!
//! A page is *linked* from when it is put on a list until it is taken off. Its links, and its [`ACTIVE`](Flags::ACTIVE)
//! flag while it is linked, change under the lock of its shard alone; so does the shard that its owner's word names.
//! While it is not linked, that flag is for whoever has the page isolated to change.
//! [`LRU`](Flags::LRU) is set under that lock, together with the shard, when a page is linked. It is cleared by whoever wants
//! the page off, with a reference and without a lock: who clears it, by exchange, takes the lock of the shard he found
//! beside it, and unlinks. So:
//!
//! - A page with `LRU` set and references above 0 belongs to its list. One that is linked with `LRU` cleared belongs to
//!   who cleared it, who waits for the lock. One that is linked without references belongs to who put the last one.
//! - **Isolating against freeing.** Isolating takes a reference first, and one that is being freed has none to give; so
//!   only one of the two goes on. Of two who isolate, one finds `LRU` set. Who frees has the page alone: nobody can clear
//!   its flag any more, and he reads it without an exchange.
//! - **Reclaim** looks at linked pages under the lock, without references: none can vanish before it is unlinked, under
//!   that lock. To take one off it tries to get a reference (which fails on one that is being freed), then clears `LRU`
//!   (which fails on one that somebody else isolates; he has a reference, so the one given back is not the last).
//! - **Batches against reclaim.** A page that is in a batch of pages to add is not linked and has no `LRU`, so it cannot be
//!   isolated: who wants it drains the batches first. The batch has a reference. A page in a batch of pages to be
//!   activated or deactivated is on its list as before, and the batch has a further reference; if the page was isolated
//!   when the batch is drained, it is left alone.
//! - **Release.** A batch is emptied under its lock, and worked off without it, so that list locks are not waited for
//!   under it. A page of which the batch has the only reference is freed instead of being put on a list. Pages without
//!   references are unlinked, all of one shard under one acquisition, and given to the yard.
//!
//! Lock order: batch → shard → the yard's own; the first two are never held together but for the counting of batches. No
//! other lock is taken and no owner is called under a shard's lock.

use frameyard::locks::LockUse;
use frameyard::page::CountedPage;
use frameyard::units::named;
use frameyard::{CpuId, NodeId, PageCount, Pfn, Platform};

use crate::counters::VmCounter;
use crate::page::{Flags, PageKind};
use crate::root::LruPolicy;
use crate::vm::Vm;

mod batch;
mod check;
mod release;
mod shard;
#[cfg(test)]
mod tests;

use batch::BatchKind;
pub(crate) use batch::Gathered;
pub(crate) use shard::{BackgroundWord, End, LockedShard, ShardKey};

/// A list of used pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum LruList {
    /// Pages of spaces that were not used lately.
    InactiveAnon = 0,
    /// Pages of spaces that are in use.
    ActiveAnon = 1,
    /// Pages of files that were not used lately.
    InactiveFile = 2,
    /// Pages of files that are in use.
    ActiveFile = 3,
}

named!(LruList: InactiveAnon => "inactive-anon", ActiveAnon => "active-anon", InactiveFile => "inactive-file",
    ActiveFile => "active-file");

impl LruList {
    /// The list for a page with that owner's word.
    #[inline(always)]
    pub(crate) const fn of_word(word: u64) -> Self {
        let is_active = word & Flags::ACTIVE != 0;
        match (word as u8 == PageKind::Anonymous as u8, is_active) {
            (true, false) => Self::InactiveAnon,
            (true, true) => Self::ActiveAnon,
            (false, false) => Self::InactiveFile,
            (false, true) => Self::ActiveFile,
        }
    }

    /// This list as an index into a table by list.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What is on a node's lists of used pages, and what their locks have seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LruStatistics {
    /// Pages on each list, by [`LruList`], of all shards.
    pub pages: [PageCount; LruList::ALL.len()],
    /// How the locks were taken, all shards together.
    pub lock: LockUse,
    /// Blocks that were put on a list, taken off or moved under those locks.
    pub moved: u64,
    /// How many shards have been used.
    pub shards: u16,
}

impl LruStatistics {
    /// Pages on one list.
    #[must_use]
    pub fn on(&self, list: LruList) -> PageCount {
        self.pages[list.index()]
    }
}

impl<'y, P: Platform> Vm<'y, P> {
    /// The shard that pages added by a CPU go to.
    #[inline(always)]
    fn shard_of_cpu(&self, cpu: CpuId) -> u16 {
        match self.lru_policy() {
            LruPolicy::Vanilla => 0,
            LruPolicy::Sharded => self.own_shard(cpu),
        }
    }

    /// Gives each CPU a shard, of those that each node has. The groups of CPUs of a node that share a cache divide its shards,
    /// and deal theirs out in turn; where there are fewer shards than groups, neighbours have one together. Where groups are
    /// not numbered node by node, some shards are not used.
    pub(crate) fn assign_shards(&self) {
        let (yard, shards) = (self.yard(), usize::from(self.root().shards()));
        let place = |cpu| (yard.node_of_cpu(cpu), usize::from(yard.cache_group_of_cpu(cpu)));
        let all = || (0..yard.cpus()).map(CpuId);
        for cpu in all() {
            let (node, group) = place(cpu);
            let groups = || all().map(place).filter(|(other, _)| *other == node).map(|(_, group)| group);
            let (least, most) = (groups().min().unwrap_or(group), groups().max().unwrap_or(group));
            let first_of = |group| (group - least) * shards / (most + 1 - least);
            let own = (first_of(group + 1) - first_of(group)).max(1);
            let turn = all().take_while(|other| *other != cpu).filter(|other| place(*other) == (node, group)).count();
            self.set_own_shard(cpu, (first_of(group) + turn % own) as u16);
        }
    }

    /// Puts a page in the batch of the caller's CPU, and so on a list: an active one if its flag says so. Takes over one
    /// reference of the caller's.
    ///
    /// After the kernel's `folio_add_lru`. Cost: the lock of the CPU's batch (a try); the lock of a shard once a batch.
    #[inline]
    pub(crate) fn lru_add(&self, page: CountedPage<'y, P>) {
        debug_assert!(page.owner() & Flags::LRU == 0, "{:?} is on a list", page.pfn());
        self.batch_push(BatchKind::Add, page);
    }

    /// Notes a use of a page: at first it is referenced, then, used again, activated through a batch.
    ///
    /// After the kernel's `folio_mark_accessed`. A page that is on no list yet stays referenced. The caller has a reference.
    #[inline]
    pub(crate) fn lru_mark_accessed(&self, page: CountedPage<'y, P>) {
        let word = page.owner();
        if word & Flags::REFERENCED == 0 {
            page.set_owner_bits(Flags::REFERENCED);
        } else if word & (Flags::ACTIVE | Flags::LRU) == Flags::LRU {
            page.clear_owner_bits(Flags::REFERENCED);
            page.get();
            self.batch_push(BatchKind::Activate, page);
        }
    }

    /// Moves a page to the end of its inactive list, to be dropped next, through a batch. The caller has a reference.
    ///
    /// After the kernel's `deactivate_file_folio`.
    pub(crate) fn lru_deactivate(&self, page: CountedPage<'y, P>) {
        if page.owner() & Flags::LRU != 0 {
            page.get();
            self.batch_push(BatchKind::Deactivate, page);
        }
    }

    /// Takes a page off its list; the caller has a reference. `false`: it is on none (in a batch, or isolated).
    ///
    /// After the kernel's `folio_isolate_lru`. Cost: the lock of the page's shard.
    #[must_use]
    pub(crate) fn lru_isolate(&self, page: CountedPage<'y, P>) -> bool {
        debug_assert!(page.counts().references > 0, "who isolates has a reference");
        let word = page.clear_owner_bits(Flags::LRU);
        if word & Flags::LRU == 0 {
            return false;
        }
        self.lock_shard(ShardKey::of(page, word)).unlink(page);
        true
    }

    /// Puts an isolated page straight back on a list; takes over no reference.
    ///
    /// After the kernel's `folio_putback_lru`. Cost: the lock of the shard of the caller's CPU.
    pub(crate) fn lru_put_back(&self, page: CountedPage<'y, P>) {
        let key = self.shard_for(page);
        self.lock_shard(key).link(page);
    }

    /// Puts isolated pages straight back, those of a shard under one acquisition of its lock, and puts a reference of each.
    /// Under [`LruPolicy::Sharded`] they go back to their shards. At most 32 pages.
    pub(crate) fn put_back_all(&self, frames: &[Pfn]) {
        let policy = self.lru_policy();
        let key = |pfn| {
            let page = self.listed_page(pfn);
            let found = ShardKey::of(page, page.owner());
            Some(if policy == LruPolicy::Vanilla { ShardKey { shard: 0, ..found } } else { found })
        };
        self.by_shard(frames, key, |lists, page| lists.link(page));
        let mut unused = Gathered::new();
        self.put_all(frames, &mut unused);
        self.free_unused(unused.frames());
    }

    /// The shard that pages added by the caller's CPU go to.
    pub(crate) fn shard_of_caller(&self) -> u16 {
        self.shard_of_cpu(self.cpu())
    }

    /// The shard that a page goes on when the caller's CPU adds it.
    #[inline(always)]
    fn shard_for(&self, page: CountedPage<'y, P>) -> ShardKey {
        ShardKey { node: page.tag().zone().node(), shard: self.shard_of_caller() }
    }

    /// Puts one reference of a page; frees it if that was the last.
    #[inline]
    pub(crate) fn put_page(&self, page: CountedPage<'y, P>) {
        match page.put() {
            Ok(0) => self.free_unused(&[page.pfn()]),
            Ok(_) => {}
            Err(underflow) => debug_assert!(false, "{underflow}"),
        }
    }

    /// Empties the batches of the caller's CPU (the kernel's `lru_add_drain`).
    pub fn lru_drain(&self) {
        self.drain_batches(self.cpu());
    }

    /// Empties the batches of all CPUs (the kernel's `lru_add_drain_all`). What another thread is putting on a list just
    /// now may not be there yet.
    pub fn lru_drain_all(&self) {
        (0..self.yard().cpus()).for_each(|cpu| self.drain_batches(CpuId(cpu)));
    }

    /// What is on a node's lists, a moment ago; nothing where there is no such node. Takes no lock.
    #[must_use]
    pub fn lru_statistics(&self, node: NodeId) -> LruStatistics {
        let mut sum = LruStatistics::default();
        let shards = if node.0 < self.yard().nodes() { self.root().shards() } else { 0 };
        for shard in 0..shards {
            let of = self.shard(ShardKey { node, shard }).statistics_racy();
            for (all, pages) in sum.pages.iter_mut().zip(of.pages) {
                *all += pages;
            }
            sum.lock = sum.lock.and(of.lock);
            sum.moved += of.moved;
            sum.shards += of.shards;
        }
        sum
    }

    /// Counts pages moved between lists.
    #[inline]
    fn count_pages(&self, counter: VmCounter, pages: PageCount) {
        if pages.0 > 0 {
            self.count(counter, pages.0);
        }
    }

    /// The page of a frame that is on a list, in a batch, or named by a neighbour on a list.
    #[inline(always)]
    fn listed_page(&self, pfn: Pfn) -> CountedPage<'y, P> {
        self.page(pfn)
    }
}
