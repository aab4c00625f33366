//! One pass over a node's LRU lists.

use frameyard::page::CountedPage;
use frameyard::units::ZoneKind;
use frameyard::{NodeId, PageCount, Platform};

use super::{CLUSTER, Caller, FIRST_PRIORITY};
use crate::cache::{DropProblem, is_locked};
use crate::counters::VmCounter;
use crate::frame_vec::Gathered;
use crate::lru::{End, LockedShard, LruList, ShardKey};
use crate::page::{Flags, PageKind};
use crate::vm::Vm;

/// The parameters of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scan {
    pub(super) caller: Caller,
    pub(super) node: NodeId,
    /// The highest zone that helps the caller.
    pub(super) highest_zone: ZoneKind,
    /// The pass scans the `2^-priority`th part of the lists.
    pub(super) priority: u32,
    /// The number of pages that is enough.
    pub(super) wanted: PageCount,
    /// The largest number of pages to scan.
    pub(super) most: Option<PageCount>,
}

/// The result of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Scanned {
    pub(super) scanned: PageCount,
    pub(super) freed: PageCount,
}

/// Pages that reclaim could not drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Kept {
    dirty: u64,
    busy: u64,
    activated: u64,
}

impl Scan {
    /// Whether recently used pages get a second chance: not under high pressure.
    const fn spares_used(&self) -> bool {
        self.priority + 2 >= FIRST_PRIORITY
    }

    /// The part of `pages` that this pass scans.
    pub(super) fn part_of(&self, pages: PageCount) -> u64 {
        let part = (pages.0 >> self.priority).max(pages.0.min(CLUSTER));
        self.most.map_or(part, |most| part.min(most.0))
    }
}

