//! Faults in areas that map files.
//!
//! | area | access | the entry afterwards |
//! |---|---|---|
//! | shared | read | the file's page, not writable |
//! | shared | write | the file's page, dirty and writable (`do_shared_fault`) |
//! | private | read | the file's page, not writable |
//! | private | write | an anonymous copy (`do_cow_fault`) |
//!
//! A write to an address that a read has mapped before goes the same ways (`do_wp_page`).
//!
//! # Protocol
//!
//! The fault holds the map lock for reading. It allocates the frame of a copy, if it needs one. Then it gets the file's
//! page, locked and up to date, and marks it dirty for a shared write. Under the page lock it takes the lock of the table,
//! reads the entry again, counts the mapping, and writes the entry. The page lock keeps the page in its file until the
//! mapping counts.
//!
//! A copy replaces the entry under the lock of the table, and then releases the mapping of the file's page. Pins of the
//! file's page that were taken without a lock either precede the new entry, or see it and are released
//! ([`pin`](crate::pin)). A read pin that precedes it stays with the file's page, as in the kernel.

use frameyard::owners::Ownership;
use frameyard::page::Counts;
use frameyard::{Gfp, Order, Platform};

use super::Faulted;
use crate::address::VirtAddr;
use crate::area::{Area, MapKind, Protection, Sharing};
use crate::cache::{MappedPage, NoPage};
use crate::counters::VmCounter;
use crate::error::Damage;
use crate::inject::Step;
use crate::page::{PageKind, owner_word};
use crate::space::{FaultError, MemoryAccess, SpaceRef};
use crate::table::{Entry, Level, Spot};

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Maps a page of a file where nothing is mapped.
    #[cold]
    pub(super) fn fault_file(&self, addr: VirtAddr, access: MemoryAccess) -> Result<Faulted, FaultError> {
        let area = &self.area_of(addr).ok_or(FaultError::NotMapped(addr))?;
        let MapKind::File { sharing, .. } = area.kind else { return Ok(Faulted::Retry) };
        let spot = self.descend(self.walk(addr.0)?, addr.0, Level::SMALL)?;
        if spot.level != Level::SMALL {
            return Ok(Faulted::Retry);
        }
        if sharing == Sharing::Private && access == MemoryAccess::Write {
            return self.map_copy(area, spot, addr, access);
        }
        let page = match self.file_page(area, addr)? {
            Ok(page) => page,
            Err(faulted) => return Ok(faulted),
        };
        let entry = Entry::file(page.page().pfn());
        let entry = match access {
            MemoryAccess::Read => entry,
            MemoryAccess::Write => {
                page.set_dirty()?;
                entry.writable()
            }
        };
        let counted = page.page();
        // Held until the mapping counts.
        let _held = Some(page).filter(|_| !is_unlocked_early());
        let table = self.lock_table(spot.table)?;
        if !table.entry(spot.index).is_empty() {
            return Ok(Faulted::Retry);
        }
        counted.map();
        table.fill(spot.index, entry.used(access), Level::SMALL);
        Ok(Faulted::Mapped)
    }

    /// Makes a present entry writable, or replaces it by one that is. The caller holds the map lock for reading and no
    /// other lock.
    #[cold]
    pub(crate) fn fault_on_write(&self, spot: Spot<'y>, addr: VirtAddr) -> Result<Faulted, FaultError> {
        if !spot.entry.is_file() {
            return Err(FaultError::ReadOnly(addr));
        }
        let area = self.area_of(addr).ok_or(FaultError::NotMapped(addr))?;
        let MapKind::File { sharing, .. } = area.kind else { return Err(self.vm().damaged(Damage::Entry).into()) };
        if area.protection == Protection::ReadOnly {
            return Err(FaultError::ReadOnly(addr));
        }
        self.vm().count(VmCounter::Pgfault, 1);
        if sharing == Sharing::Private {
            return self.map_copy(&area, spot, addr, MemoryAccess::Write);
        }
        let page = match self.file_page(&area, addr)? {
            Ok(page) => page,
            Err(faulted) => return Ok(faulted),
        };
        page.set_dirty()?;
        let table = self.lock_table(spot.table)?;
        let entry = table.entry(spot.index);
        if !maps(entry, &page) {
            return Ok(Faulted::Retry);
        }
        table.set(spot.index, entry.writable().written());
        Ok(Faulted::Mapped)
    }

    /// Gives an address of a private mapping of a file its own copy of the page, for a caller that reads or writes
    /// whatever the area allows: a long-term pin, or a write by force. After the kernel's `FAULT_FLAG_UNSHARE`. The
    /// caller holds the map lock for reading and no other lock.
    #[cold]
    pub(crate) fn unshare(&self, addr: VirtAddr) -> Result<Faulted, FaultError> {
        let area = self.area_of(addr).ok_or(FaultError::NotMapped(addr))?;
        let spot = self.walk(addr.0)?;
        if !matches!(area.kind, MapKind::File { sharing: Sharing::Private, .. }) || !spot.entry.is_file() {
            return Ok(Faulted::Retry);
        }
        self.vm().count(VmCounter::Pgfault, 1);
        self.map_copy(&area, spot, addr, MemoryAccess::Read)
    }

    /// The page of a file that an area maps at an address; or the reason to retry.
    fn file_page(&self, area: &Area, addr: VirtAddr) -> Result<Result<MappedPage<'y, P>, Faulted>, FaultError> {
        let MapKind::File { file, first, .. } = area.kind else { return Ok(Err(Faulted::Retry)) };
        let index = first.wrapping_add((addr.0.wrapping_sub(area.range.start.0)) >> Level::SMALL.shift());
        match self.vm().mapped_file(file)?.page(index)? {
            Ok(page) => Ok(Ok(page)),
            Err(NoPage::Removed) => Ok(Err(Faulted::Retry)),
            Err(NoPage::Behind) => Err(FaultError::BehindFile(addr)),
        }
    }

    /// Maps an anonymous copy of a file's page, where nothing or that page is mapped.
    fn map_copy(
        &self,
        area: &Area,
        spot: Spot<'y>,
        addr: VirtAddr,
        access: MemoryAccess,
    ) -> Result<Faulted, FaultError> {
        let vm = self.vm();
        let block = vm.alloc_frames(Order::ZERO, Gfp::HIGHUSER_MOVABLE, Step::AllocatePage)?;
        let mut page = match self.file_page(area, addr) {
            Ok(Ok(page)) => page,
            Ok(Err(faulted)) => {
                block.free()?;
                return Ok(faulted);
            }
            Err(problem) => {
                block.free()?;
                return Err(problem);
            }
        };
        let owner = owner_word(PageKind::Anonymous, self.object(), 0);
        let counts = Counts { references: 2, mappings: 1 };
        let pfn = page.copied(block, Ownership { counts, owner, index: Level::SMALL.align_down(addr.0) })?;
        let entry = Entry::page(pfn, Level::SMALL).protected(area.protection).used(access);
        let table = self.lock_table(spot.table).inspect_err(|_| self.give_up(pfn))?;
        let before = table.entry(spot.index);
        if before.is_empty() {
            table.fill(spot.index, entry, Level::SMALL);
        } else if maps(before, &page) {
            table.set(spot.index, entry);
            table.change_use(|at| at.more(0, 1));
        } else {
            drop(table);
            self.give_up(pfn);
            return Ok(Faulted::Retry);
        }
        drop(table);
        if !before.is_empty() {
            // Not the last reference: the fault has one.
            vm.expect(page.page().unmap(), Damage::Frame);
        }
        vm.lru_add(vm.page(pfn));
        Ok(Faulted::Mapped)
    }
}

/// Whether a model maps pages without their locks on purpose.
fn is_unlocked_early() -> bool {
    #[cfg(loom)]
    return frameyard::sync::is_weakened(frameyard::sync::Weakness::MappedUnlocked);
    #[cfg(not(loom))]
    false
}

/// Whether an entry maps that page of a file.
fn maps<P: Platform>(entry: Entry, page: &MappedPage<'_, P>) -> bool {
    entry.is_present() && entry.is_file() && entry.pfn() == page.page().pfn()
}
