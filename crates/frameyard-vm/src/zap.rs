//! Taking mappings away: pages are gathered and freed in batches, and page tables after them.
//!
//! After the kernel's `unmap_page_range`, `tlb_batch_pages_flush` and `free_pgtables`. The caller has the map lock for
//! writing, or the space alone: nobody walks, faults or begins to move a page meanwhile. Others may still have references to
//! pages (pins, batches, whoever looks at a list): the last one frees them.
//!
//! Who moves a page holds the map lock for reading until it is there again, so its entry is not met here, unless he never
//! came to an end (his process was killed). Such an entry is waited for, for a bounded time and once for all of them; then it
//! stays as it is, for the frame is his, and with it the tables that lead to it. The caller hears of the address.
//!
//! Workers that take a space down together work on different addresses, cut at multiples of 2 MiB, and so on different
//! tables of level 0. What they share above, they change under the lock of the table.

use frameyard::platform::Activity;
use frameyard::{PageCount, Pfn, Platform};

use crate::address::{VirtAddr, VirtRange};
use crate::space::SpaceRef;
use crate::table::{ENTRIES, Entry, Level, Table, TableUse};
use crate::vm::Vm;

mod parallel;

/// What was unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Zapped {
    /// Pages of anonymous memory, those of huge mappings among them.
    pub(crate) pages: u64,
    /// Huge mappings of anonymous memory.
    pub(crate) huge: u64,
    /// Mappings of devices, of any size.
    pub(crate) device: u64,
    /// Frames of page tables that were freed.
    pub(crate) tables: u64,
    /// An address whose page is being moved, and that did not come to an end: it is still mapped.
    pub(crate) moving: Option<VirtAddr>,
}

impl Zapped {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            huge: self.huge + other.huge,
            device: self.device + other.device,
            tables: self.tables + other.tables,
            moving: self.moving.or(other.moving),
        }
    }
}

/// How many frames are gathered before they are freed: their page structures stay in the nearest cache meanwhile.
const GATHER: usize = 256;
/// How often the entry of a page that is being moved is looked at again: rounds of [`Platform::relax`].
const WAIT_ROUNDS: u32 = if cfg!(loom) { 3 } else { 4096 };
/// How many entries ahead the page structure of an entry is fetched.
const AHEAD: usize = 8;

/// Frames that are to be freed together.
struct Gather {
    frames: [Pfn; GATHER],
    len: usize,
}

impl Gather {
    fn new() -> Self {
        Self { frames: [Pfn(0); GATHER], len: 0 }
    }

    /// Adds a frame; full ones are to be emptied at once.
    #[inline(always)]
    fn push(&mut self, pfn: Pfn) -> bool {
        self.frames[self.len] = pfn;
        self.len += 1;
        self.len == GATHER
    }

    fn take(&mut self) -> &[Pfn] {
        let len = core::mem::take(&mut self.len);
        &self.frames[..len]
    }
}

/// Takes mappings of a space away.
struct Zapper<'a, 'y, P: Platform> {
    space: &'a SpaceRef<'y, P>,
    pages: Gather,
    tables: Gather,
    zapped: Zapped,
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Takes away all that is mapped in a range, a multiple of 4 KiB; huge mappings at its borders are split. Page tables
    /// stay. The caller has the map lock for writing.
    pub(crate) fn zap(&self, range: VirtRange) -> Zapped {
        // Pages that are still on their way to a list would only go there to be taken off it.
        self.vm().lru_drain();
        let mut zapper = Zapper::new(self);
        zapper.zap(self.topmost(), Level::ROOT, range.start.0, range.end.0);
        zapper.finish()
    }

    /// Frees the page tables that have addresses of a range behind them, and none outside of `floor` and `ceiling`: the
    /// areas next to the range need those. All between was zapped. How many were freed.
    pub(crate) fn free_tables(&self, range: VirtRange, floor: VirtAddr, ceiling: VirtAddr) -> u64 {
        self.forget_leaves();
        let mut zapper = Zapper::new(self);
        zapper.free_tables(self.topmost(), Level::ROOT, (range.start.0, range.end.0), (floor.0, ceiling.0));
        zapper.finish().tables
    }
}

