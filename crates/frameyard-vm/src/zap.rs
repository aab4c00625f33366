//! Unmapping: gathers pages and frees them in batches, then frees page tables.
//!
//! After the kernel's `unmap_page_range`, `tlb_batch_pages_flush` and `free_pgtables`. The caller holds the map lock
//! for writing or has exclusive access to the space: no CPU walks, faults or starts a migration meanwhile. Other CPUs
//! may hold references to pages (pins, batches, scanners). The last reference frees the page.
//!
//! A migration holds the map lock for reading until the page is back, so unmapping meets its entry only if the
//! migration did not end: a process with a lock was killed. The entry stays, because its frame belongs to the
//! migration, and so do the tables that lead to it. The caller gets the address.
//!
//! Workers that tear a space down together process different addresses, divided at multiples of 2 MiB, and so different
//! tables of level 0. They change higher tables under the lock of the table.

use frameyard::platform::{Activity, Probe};
use frameyard::{PageCount, Pfn, Platform};

use crate::address::{VirtAddr, VirtRange};
use crate::error::{Damage, VmError};
use crate::frame_vec::FrameVec;
use crate::page::PageKind;
use crate::space::SpaceRef;
use crate::table::{ENTRIES, Entry, Level, LockedTable, Table, TableUse};
use crate::vm::Vm;

mod parallel;

/// The amount of memory unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Zapped {
    /// Pages of anonymous memory, including those of huge mappings.
    pub(crate) pages: u64,
    /// Huge mappings of anonymous memory.
    pub(crate) huge: u64,
    /// Mappings of devices, of any size.
    pub(crate) device: u64,
    /// Mappings of pages of files.
    pub(crate) file: u64,
    /// Frames of page tables that were freed.
    pub(crate) tables: u64,
    /// An address whose page is still in migration. It is still mapped.
    pub(crate) moving: Option<VirtAddr>,
}

impl Zapped {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            huge: self.huge + other.huge,
            device: self.device + other.device,
            file: self.file + other.file,
            tables: self.tables + other.tables,
            moving: self.moving.or(other.moving),
        }
    }
}

/// Frames gathered before they are freed. Their page structures stay in the nearest cache meanwhile.
const GATHER: usize = 256;
/// Distance of the prefetch of page structures, in entries.
const AHEAD: usize = 8;

/// Unmaps ranges of a space.
struct Zapper<'a, 'y, P: Platform> {
    space: &'a SpaceRef<'y, P>,
    pages: FrameVec<GATHER>,
    tables: FrameVec<GATHER>,
    zapped: Zapped,
    /// The first error. The table where it occurred keeps its entries.
    problem: Option<VmError>,
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Unmaps a range that is a multiple of 4 KiB. Splits huge mappings at its ends. Keeps page tables. The caller
    /// holds the map lock for writing.
    ///
    /// # Errors
    ///
    /// A table is damaged, or its lock was not released. The rest of the range is unmapped.
    pub(crate) fn zap(&self, range: VirtRange) -> Result<Zapped, VmError> {
        // Drain first: batched pages would go to a list only to be removed again.
        self.vm().lru_drain();
        let mut zapper = Zapper::new(self);
        zapper.zap(self.root_of_tables()?, Level::ROOT, range.start.0, range.end.0);
        zapper.finish()
    }

    /// Frees the page tables that cover addresses of a range and none outside `floor` and `ceiling`, which the adjacent
    /// areas need. Everything between is unmapped. Returns the number freed.
    ///
    /// # Errors
    ///
    /// As [`zap`](Self::zap).
    pub(crate) fn free_tables(&self, range: VirtRange, floor: VirtAddr, ceiling: VirtAddr) -> Result<u64, VmError> {
        self.clear_table_cache();
        let mut zapper = Zapper::new(self);
        zapper.free_tables(self.root_of_tables()?, Level::ROOT, (range.start.0, range.end.0), (floor.0, ceiling.0));
        Ok(zapper.finish()?.tables)
    }
}

impl<'a, 'y, P: Platform> Zapper<'a, 'y, P> {
    fn new(space: &'a SpaceRef<'y, P>) -> Self {
        Self { space, pages: FrameVec::new(), tables: FrameVec::new(), zapped: Zapped::default(), problem: None }
    }

