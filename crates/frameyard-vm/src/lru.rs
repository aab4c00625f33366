//! LRU lists: which pages are in use, and which were unused for longest.
//!
//! Each node has inactive and active lists, for pages of spaces (anonymous) and of files, like the kernel's `lruvec`. A
//! *shard* is one set of these lists with a lock. With [`LruPolicy::Vanilla`] a node uses one shard. With
//! [`LruPolicy::Sharded`] each group of CPUs adds pages to its own shard. A page stays on its shard until it is moved,
//! whatever the current policy, and reclaim scans all shards. The policy can therefore change at any time.
//!
//! - `shard`: the record of a shard, its lock, and the operations under it
//! - `batch`: per-CPU batches collected before a shard's lock is taken
//! - `release`: freeing of pages without references
//! - `check`: validation
//!
//! # Flags
//!
//! A page is *linked* while it is on a list. Its links, its [`ACTIVE`](Flags::ACTIVE) flag and the shard in its owner's
//! word change only under the lock of its shard. While it is not linked, the CPU that isolated it may change the flag.
//!
//! [`LRU`](Flags::LRU) is set together with the shard, under that lock, when the page is linked. A CPU that wants to
//! remove the page needs a reference and clears `LRU` with an exchange, without a lock. The CPU whose exchange clears
//! it then takes the lock of the shard named in the same word and unlinks the page.
//!
//! | page | belongs to |
//! |---|---|
//! | `LRU` set, references above 0 | its list |
//! | linked, `LRU` clear | the CPU that cleared it |
//! | linked, no references | the CPU that released the last reference |
//!
//! # Races
//!
//! - **Isolate against free.** Isolating first takes a reference, which fails on a page that is being freed. Of two
//!   CPUs that isolate a page, one finds `LRU` set. A CPU that frees a page has exclusive access, so it reads the flag
//!   without an exchange.
//! - **Reclaim** reads linked pages under the lock without references: a page cannot be freed before it is unlinked
//!   under that lock. To remove a page, reclaim tries to take a reference (which fails if the page is being freed) and
//!   then clears `LRU` (which fails if another CPU isolates it; that CPU has a reference, so the one released is not
//!   the last).
//! - **Batches against reclaim.** A page in an add batch is not linked and has `LRU` clear, so it cannot be isolated
//!   without draining the batches first. The batch holds a reference. A page in an activate or deactivate batch stays
//!   on its list, and the batch holds another reference. If the page is isolated when the batch is drained, the drain
//!   skips it.
//! - **Release.** A batch is emptied under its lock and processed without it, so that no CPU waits for a shard's lock
//!   under a batch's lock. A page whose only reference is the batch's is freed instead of linked. Pages without
//!   references are unlinked, all of one shard per acquisition, and freed to the yard.
//!
//! Lock order: batch → shard → the yard's locks. A batch's and a shard's lock are held together only while batches are
//! counted. Under a shard's lock no other lock is taken and no owner is called.

use frameyard::locks::LockUse;
use frameyard::page::CountedPage;
use frameyard::units::named;
use frameyard::{CpuId, NodeId, PageCount, Pfn, Platform};

use crate::error::Damage;
use crate::frame_vec::Gathered;
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
pub(crate) use shard::{BackgroundWord, End, LockedShard, ShardKey};

/// An LRU list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum LruList {
    /// Pages of spaces that have not been used recently.
    InactiveAnon = 0,
    /// Pages of spaces in use.
    ActiveAnon = 1,
    /// Pages of files that have not been used recently.
    InactiveFile = 2,
    /// Pages of files in use.
    ActiveFile = 3,
}

named!(LruList: InactiveAnon => "inactive-anon", ActiveAnon => "active-anon", InactiveFile => "inactive-file",
    ActiveFile => "active-file");

impl LruList {
    /// The list for an owner's word.
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

    /// Index of this list in a table with one entry per list.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What is on a node's LRU lists, and how their locks are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LruStatistics {
    /// Pages on each list, indexed by [`LruList`], over all shards.
    pub pages: [PageCount; LruList::ALL.len()],
    /// Acquisitions of the locks, over all shards.
    pub lock: LockUse,
    /// Blocks linked, unlinked or moved under these locks.
    pub moved: u64,
    /// Shards in use.
    pub shards: u16,
}

impl LruStatistics {
    /// Pages on a list.
    #[must_use]
    pub fn on(&self, list: LruList) -> PageCount {
        self.pages[list.index()]
    }
}

impl<'y, P: Platform> Vm<'y, P> {
    /// The shard for pages that a CPU adds.
    #[inline(always)]
    fn shard_of_cpu(&self, cpu: CpuId) -> u16 {
        match self.lru_policy() {
            LruPolicy::Vanilla => 0,
            LruPolicy::Sharded => self.own_shard(cpu),
        }
    }

    /// Assigns each CPU a shard per node. The cache groups of a node divide its shards, and each group distributes its
    /// shards round-robin. If there are fewer shards than groups, neighbouring groups share one. If groups are not
    /// numbered node by node, some shards stay unused.
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