impl<'a, 'y, P: Platform> Zapper<'a, 'y, P> {
    fn new(space: &'a SpaceRef<'y, P>) -> Self {
        Self { space, pages: Gather::new(), tables: Gather::new(), zapped: Zapped::default() }
    }

    fn vm(&self) -> &'a Vm<'y, P> {
        self.space.vm()
    }

    /// Frees what is gathered; what was unmapped in all.
    fn finish(mut self) -> Zapped {
        self.vm().free_unused(self.pages.take());
        self.free_gathered_tables();
        self.zapped
    }

    fn gather_table(&mut self, pfn: Pfn) {
        self.zapped.tables += 1;
        if self.tables.push(pfn) {
            self.free_gathered_tables();
        }
    }

    fn free_gathered_tables(&mut self) {
        let tables = self.tables.take();
        if !tables.is_empty() {
            self.space.tables_go();
            self.space.free_table_frames(tables);
        }
    }

    /// Puts the reference of a mapping that is no more; whether so many pages are gathered now that they are to be freed.
    #[inline(always)]
    fn unmap(&mut self, head: Pfn) -> bool {
        let left = self.vm().page(head).unmap();
        debug_assert!(left.is_ok(), "{left:?}");
        left == Ok(0) && self.pages.push(head)
    }

    #[inline(always)]
    fn platform(&self) -> &'a P {
        self.vm().yard().platform()
    }

    /// Takes an entry back that a device has counted. It is there no more.
    fn unmap_device(&self, entry: Entry) {
        if entry.is_counted_device() {
            let uncounted = self.vm().yard().remove_device_mapping(entry.pfn());
            debug_assert!(uncounted.is_ok(), "a device that has mappings is not removed: {uncounted:?}");
        }
    }

    /// Zaps what a table has behind it, from `start` up to `end`.
    fn zap(&mut self, table: Table<'y>, level: Level, start: u64, end: u64) {
        if level == Level::SMALL {
            return self.zap_small(table, start, end);
        }
        let mut at = start;
        while at < end {
            let index = level.index(at);
            let first = level.align_down(at);
            let next = (first + level.span()).min(end);
            let entry = table.entry(index);
            if entry.is_table(level) {
                self.zap(self.space.table(entry.pfn()), level.below(), at, next);
            } else if !entry.is_empty() {
                self.zap_large((table, level, index), entry, (at, next));
            }
            at = next;
        }
    }

    fn zap_small(&mut self, table: Table<'y>, start: u64, end: u64) {
        let first = Level::SMALL.index(start);
        let last = first + ((end - start) >> Level::SMALL.shift()) as usize;
        debug_assert!(last <= ENTRIES);
        let mut at = first;
        while let Some(moving) = self.zap_entries(table, at, last) {
            let addr = start + (((moving - first) as u64) << Level::SMALL.shift());
            at = if self.await_move(table, moving, addr) { moving } else { moving + 1 };
        }
    }

    /// Waits until the page of an entry is there again, whoever moves it; `false` where it is left as it is. No lock of a
    /// table is held.
    #[cold]
    fn await_move(&mut self, table: Table<'y>, index: usize, addr: u64) -> bool {
        let rounds = if self.zapped.moving.is_none() { WAIT_ROUNDS } else { 1 };
        for round in 0..rounds {
            if !table.entry(index).is_moving() {
                return true;
            }
            self.vm().yard().platform().relax(round);
        }
        self.zapped.moving.get_or_insert(VirtAddr(addr));
        false
    }

    /// Zaps entries of a table of level 0, up to one whose page is being moved: which.
    fn zap_entries(&mut self, table: Table<'y>, first: usize, last: usize) -> Option<usize> {
        let locked = self.space.lock_table(table);
        let before = TableUse::of(locked.page);
        let (mut left, mut moving) = (before, None);
        // Entries that were used when the span began.
        let mut used = before.used;
        self.platform().begin_activity(Activity::Zap);
        for index in first..last {
            if left.used == 0 {
                break;
            }
            if index + AHEAD < last {
                self.prefetch(table.entry(index + AHEAD));
            }
            let entry = locked.entry(index);
            if entry.is_empty() {
                continue;
            }
            if entry.is_moving() {
                moving = Some(index);
                break;
            }
            locked.set(index, Entry::EMPTY);
            left.used -= 1;
            if entry.is_device() {
                self.unmap_device(entry);
            } else {
                left.anonymous -= 1;
                if self.unmap(entry.head()) {
                    self.platform().end_activity(Activity::Zap, PageCount((used - left.used).into()));
                    self.vm().free_unused(self.pages.take());
                    used = left.used;
                    self.platform().begin_activity(Activity::Zap);
                }
            }
        }
        self.platform().end_activity(Activity::Zap, PageCount((used - left.used).into()));
        locked.change_use(|_| left);
        let anonymous = u64::from(before.anonymous - left.anonymous);
        self.zapped.pages += anonymous;
        self.zapped.device += u64::from(before.used - left.used) - anonymous;
        moving
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) {
        if !entry.is_empty() && !entry.is_device() {
            self.vm().page(entry.head()).prefetch();
        }
    }

    /// Zaps a large page, or that part of it.
    fn zap_large(&mut self, at: (Table<'y>, Level, usize), entry: Entry, (start, end): (u64, u64)) {
        let (table, level, index) = at;
        let entry = if entry.is_moving() {
            if !self.await_move(table, index, start) {
                return;
            }
            table.entry(index)
        } else {
            entry
        };
        let is_part = end - start < level.span();
        if is_part && !entry.is_device() {
            let small = self.space.split_huge(table, index, level.align_down(start));
            return self.zap_small(small, start, end);
        }
        // A part of a device's page goes with the whole of it: the rest is mapped again when it is used.
        self.platform().begin_activity(Activity::Zap);
        let locked = self.space.lock_table(table);
        locked.set(index, Entry::EMPTY);
        let anonymous = u32::from(!entry.is_device());
        locked.change_use(|at| TableUse { used: at.used - 1, anonymous: at.anonymous - anonymous });
        if entry.is_device() {
            self.unmap_device(entry);
            self.zapped.device += 1;
            return self.platform().end_activity(Activity::Zap, PageCount(1));
        }
        let aside = locked.take_aside(self.space);
        drop(locked);
        debug_assert!(aside.is_some(), "a table is set aside for each huge mapping");
        if let Some(aside) = aside {
            self.gather_table(aside.pfn);
        }
        self.zapped.huge += 1;
        self.zapped.pages += Level::HUGE.pages();
        let is_full = self.unmap(entry.pfn());
        self.platform().end_activity(Activity::Zap, PageCount(1));
        if is_full {
            self.vm().free_unused(self.pages.take());
        }
    }

    /// Frees tables below one: those that are all inside `limits`.
    fn free_tables(&mut self, table: Table<'y>, level: Level, (start, end): (u64, u64), limits: (u64, u64)) {
        let mut at = start;
        while at < end {
            let index = level.index(at);
            let first = level.align_down(at);
            let behind = first + level.span();
            let next = behind.min(end);
            let entry = table.entry(index);
            if entry.is_table(level) {
                let child = self.space.table(entry.pfn());
                if level.below() > Level::SMALL {
                    self.free_tables(child, level.below(), (at, next), limits);
                }
                if first >= limits.0 && behind <= limits.1 {
                    self.free_child((table, level, index), child);
                }
            }
            at = next;
        }
    }

    fn free_child(&mut self, (table, level, index): (Table<'y>, Level, usize), child: Table<'y>) {
        let is_empty = TableUse::of(self.vm().page(child.pfn)) == TableUse::default();
        let is_left = self.zapped.moving.is_some();
        debug_assert!(is_empty || is_left, "what is mapped by a table that no area needs was zapped");
        if !is_empty {
            return;
        }
        let locked = self.space.lock_table(table);
        debug_assert!(locked.entry(index).is_table(level));
        locked.set(index, Entry::EMPTY);
        locked.change_use(|at| TableUse { used: at.used - 1, ..at });
        drop(locked);
        self.gather_table(child.pfn);
    }
}

#[cfg(test)]
mod tests;