    fn vm(&self) -> &'a Vm<'y, P> {
        self.space.vm()
    }

    /// Frees the gathered frames; returns the totals.
    fn finish(mut self) -> Result<Zapped, VmError> {
        self.vm().free_unused(self.pages.take());
        self.free_gathered_tables();
        self.problem.map_or(Ok(self.zapped), Err)
    }

    /// The result without its error, which is noted.
    fn noted<T>(&mut self, result: Result<T, VmError>) -> Option<T> {
        result.map_err(|error| self.problem.get_or_insert(error)).ok()
    }

    /// Locks a table; `None` if that failed, which is noted.
    fn locked(&mut self, table: Table<'y>) -> Option<LockedTable<'y, P>> {
        let locked = self.space.lock_table(table);
        self.noted(locked)
    }

    fn gather_table(&mut self, pfn: Pfn) {
        self.zapped.tables += 1;
        self.tables.push(pfn);
        if self.tables.is_full() {
            self.free_gathered_tables();
        }
    }

    fn free_gathered_tables(&mut self) {
        let tables = self.tables.take();
        if !tables.is_empty() {
            self.space.announce_table_removal();
            self.space.free_table_frames(tables);
        }
    }

    /// Releases the reference of a removed mapping; `true` if the gathered frames must be freed.
    #[inline(always)]
    fn unmap(&mut self, head: Pfn) -> bool {
        // A frame that is not a mapped page of the space is lost.
        let left = match self.space.anonymous_page(head).map(|page| page.unmap()) {
            Some(Ok(left)) => left,
            _ => {
                self.vm().damaged(Damage::Entry);
                return false;
            }
        };
        if left != 0 {
            return false;
        }
        self.pages.push(head);
        self.pages.is_full()
    }

    /// Releases the reference of a removed mapping of a page of a file. The file has another: it keeps mapped pages.
    #[cold]
    fn unmap_file(&mut self, pfn: Pfn) {
        let page = self.vm().try_page(pfn).filter(|page| PageKind::of_word(page.owner()) == Some(PageKind::Cache));
        match page.map(|page| page.unmap()) {
            Some(Ok(left)) if left > 0 => self.zapped.file += 1,
            // The frame is lost.
            _ => _ = self.vm().damaged(Damage::Entry),
        }
    }

    #[inline(always)]
    fn platform(&self) -> &'a P {
        self.vm().yard().platform()
    }

    /// Uncounts a removed entry of a device or of a huge page of a pool.
    fn unmap_device(&self, entry: Entry) {
        if entry.is_counted_device() {
            let uncounted = self.vm().yard().devices().remove_mapping(entry.pfn());
            self.vm().expect(uncounted, Damage::Entry);
        } else if entry.is_pooled() {
            match self.vm().pooled_page(entry.pfn()) {
                Some((page, _)) => self.vm().unmap_pooled(page),
                None => _ = self.vm().damaged(Damage::Entry),
            }
        }
    }