    /// Adds a page to the batch of the caller's CPU, and so to a list: an active one if its flag is set. Takes over one
    /// reference of the caller.
    ///
    /// After the kernel's `folio_add_lru`. Cost: a try of the lock of the CPU's batch; the lock of a shard once per
    /// batch.
    #[inline]
    pub(crate) fn lru_add(&self, page: CountedPage<'y, P>) {
        self.batch_push(BatchKind::Add, page);
    }

    /// Notes an access: the first sets the referenced flag, the second activates the page through a batch.
    ///
    /// After the kernel's `folio_mark_accessed`. A page that is on no list yet stays referenced. The caller holds a
    /// reference.
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

    /// Moves a page to the end of its inactive list, to be dropped next, through a batch. The caller holds a reference.
    ///
    /// After the kernel's `deactivate_file_folio`.
    pub(crate) fn lru_deactivate(&self, page: CountedPage<'y, P>) {
        if page.owner() & Flags::LRU != 0 {
            page.get();
            self.batch_push(BatchKind::Deactivate, page);
        }
    }

    /// Isolates a page from its list. The caller holds a reference. `false` if it is on no list (in a batch, or
    /// isolated).
    ///
    /// After the kernel's `folio_isolate_lru`. Cost: the lock of the page's shard.
    #[must_use]
    pub(crate) fn lru_isolate(&self, page: CountedPage<'y, P>) -> bool {
        let word = page.clear_owner_bits(Flags::LRU);
        if word & Flags::LRU == 0 {
            return false;
        }
        match self.lock_shard(ShardKey::of(page, word)) {
            Some(mut lists) => {
                lists.unlink(page);
                true
            }
            None => {
                // It stays on its list.
                page.set_owner_bits(Flags::LRU);
                false
            }
        }
    }

    /// Returns an isolated page directly to a list. Takes over no reference.
    ///
    /// After the kernel's `folio_putback_lru`. Cost: the lock of the shard of the caller's CPU.
    pub(crate) fn lru_put_back(&self, page: CountedPage<'y, P>) {
        // Without the lock the page stays on no list.
        if let Some(mut lists) = self.lock_shard(self.shard_for(page)) {
            lists.link(page);
        }
    }

    /// Returns isolated pages directly to lists, with one acquisition per shard, and releases a reference of each. With
    /// [`LruPolicy::Sharded`] each page returns to its shard. At most 32 pages.
    pub(crate) fn put_back_all(&self, frames: &[Pfn]) {
        let policy = self.lru_policy();
        let key = |pfn| {
            let page = self.page(pfn);
            let found = ShardKey::of(page, page.owner());
            Some(if policy == LruPolicy::Vanilla { ShardKey { shard: 0, ..found } } else { found })
        };
        self.by_shard(frames, key, |lists, page| lists.link(page));
        let mut unused = Gathered::new();
        self.put_all(frames, &mut unused);
        self.free_unused(unused.frames());
    }

    /// The shard for pages that the caller's CPU adds.
    pub(crate) fn shard_of_caller(&self) -> u16 {
        self.shard_of_cpu(self.cpu())
    }

    /// The shard for a page that the caller's CPU adds.
    #[inline(always)]
    fn shard_for(&self, page: CountedPage<'y, P>) -> ShardKey {
        ShardKey { node: page.tag().zone().node(), shard: self.shard_of_caller() }
    }

    /// Releases a reference of a page; frees the page if it was the last.
    #[inline]
    pub(crate) fn put_page(&self, page: CountedPage<'y, P>) {
        match page.put() {
            Ok(0) => self.free_unused(&[page.pfn()]),
            Ok(_) => {}
            Err(_) => _ = self.damaged(Damage::Frame),
        }
    }

    /// Drains the batches of the caller's CPU (the kernel's `lru_add_drain`).
    pub fn lru_drain(&self) {
        self.drain_batches(self.cpu());
    }

    /// Drains the batches of all CPUs (the kernel's `lru_add_drain_all`). A page that another CPU adds during the call
    /// may not be on its list afterwards.
    pub fn lru_drain_all(&self) {
        (0..self.yard().cpus()).for_each(|cpu| self.drain_batches(CpuId(cpu)));
    }

    /// What is on a node's lists; may be stale. All zero for a node that does not exist. Takes no lock.
    #[must_use]
    pub fn lru_statistics(&self, node: NodeId) -> LruStatistics {
        let mut sum = LruStatistics::default();
        let shards = if node.0 < self.yard().nodes() { self.root().shards() } else { 0 };
        for shard in 0..shards {
            let Some(of) = self.shard(ShardKey { node, shard }) else { continue };
            let of = of.statistics_racy(self.yard().map_frames());
            for (all, pages) in sum.pages.iter_mut().zip(of.pages) {
                *all += pages;
            }
            sum.lock = sum.lock.and(of.lock);
            sum.moved = sum.moved.wrapping_add(of.moved);
            sum.shards += of.shards;
        }
        sum
    }
}
