//! Page faults: map what the area of an unmapped address specifies.
//!
//! After the kernel's `handle_mm_fault`. Anonymous memory gets a zeroed page: 4 KiB, or a huge one if the mode and the
//! area allow it and the area contains the aligned 2 MiB (`do_anonymous_page`, `do_huge_pmd_anonymous_page`). There is
//! no shared zero page for reads. Device areas get an entry of their size. Areas of files map the file's page, or a copy
//! of it ([`file`]). A fault on a page in migration waits.
//! Entries of read-only areas are not writable: a write is rejected before anything is allocated.
//!
//! # Protocol
//!
//! A fault holds the map lock for reading. It allocates the page, makes it counted and zeroes it before it takes the lock of the
//! table. Under that lock it reads the entry again. If another fault has filled the entry, this fault frees its page
//! and retries. A new page has two references: one of its mapping, and one of the batch that puts it on an LRU list.
//!
//! # Cost
//!
//! A small fault: the map lock (two exchanges), a walk of two loads, the cached area, one frame from the caller's
//! per-CPU list (one exchange), one exchange on its byte of the allocation map, zeroing, the table's lock (one exchange), the
//! lock of the CPU's batch (one exchange), one counter. The first exchange after the zeroing waits until its stores have left the
//! store buffer: profiles show the cost of zeroing there. Besides the page's bytes it writes three cache lines: the page
//! structure, the table's page structure, and the entry.

use frameyard::devices::DeviceError;
use frameyard::owners::Ownership;
use frameyard::page::Counts;
use frameyard::{Gfp, Order, PageCount, Pfn, PfnRange, Platform};

use crate::address::{ENTRY_FRAMES_END, PageLevel, VirtAddr, VirtRange};
use crate::area::{Area, HugeAdvice, MapKind, Protection};
use crate::block::NewBlock;
use crate::counters::VmCounter;
use crate::error::{Damage, VmError};
use crate::inject::Step;
use crate::page::{PageKind, owner_word};
use crate::root::ThpMode;
use crate::space::{FaultError, MemoryAccess, SpaceRef};
use crate::table::{Entry, HUGE, Level, Spot};

/// Bound of the wait for a migration, in rounds of [`Platform::wait`]. Moving a huge page takes well below a
/// millisecond.
const WAIT_ROUNDS: u32 = 4096;

/// The outcome of a successful fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Faulted {
    /// The address is mapped for the access.
    Mapped,
    /// Another CPU was faster, or the migration ended: walk again.
    Retry,
}

impl Entry {
    /// The entry with the access noted.
    #[inline(always)]
    pub(crate) const fn used(self, access: MemoryAccess) -> Self {
        match access {
            MemoryAccess::Read => self.read(),
            MemoryAccess::Write => self.written(),
        }
    }
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Maps an address. The walk ended at `spot`, where nothing is present. The caller holds the map lock for reading
    /// and no other lock.
    #[inline]
    pub(crate) fn fault(&self, spot: Spot<'y>, addr: VirtAddr, access: MemoryAccess) -> Result<Faulted, FaultError> {
        if spot.entry.is_moving() {
            return self.wait_until_moved(spot, addr);
        }
        if !spot.entry.is_empty() {
            return Err(self.vm().damaged(Damage::Entry).into());
        }
        let area = self.find_area(addr).ok_or(FaultError::NotMapped(addr))?;
        if access == MemoryAccess::Write && area.protection == Protection::ReadOnly {
            return Err(FaultError::ReadOnly(addr));
        }
        self.vm().count(VmCounter::Pgfault, 1);
        match area.kind {
            MapKind::Anonymous { huge } => {
                if spot.level > Level::SMALL
                    && self.wants_huge(&area, addr, huge)
                    && let Some(done) = self.fault_huge(&area, spot, addr, access)?
                {
                    return Ok(done);
                }
                self.fault_small(&area, spot, addr, access)
            }
            MapKind::Device { .. } => self.fault_device(&area, spot, addr, access),
            MapKind::File { .. } => self.fault_file(addr, access),
            MapKind::Pooled { .. } => self.fault_pooled(&area, spot, addr, access),
        }
    }