/// Whether active pages should become inactive. The larger the memory, the smaller the inactive part should be.
///
/// After the kernel's `inactive_is_low`.
pub(super) fn inactive_is_low(inactive: PageCount, active: PageCount, page_bytes: u64) -> bool {
    let gibibytes = ((inactive.0 + active.0) * page_bytes) >> 30;
    let ratio = if gibibytes > 0 { (10 * gibibytes).isqrt() } else { 1 };
    inactive.0 * ratio < active.0
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Scans a part of a node's inactive file lists, drops what it can, and ages the active lists; in the background
    /// also pages of spaces.
    ///
    /// After the kernel's `shrink_lruvec`. Takes the lock of a shard once per 32 pages.
    pub(super) fn shrink_node(&self, scan: &Scan) -> Scanned {
        let mut done = Scanned::default();
        self.age_active(scan, LruList::ActiveFile);
        let pages = self.pages_on(scan.node, LruList::InactiveFile);
        let part = scan.part_of(pages);
        for (key, share) in self.shares(scan, LruList::InactiveFile, pages, part) {
            let mut left = share;
            while left > 0 && done.freed < scan.wanted {
                let some = self.shrink_some(key, scan, left.min(CLUSTER));
                done.scanned += some.scanned;
                done.freed += some.freed;
                left = if some.scanned.0 == 0 { 0 } else { left.saturating_sub(some.scanned.0) };
            }
        }
        self.count(scan.caller.scanned(), done.scanned.0);
        self.count(VmCounter::PgscanFile, done.scanned.0);
        self.count(scan.caller.dropped(), done.freed.0);
        match scan.caller {
            Caller::Background => self.age_anonymous(scan, done.scanned),
            Caller::Direct if scan.priority == 0 && done.freed.0 == 0 => self.note_anonymous(scan.node),
            Caller::Direct => {}
        }
        done
    }

    /// Pages on a list of a node, over all shards.
    pub(super) fn pages_on(&self, node: NodeId, list: LruList) -> PageCount {
        (0..self.root().shards()).map(|shard| self.pages_in(ShardKey { node, shard }, list)).sum()
    }

    /// Pages on a list of a shard, at most all of the yard.
    fn pages_in(&self, key: ShardKey, list: LruList) -> PageCount {
        let most = self.yard().map_frames();
        self.shard(key).map_or(PageCount(0), |shard| shard.pages_racy(list, most))
    }

    /// The number of pages to scan per shard, in proportion to the shards' lists. Starts at a shard that depends on the
    /// caller's CPU, so that concurrent callers start at different ones.
    pub(super) fn shares(
        &self,
        scan: &Scan,
        list: LruList,
        all: PageCount,
        part: u64,
    ) -> impl Iterator<Item = (ShardKey, u64)> {
        let (vm, node) = (*self, scan.node);
        let shards = self.root().shards();
        let first = self.shard_of_caller() % shards;
        (0..shards).filter_map(move |n| {
            let key = ShardKey { node, shard: (first + n) % shards };
            let pages = vm.pages_in(key, list).0;
            let share = (u128::from(part) * u128::from(pages)).div_ceil(u128::from(all.0.max(1))) as u64;
            (share > 0).then_some((key, share.min(pages)))
        })
    }

    /// Scans up to 32 pages of a shard's inactive file list under one acquisition of its lock, and drops what it can.
    fn shrink_some(&self, key: ShardKey, scan: &Scan, most: u64) -> Scanned {
        let mut kept = Kept::default();
        let (taken, scanned) = self.isolate_some(key, scan, most, &mut kept);
        let (mut dropped, mut back) = (Gathered::new(), Gathered::new());
        let mut freed = PageCount(0);
        for pfn in taken.frames().iter().copied() {
            let page = self.page(pfn);
            match self.drop_cache_page(page) {
                Ok(()) => {
                    freed += self.pages_of(page);
                    dropped.push(pfn);
                    continue;
                }
                Err(DropProblem::Dirty) => {
                    kept.dirty += 1;
                    page.set_owner_bits(Flags::ACTIVE);
                }
                Err(_) => kept.busy += 1,
            }
            back.push(pfn);
        }
        self.put_back_all(back.frames());
        self.free_unused(dropped.frames());
        self.count_kept(kept);
        Scanned { scanned: PageCount(scanned), freed }
    }

    /// Isolates droppable pages at the end of a list; also returns the number scanned.
    fn isolate_some(&self, key: ShardKey, scan: &Scan, most: u64, kept: &mut Kept) -> (Gathered, u64) {
        let mut taken = Gathered::new();
        let mut scanned = 0;
        let Some(mut lists) = self.lock_shard(key) else { return (taken, scanned) };
        let mut at = lists.last(LruList::InactiveFile);
        for _ in 0..CLUSTER {
            let Some(page) = at.filter(|_| scanned < most) else { break };
            at = lists.before(page);
            at.inspect(CountedPage::prefetch);
            scanned += self.pages_of(page).0;
            match Verdict::of(page, page.owner(), scan) {
                Verdict::Take => match lists.isolate(page) {
                    Some(page) => taken.push(page.pfn()),
                    None => lists.rotate(page, End::First),
                },
                Verdict::Spare => {
                    page.clear_owner_bits(Flags::REFERENCED);
                    lists.rotate(page, End::First);
                }
                Verdict::WrongZone => lists.rotate(page, End::First),
                Verdict::Busy => {
                    kept.busy += 1;
                    lists.rotate(page, End::First);
                }
                Verdict::Dirty => {
                    kept.dirty += 1;
                    kept.activated += 1;
                    lists.relist(page, Flags::ACTIVE, End::First);
                }
            }
        }
        (taken, scanned)
    }

    fn count_kept(&self, kept: Kept) {
        let counts = [
            (VmCounter::ReclaimDirty, kept.dirty),
            (VmCounter::ReclaimBusy, kept.busy),
            (VmCounter::Pgactivate, kept.activated),
        ];
        counts.into_iter().filter(|(_, amount)| *amount > 0).for_each(|(counter, amount)| self.count(counter, amount));
    }

    /// Deactivates pages if too few are inactive: those at the end that were unused since the last scan.
    ///
    /// After the kernel's `shrink_active_list`.
    fn age_active(&self, scan: &Scan, list: LruList) {
        let inactive = self.pages_on(scan.node, LruList::InactiveFile);
        let active = self.pages_on(scan.node, list);
        if !inactive_is_low(inactive, active, self.yard().geometry().page_size().0) {
            return;
        }
        let part = scan.part_of(active);
        for (key, share) in self.shares(scan, list, active, part) {
            let mut left = share;
            while left > 0 {
                let aged = self.age_some(key, list, scan, left.min(CLUSTER));
                left = if aged == 0 { 0 } else { left.saturating_sub(aged) };
            }
        }
    }

    fn age_some(&self, key: ShardKey, list: LruList, scan: &Scan, most: u64) -> u64 {
        let (mut scanned, mut aged) = (0, 0);
        let Some(mut lists): Option<LockedShard<'y, P>> = self.lock_shard(key) else { return 0 };
        let mut at = lists.last(list);
        for _ in 0..CLUSTER {
            let Some(page) = at.filter(|_| scanned < most) else { break };
            at = lists.before(page);
            at.inspect(CountedPage::prefetch);
            let pages = self.pages_of(page).0;
            scanned += pages;
            if scan.spares_used() && page.owner() & Flags::REFERENCED != 0 {
                page.clear_owner_bits(Flags::REFERENCED);
                lists.rotate(page, End::First);
            } else {
                lists.relist(page, 0, End::First);
                aged += pages;
            }
        }
        drop(lists);
        self.count(VmCounter::Pgrefill, scanned);
        self.count(VmCounter::Pgdeactivate, aged);
        scanned
    }

    /// Counts a few pages of spaces when nothing else could be dropped. Does not scan them.
    fn note_anonymous(&self, node: NodeId) {
        let pages = self.pages_on(node, LruList::InactiveAnon) + self.pages_on(node, LruList::ActiveAnon);
        self.count(VmCounter::ReclaimAnonymous, pages.0.min(CLUSTER));
    }
}

/// The verdict on a page at the end of an inactive list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// Drop it.
    Take,
    /// Used since the last scan.
    Spare,
    /// In a zone that does not help the caller.
    WrongZone,
    /// Dirty.
    Dirty,
    /// In use, mapped, or of a kind that is never dropped.
    Busy,
}

impl Verdict {
    fn of<P: Platform>(page: CountedPage<'_, P>, word: u64, scan: &Scan) -> Self {
        if page.tag().zone().kind() > scan.highest_zone {
            Self::WrongZone
        } else if PageKind::of_word(word) != Some(PageKind::Cache) || is_locked(page) || page.counts().mappings > 0 {
            Self::Busy
        } else if word & Flags::REFERENCED != 0 && scan.spares_used() {
            Self::Spare
        } else if word & Flags::DIRTY != 0 {
            Self::Dirty
        } else {
            Self::Take
        }
    }
}