    /// Unmaps the addresses from `start` to `end` of a table.
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
                let below = self.space.table_below(entry, level, at);
                if let Some(below) = self.noted(below) {
                    self.zap(below, level.below(), at, next);
                }
            } else if !entry.is_empty() {
                self.zap_large((table, level, index), entry, (at, next));
            }
            at = next;
        }
    }

    fn zap_small(&mut self, table: Table<'y>, start: u64, end: u64) {
        let first = Level::SMALL.index(start);
        let last = (first + ((end - start) >> Level::SMALL.shift()) as usize).min(ENTRIES);
        let Some(locked) = self.locked(table) else { return };
        let before = TableUse::of(locked.page);
        let files_before = self.zapped.file;
        let mut left = before;
        // Entries in use when the activity began.
        let mut used = before.used;
        self.platform().probe().begin_activity(Activity::Zap);
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
                let addr = start + (((index - first) as u64) << Level::SMALL.shift());
                self.zapped.moving.get_or_insert(VirtAddr(addr));
                continue;
            }
            locked.set(index, Entry::EMPTY);
            left = left.less(1, 0);
            if entry.is_anonymous() {
                left = left.less(0, 1);
                if self.unmap(entry.head()) {
                    self.platform().probe().end_activity(Activity::Zap, PageCount(used.wrapping_sub(left.used).into()));
                    self.vm().free_unused(self.pages.take());
                    used = left.used;
                    self.platform().probe().begin_activity(Activity::Zap);
                }
            } else if entry.is_file() {
                self.unmap_file(entry.pfn());
            } else {
                self.unmap_device(entry);
            }
        }
        self.platform().probe().end_activity(Activity::Zap, PageCount(used.wrapping_sub(left.used).into()));
        locked.change_use(|_| left);
        let gone = before.less(left.used, left.anonymous);
        self.zapped.pages += u64::from(gone.anonymous);
        let files = self.zapped.file - files_before;
        self.zapped.device += u64::from(gone.used.wrapping_sub(gone.anonymous)).saturating_sub(files);
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) {
        if !entry.is_empty()
            && !entry.is_device()
            && let Some(page) = self.vm().try_page(entry.head())
        {
            page.prefetch();
        }
    }

    /// Unmaps a large page or a part of it.
    fn zap_large(&mut self, at: (Table<'y>, Level, usize), entry: Entry, (start, end): (u64, u64)) {
        let (table, level, index) = at;
        if entry.is_moving() {
            self.zapped.moving.get_or_insert(VirtAddr(start));
            return;
        }
        let is_part = end - start < level.span();
        if is_part && !entry.is_device() {
            let small = self.space.split_huge((table, level, index), level.align_down(start));
            if let Some(small) = self.noted(small) {
                self.zap_small(small, start, end);
            }
            return;
        }
        // A partial unmap removes the whole device entry. The rest is faulted in again on access.
        self.platform().probe().begin_activity(Activity::Zap);
        let Some(locked) = self.locked(table) else {
            return self.platform().probe().end_activity(Activity::Zap, PageCount(0));
        };
        locked.set(index, Entry::EMPTY);
        let anonymous = u32::from(!entry.is_device());
        locked.change_use(|at| at.less(1, anonymous));
        if entry.is_device() {
            self.unmap_device(entry);
            self.zapped.device += 1;
            return self.platform().probe().end_activity(Activity::Zap, PageCount(1));
        }
        let deposited = locked.withdraw(self.space);
        drop(locked);
        if let Some(deposited) = self.noted(deposited) {
            self.gather_table(deposited.pfn);
        }
        self.zapped.huge += 1;
        self.zapped.pages += Level::HUGE.pages();
        let is_full = self.unmap(entry.pfn());
        self.platform().probe().end_activity(Activity::Zap, PageCount(1));
        if is_full {
            self.vm().free_unused(self.pages.take());
        }
    }

    /// Frees the tables below one that are completely inside `limits`.
    fn free_tables(&mut self, table: Table<'y>, level: Level, (start, end): (u64, u64), limits: (u64, u64)) {
        let mut at = start;
        while at < end {
            let index = level.index(at);
            let first = level.align_down(at);
            let behind = first + level.span();
            let next = behind.min(end);
            let entry = table.entry(index);
            if entry.is_table(level) {
                let child = self.space.table_below(entry, level, at);
                let Some(child) = self.noted(child) else {
                    at = next;
                    continue;
                };
                if level.below() > Level::SMALL {
                    self.free_tables(child, level.below(), (at, next), limits);
                }
                if first >= limits.0 && behind <= limits.1 {
                    self.free_child((table, index), child);
                }
            }
            at = next;
        }
    }

    fn free_child(&mut self, (table, index): (Table<'y>, usize), child: Table<'y>) {
        let page = self.space.page_of_table(child.pfn);
        let Some(page) = self.noted(page) else { return };
        if TableUse::of(page) != TableUse::default() {
            // A table that no area needs is empty, unless entries stayed.
            if self.zapped.moving.is_none() && self.problem.is_none() {
                self.vm().damaged(Damage::PageTable);
            }
            return;
        }
        let Some(locked) = self.locked(table) else { return };
        locked.set(index, Entry::EMPTY);
        locked.change_use(|at| at.less(1, 0));
        drop(locked);
        self.gather_table(child.pfn);
    }
}

#[cfg(test)]
mod tests;