    /// Waits for a migration to end. Holds only the map lock, so that the migration can finish.
    #[cold]
    fn wait_until_moved(&self, spot: Spot<'y>, addr: VirtAddr) -> Result<Faulted, FaultError> {
        self.vm().count(VmCounter::MigrationWait, 1);
        self.vm().may_fail(Step::AwaitMove)?;
        for round in 0..WAIT_ROUNDS {
            if !spot.table.entry(spot.index).is_moving() {
                return Ok(Faulted::Retry);
            }
            // A migration reads the map, as this CPU does. In a damaged yard it may have failed to end.
            self.map_lock().check_readers(round).map_err(VmError::from)?;
            self.vm().check_damage()?;
            self.vm().yard().platform().wait(round);
        }
        Err(FaultError::Moving(addr))
    }

    #[inline(always)]
    fn fault_small(
        &self,
        area: &Area,
        spot: Spot<'y>,
        addr: VirtAddr,
        access: MemoryAccess,
    ) -> Result<Faulted, FaultError> {
        let spot = if spot.level == Level::SMALL { spot } else { self.descend(spot, addr.0, Level::SMALL)? };
        if spot.level != Level::SMALL {
            return Ok(Faulted::Retry);
        }
        let block = self.vm().alloc_frames(Order::ZERO, Gfp::HIGHUSER_MOVABLE, Step::AllocatePage)?;
        let pfn = self.prepare(block, Level::SMALL.align_down(addr.0))?;
        let page = self.vm().page(pfn);
        let table = self.lock_table(spot.table).inspect_err(|_| self.give_up(pfn))?;
        if !table.entry(spot.index).is_empty() {
            drop(table);
            self.give_up(pfn);
            return Ok(Faulted::Retry);
        }
        let entry = Entry::page(pfn, Level::SMALL).protected(area.protection);
        table.fill(spot.index, entry.used(access), Level::SMALL);
        drop(table);
        self.vm().lru_add(page);
        Ok(Faulted::Mapped)
    }

    /// Makes a new block a page of the space: zeroed bytes, one mapping, one reference for a batch.
    #[inline(always)]
    fn prepare(&self, block: NewBlock<'y, P>, addr: u64) -> Result<Pfn, VmError> {
        let owner = owner_word(PageKind::Anonymous, self.object(), 0);
        let counts = Counts { references: 2, mappings: 1 };
        block.into_zeroed(Ownership { counts, owner, index: addr })
    }

    /// Frees an unused block from [`prepare`](Self::prepare). A CPU that found it by number may still hold a reference.
    #[cold]
    fn give_up(&self, pfn: Pfn) {
        let page = self.vm().page(pfn);
        self.vm().expect(page.unmap(), Damage::Frame);
        self.vm().put_page(page);
    }

    fn wants_huge(&self, area: &Area, addr: VirtAddr, advice: HugeAdvice) -> bool {
        let allowed = match self.vm().thp_mode() {
            ThpMode::Always => advice != HugeAdvice::Never,
            ThpMode::Madvise => advice == HugeAdvice::Huge,
            ThpMode::Never => false,
        };
        let size = PageLevel::Huge.size();
        allowed && VirtRange::new(addr.align_down(size), size).is_some_and(|huge| area.range.covers(huge))
    }

    /// Maps a huge page. `None` if the fault must map a small page: no block is free, or a table of small pages exists
    /// there.
    fn fault_huge(
        &self,
        area: &Area,
        spot: Spot<'y>,
        addr: VirtAddr,
        access: MemoryAccess,
    ) -> Result<Option<Faulted>, FaultError> {
        let MapKind::Anonymous { huge: advice } = area.kind else { return Ok(None) };
        let spot = self.descend(spot, addr.0, Level::HUGE)?;
        if spot.level != Level::HUGE || !spot.entry.is_empty() {
            return Ok(Some(Faulted::Retry));
        }
        let Some((pfn, deposited)) = self.huge_block(addr, advice) else {
            self.vm().count(VmCounter::ThpFaultFallback, 1);
            return Ok(None);
        };
        let unused = || {
            self.give_up(pfn);
            self.free_table_frames(&[deposited]);
        };
        let table = self.lock_table(spot.table).inspect_err(|_| unused())?;
        if !table.entry(spot.index).is_empty() {
            drop(table);
            unused();
            return Ok(Some(Faulted::Retry));
        }
        let entry = Entry::page(pfn, Level::HUGE).protected(area.protection);
        table.fill(spot.index, entry.used(access), Level::HUGE);
        table.deposit(self.vm().yard().counted().link(deposited), self.vm().page(deposited));
        drop(table);
        self.vm().lru_add(self.vm().page(pfn));
        self.vm().count(VmCounter::ThpFaultAlloc, 1);
        Ok(Some(Faulted::Mapped))
    }

