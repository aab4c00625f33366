//! A shard: four LRU lists of a node, their lock and its counters.

use core::fmt;

use frameyard::locks::LockHold;
use frameyard::page::{CountedPage, FrameLink};
use frameyard::platform::{Access, Activity, LineKind, LockId, Probe, SharedLine};
use frameyard::sync::{AtomicU64, Ordering};
use frameyard::{NodeId, PageCount, Platform};

use super::{LruList, LruStatistics};
use crate::error::Damage;
use crate::page::{Flags, shard_of, with_shard};
use crate::vm::Vm;
use crate::words::Words;

/// Words of a shard's record: the lock on its own cache line, then the counters, then the lists.
const LOCK: usize = 0;
const COUNTERS: usize = 8;
/// Blocks linked, unlinked or moved.
const MOVED: usize = 12;
/// First and last page of each list, in the low and high half. The first is the most recent one.
const ENDS: usize = 16;
/// Pages on each list.
const PAGES: usize = 20;
/// State of the node's background reclaimer, in the record of its first shard.
const BACKGROUND: usize = 24;

/// State of a node's background reclaimer between its steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum BackgroundWord {
    /// Its priority plus 1; 0 while it sleeps.
    Priority = 0,
    /// Pages scanned since it last freed one.
    Fruitless = 1,
}

/// The identity of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShardKey {
    pub(crate) node: NodeId,
    pub(crate) shard: u16,
}

impl ShardKey {
    /// The shard in the owner's word of a page.
    #[inline(always)]
    pub(crate) fn of<P: Platform>(page: CountedPage<'_, P>, word: u64) -> Self {
        Self { node: page.tag().zone().node(), shard: shard_of(word) }
    }

    fn lock_id(self) -> LockId {
        LockId::LruShard(self.node, self.shard)
    }
}

/// A shard without its lock.
#[derive(Clone, Copy)]
pub(crate) struct Shard<'y> {
    words: Words<'y>,
}

impl<'y> Shard<'y> {
    #[inline(always)]
    fn ends(self, list: LruList) -> &'y AtomicU64 {
        self.words.at(ENDS + list.index())
    }

    /// The first and the last page of a list.
    #[inline(always)]
    pub(super) fn ends_racy(self, list: LruList) -> [FrameLink; 2] {
        let bits = self.ends(list).load(Ordering::Relaxed);
        [FrameLink::from_bits(bits as u32), FrameLink::from_bits((bits >> 32) as u32)]
    }

    /// The number of pages on a list; may be stale. At most `most`, whatever the word holds.
    #[inline(always)]
    pub(crate) fn pages_racy(self, list: LruList, most: PageCount) -> PageCount {
        PageCount(self.words.at(PAGES + list.index()).load(Ordering::Relaxed)).min(most)
    }

    /// A word of the node's background reclaimer, in the record of shard 0.
    pub(crate) fn background(self, word: BackgroundWord) -> &'y AtomicU64 {
        self.words.at(BACKGROUND + word as usize)
    }

    pub(super) fn statistics_racy(self, most: PageCount) -> LruStatistics {
        let lock = self.words.lock_counters(COUNTERS).read();
        LruStatistics {
            pages: LruList::ALL.map(|list| self.pages_racy(list, most)),
            lock,
            moved: self.words.at(MOVED).load(Ordering::Relaxed),
            shards: u16::from(lock.acquisitions > 0),
        }
    }
}

/// A shard with its lock held. Releases it on drop.
pub(crate) struct LockedShard<'y, P: Platform> {
    vm: Vm<'y, P>,
    key: ShardKey,
    shard: Shard<'y>,
    hold: LockHold,
    /// Changes of the lists' lengths, not yet written.
    gained: [i64; LruList::ALL.len()],
    moved: u64,
    _guard: P::Guard,
}

impl<P: Platform> fmt::Debug for LockedShard<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockedShard").field(&self.key).finish()
    }
}

impl<'y, P: Platform> Vm<'y, P> {
    /// A shard; `None` if there is none of that name, which came from shared memory.
    #[inline(always)]
    pub(crate) fn shard(&self, key: ShardKey) -> Option<Shard<'y>> {
        let words = self.root().lru(key.node, key.shard);
        if words.is_none() {
            self.damaged(Damage::Lru);
        }
        words.map(|words| Shard { words })
    }

    /// Takes the lock of a shard; spins until acquired. `None` if that fails: the platform says why, or the damage is noted.
    #[inline]
    pub(crate) fn lock_shard(&self, key: ShardKey) -> Option<LockedShard<'y, P>> {
        let shard = self.shard(key)?;
        let platform = self.yard().platform();
        let guard = platform.guard();
        let (counters, word) = (shard.words.lock_counters(COUNTERS), shard.words.lock_word(LOCK));
        let hold = counters.lock(platform, key.lock_id(), word).ok()?;
        platform.probe().begin_activity(Activity::Relist);
        Some(LockedShard { vm: *self, key, shard, hold, gained: [0; LruList::ALL.len()], moved: 0, _guard: guard })
    }
}

impl<P: Platform> Drop for LockedShard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        let words = self.shard.words;
        for (list, gained) in self.gained.into_iter().enumerate() {
            if gained != 0 {
                add(words.at(PAGES + list), gained as u64);
            }
        }
        add(words.at(MOVED), self.moved);
        let platform = self.vm.yard().platform();
        platform.probe().end_activity(Activity::Relist, PageCount(self.moved));
        let counters = words.lock_counters(COUNTERS);
        counters.unlock(platform, self.key.lock_id(), words.lock_word(LOCK), self.hold);
    }
}

/// Adds to a word that only the lock holder changes.
#[inline(always)]
fn add(word: &AtomicU64, amount: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The recent end, for pages just used.
    First,
    /// The end that reclaim scans first.
    Last,
}

impl<'y, P: Platform> LockedShard<'y, P> {
    /// Whether a page with this owner's word is linked here.
    #[inline(always)]
    pub(crate) fn has(&self, page: CountedPage<'y, P>, word: u64) -> bool {
        word & Flags::LRU != 0 && ShardKey::of(page, word) == self.key
    }

    #[inline(always)]
    fn neighbour(&self, link: FrameLink) -> Option<CountedPage<'y, P>> {
        self.vm.linked_page(link)
    }

    fn set_ends(&self, list: LruList, [first, last]: [FrameLink; 2]) {
        let bits = u64::from(first.bits()) | u64::from(last.bits()) << 32;
        let line = SharedLine::of(LineKind::LruLists, self.shard.ends(list));
        self.vm.yard().platform().probe().touch_line(line, Access::Write);
        self.shard.ends(list).store(bits, Ordering::Relaxed);
    }

    /// Links a page to the list that its flags name, and sets [`Flags::LRU`].
    #[inline]
    pub(crate) fn link(&mut self, page: CountedPage<'y, P>) {
        let mut word = page.owner();
        loop {
            if word & Flags::LRU != 0 {
                self.vm.damaged(Damage::Lru);
                return;
            }
            let linked = with_shard(word, self.key.shard) | Flags::LRU;
            match page.replace_owner(word, linked) {
                Ok(()) => break,
                Err(found) => word = found,
            }
        }
        self.insert(LruList::of_word(word), page, End::First);
        self.moved += 1;
    }

    /// Unlinks a page from the list that its flags name. Its [`Flags::LRU`] was cleared, or it is about to be freed.
    #[inline]
    pub(crate) fn unlink(&mut self, page: CountedPage<'y, P>) {
        self.remove(LruList::of_word(page.owner()), page);
        page.set_next(FrameLink::NONE);
        page.set_prev(FrameLink::NONE);
        self.moved += 1;
    }

    /// Moves a linked page to another place on its list.
    #[inline]
    pub(crate) fn rotate(&mut self, page: CountedPage<'y, P>, end: End) {
        let list = LruList::of_word(page.owner());
        self.remove(list, page);
        self.insert(list, page, end);
        self.moved += 1;
    }

    /// Moves a linked page between the inactive and the active list, as [`Flags::ACTIVE`] is to be.
    #[inline]
    pub(crate) fn relist(&mut self, page: CountedPage<'y, P>, active: u64, end: End) {
        debug_assert!(active & !Flags::ACTIVE == 0);
        let word = page.owner();
        self.remove(LruList::of_word(word), page);
        if active == 0 {
            page.clear_owner_bits(Flags::ACTIVE);
        } else {
            page.set_owner_bits(Flags::ACTIVE);
        }
        self.insert(LruList::of_word(word & !Flags::ACTIVE | active), page, end);
        self.moved += 1;
    }

    #[inline(always)]
    fn insert(&mut self, list: LruList, page: CountedPage<'y, P>, end: End) {
        let link = self.vm.yard().counted().link(page.pfn());
        let [first, last] = self.shard.ends_racy(list);
        match end {
            End::First => {
                page.set_prev(FrameLink::NONE);
                page.set_next(first);
                self.neighbour(first).inspect(|next| next.set_prev(link));
                self.set_ends(list, [link, if last == FrameLink::NONE { link } else { last }]);
            }
            End::Last => {
                page.set_next(FrameLink::NONE);
                page.set_prev(last);
                self.neighbour(last).inspect(|prev| prev.set_next(link));
                self.set_ends(list, [if first == FrameLink::NONE { link } else { first }, link]);
            }
        }
        self.gained[list.index()] += self.vm.pages_of(page).0 as i64;
    }

    #[inline]
    fn remove(&mut self, list: LruList, page: CountedPage<'y, P>) {
        let (next, prev) = (page.next(), page.prev());
        if let Some(prev) = self.neighbour(prev) {
            prev.set_next(next);
        }
        if let Some(next) = self.neighbour(next) {
            next.set_prev(prev);
        }
        if prev == FrameLink::NONE || next == FrameLink::NONE {
            let [first, last] = self.shard.ends_racy(list);
            let first = if prev == FrameLink::NONE { next } else { first };
            let last = if next == FrameLink::NONE { prev } else { last };
            self.set_ends(list, [first, last]);
        }
        self.gained[list.index()] -= self.vm.pages_of(page).0 as i64;
    }

    /// The page at the end that reclaim scans first.
    #[inline(always)]
    pub(crate) fn last(&self, list: LruList) -> Option<CountedPage<'y, P>> {
        self.neighbour(self.shard.ends_racy(list)[1])
    }

    /// The next more recent page.
    #[inline(always)]
    pub(crate) fn before(&self, page: CountedPage<'y, P>) -> Option<CountedPage<'y, P>> {
        self.neighbour(page.prev())
    }

    /// Isolates a linked page for the caller, with a reference. `None` if another CPU frees or isolates it.
    #[inline]
    pub(crate) fn isolate(&mut self, page: CountedPage<'y, P>) -> Option<CountedPage<'y, P>> {
        if !page.try_get() {
            return None;
        }
        if page.clear_owner_bits(Flags::LRU) & Flags::LRU == 0 {
            // The isolating CPU has a reference and waits for this lock, so this one is not the last.
            if !page.put().is_ok_and(|left| left > 0) {
                self.vm.damaged(Damage::Frame);
            }
            return None;
        }
        self.unlink(page);
        Some(page)
    }
}