    /// A zeroed block for a huge mapping, and a table for splitting it later; `None` if either cannot be allocated.
    ///
    /// Compacts memory only for areas that requested huge pages, the kernel's default (`vma_thp_gfp_mask` with `defrag`
    /// at `madvise`).
    fn huge_block(&self, addr: VirtAddr, advice: HugeAdvice) -> Option<(Pfn, Pfn)> {
        const TRY: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::COMP).union(Gfp::NOWARN).union(Gfp::NORETRY);
        let gfp = if advice == HugeAdvice::Huge { TRY } else { TRY.without(Gfp::DIRECT_RECLAIM) };
        let deposited = self.new_table(Level::SMALL, addr.0).ok()?.pfn;
        let block = self.vm().alloc_frames(HUGE, gfp, Step::AllocateHugePage);
        let prepared = block.and_then(|block| self.prepare(block, Level::HUGE.align_down(addr.0)));
        match prepared {
            Ok(pfn) => Some((pfn, deposited)),
            Err(_) => {
                self.free_table_frames(&[deposited]);
                None
            }
        }
    }

    /// Maps a page of a device: of the area's size, or smaller if a table exists there.
    fn fault_device(
        &self,
        area: &Area,
        spot: Spot<'y>,
        addr: VirtAddr,
        access: MemoryAccess,
    ) -> Result<Faulted, FaultError> {
        let MapKind::Device { first, page } = area.kind else { return Ok(Faulted::Retry) };
        // Fits in an entry whatever the words of the area are.
        let physical = |addr: u64| first.0.wrapping_add(addr.wrapping_sub(area.range.start.0));
        let frame = |addr: u64| Pfn((physical(addr) >> Level::SMALL.shift()) % ENTRY_FRAMES_END.0);
        let level = Level(page as u8).min(spot.level);
        let level = self.level_of_device(level, |level| frame(level.align_down(addr.0)));
        let spot = self.descend(spot, addr.0, level)?;
        if spot.level != level {
            return Ok(Faulted::Retry);
        }
        let pfn = frame(level.align_down(addr.0));
        let table = self.lock_table(spot.table)?;
        if !table.entry(spot.index).is_empty() {
            return Ok(Faulted::Retry);
        }
        let entry = Entry::device(pfn, level).protected(area.protection).used(access);
        // Count the entry before it exists and until it is gone: the device cannot be removed meanwhile.
        let yard = self.vm().yard();
        let entry = match yard.devices().add_mapping(pfn) {
            Ok(()) if self.level_of_device(level, |_| pfn) == level => entry.counted(),
            // Another device is there since the first look.
            Ok(()) => {
                self.vm().expect(yard.devices().remove_mapping(pfn), Damage::Entry);
                return Ok(Faulted::Retry);
            }
            Err(DeviceError::NotDevice(_)) => entry,
            Err(problem) => return Err(VmError::Device(problem).into()),
        };
        table.fill(spot.index, entry, level);
        Ok(Faulted::Mapped)
    }

    /// The highest level, starting at one, whose entry covers frames of one device of the yard, or of none.
    fn level_of_device(&self, mut level: Level, first: impl Fn(Level) -> Pfn) -> Level {
        let yard = self.vm().yard();
        let behind = |level: Level| PfnRange::new(first(level), PageCount(level.pages()));
        let is_of_one = |frames: PfnRange| match yard.devices().at(frames.start) {
            Some(device) => device.data.intersection(frames) == frames,
            None => yard.devices().list().all(|device| device.data.intersection(frames).is_empty()),
        };
        let space = yard.devices().space();
        while level > Level::SMALL && !space.intersection(behind(level)).is_empty() && !is_of_one(behind(level)) {
            level = level.below();
        }
        level
    }
}

mod file;
mod pooled;
#[cfg(test)]
mod tests;
